#include "smartcache/trace.hh"

#include <algorithm>
#include <array>

namespace smartcache {

namespace {

constexpr std::array<Concern, 3> kAll = {Concern::kDecisions, Concern::kModel, Concern::kEvictor};

}  // namespace

const char* NameOf(Concern concern) {
  switch (concern) {
    case Concern::kDecisions:
      return "decisions";
    case Concern::kModel:
      return "model";
    case Concern::kEvictor:
      return "evictor";
  }
  return "";
}

std::optional<unsigned> ParseConcerns(std::string_view text) {
  unsigned concerns = 0;
  size_t words = 0;
  bool off = false;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    if (text.empty()) break;
    const std::string_view word = text.substr(0, text.find_first_of(" \t"));
    text.remove_prefix(word.size());
    ++words;
    if (word == "off")
      off = true;
    else if (word == "all")
      concerns = ~0u;
    else if (const auto found = std::find_if(kAll.begin(), kAll.end(), [&](Concern each) { return word == NameOf(each); });
             found != kAll.end())
      concerns |= static_cast<unsigned>(*found);
    else
      return std::nullopt;
  }
  if (words == 0 || (off && words > 1)) return std::nullopt;
  return concerns;
}

}  // namespace smartcache
