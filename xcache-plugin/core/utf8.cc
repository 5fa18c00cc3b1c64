#include "smartcache/utf8.hh"

namespace smartcache {

size_t Utf8Length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const unsigned lead = byte(0), second = byte(1);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool in_range = !(lead == 0xE0 && second < 0xA0) && !(lead == 0xED && second > 0x9F);
    return in_range && continues(1) && continues(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool in_range = !(lead == 0xF0 && second < 0x90) && !(lead == 0xF4 && second > 0x8F);
    return in_range && continues(1) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

std::string_view ValidUtf8(std::string_view text, std::string* scratch) {
  unsigned char any = 0;
  for (const char c : text) any |= static_cast<unsigned char>(c);
  if (any < 0x80) return text;  // nearly every LFN
  scratch->clear();
  bool valid = true;
  for (size_t at = 0; at < text.size();) {
    const size_t length = Utf8Length(text, at);
    valid = valid && length != 0;
    if (length == 0)
      scratch->append("\xEF\xBF\xBD");
    else
      scratch->append(text, at, length);
    at += length == 0 ? 1 : length;
  }
  return valid ? text : *scratch;
}

void AppendQuoted(std::string_view text, std::string* out) {
  static const char hex[] = "0123456789abcdef";
  *out += '"';
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const size_t length = Utf8Length(text, at);
    if (length == 0) {
      *out += "\xEF\xBF\xBD";
      ++at;
    } else if (c == '"' || c == '\\') {
      *out += '\\';
      *out += c;
      ++at;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      *out += "\\u00";
      *out += hex[(c >> 4) & 15];
      *out += hex[c & 15];
      ++at;
    } else {
      out->append(text, at, length);
      at += length;
    }
  }
  *out += '"';
}

}  // namespace smartcache
