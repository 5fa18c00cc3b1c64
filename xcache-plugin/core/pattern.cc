#include "smartcache/pattern.hh"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace smartcache {
namespace {

constexpr size_t kLongest = 256;

size_t Byte(char c) { return static_cast<unsigned char>(c); }

// Reads the set that begins after `[` at `*at`, and leaves `*at` behind its `]`.
std::bitset<256> ReadSet(std::string_view text, size_t* at) {
  std::bitset<256> set;
  const auto next = [&] {
    if (*at >= text.size()) throw std::invalid_argument("a pattern whose [ has its ]");
    return text[(*at)++];
  };
  const auto literal = [&](char c) { return c == '\\' ? next() : c; };
  char c = next();
  const bool negated = c == '!' || c == '^';
  if (negated) c = next();
  for (bool first = true; first || c != ']'; first = false, c = next()) {
    const size_t low = Byte(literal(c));
    size_t high = low;
    if (*at + 1 < text.size() && text[*at] == '-' && text[*at + 1] != ']') {
      ++*at;
      high = Byte(literal(next()));
    }
    if (high < low) throw std::invalid_argument("a pattern whose ranges rise, as in [a-z]");
    for (size_t each = low; each <= high; ++each) set.set(each);
  }
  return negated ? ~set : set;
}

}  // namespace

Pattern::Pattern(std::string_view text) {
  if (text.empty() || (text[0] != '/' && text[0] != '*')) throw std::invalid_argument("a prefix or pattern that begins with / or *");
  if (text.size() > kLongest) throw std::invalid_argument("a prefix or pattern of at most 256 bytes");
  prefix_ = text.find_first_of("*?[\\") == std::string_view::npos;
  pieces_.emplace_back();
  for (size_t at = 0; at < text.size();) {
    Piece& piece = pieces_.back();
    const char c = text[at++];
    std::bitset<256> set;
    if (c == '*') {
      pieces_.emplace_back();
      continue;
    }
    if (c == '?') {
      piece.literal = false;
      set.set();
    } else if (c == '[') {
      piece.literal = false;
      set = ReadSet(text, &at);
    } else if (c == '\\') {
      if (at == text.size()) throw std::invalid_argument("a pattern with a byte after each \\");
      set.set(Byte(text[at]));
      piece.text += text[at++];
    } else {
      set.set(Byte(c));
      piece.text += c;
    }
    piece.bytes.push_back(set);
  }
  for (Piece& piece : pieces_) (piece.literal ? piece.bytes.clear() : piece.text.clear());
}

bool Pattern::Piece::FitsAt(std::string_view lfn, size_t at) const {
  if (lfn.size() < at || lfn.size() - at < size()) return false;
  if (literal) return lfn.compare(at, text.size(), text) == 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (!bytes[i].test(Byte(lfn[at + i]))) return false;
  }
  return true;
}

size_t Pattern::Piece::Find(std::string_view lfn, size_t from) const {
  if (lfn.size() - from < size()) return std::string_view::npos;
  if (literal) {
    // glibc's memmem is linear in the worst case too, which std::string_view::find is not.
    const void* found = ::memmem(lfn.data() + from, lfn.size() - from, text.data(), text.size());
    return found ? static_cast<size_t>(static_cast<const char*>(found) - lfn.data()) : std::string_view::npos;
  }
  for (size_t at = from; at + size() <= lfn.size(); ++at) {
    if (FitsAt(lfn, at)) return at;
  }
  return std::string_view::npos;
}

bool Pattern::Matches(std::string_view lfn) const {
  const Piece& first = pieces_.front();
  if (!first.FitsAt(lfn, 0)) return false;
  if (prefix_) return true;
  if (pieces_.size() == 1) return lfn.size() == first.size();
  size_t at = first.size();
  for (size_t i = 1; i + 1 < pieces_.size(); ++i) {
    const size_t found = pieces_[i].Find(lfn, at);
    if (found == std::string_view::npos) return false;
    at = found + pieces_[i].size();
  }
  const Piece& last = pieces_.back();
  return lfn.size() - at >= last.size() && last.FitsAt(lfn, lfn.size() - last.size());
}

}  // namespace smartcache
