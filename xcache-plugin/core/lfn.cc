#include "smartcache/lfn.hh"

#include <algorithm>
#include <utility>

#include "smartcache/hash.hh"

namespace smartcache {
namespace {

// Calls visit(name, is_directory) for each level of the path.
template <typename Visit>
void ForEachLevel(std::string_view lfn, Visit visit) {
  size_t at = 0;
  while (at < lfn.size()) {
    if (lfn[at] == '/') {
      ++at;
      continue;
    }
    const size_t end = std::min(lfn.find('/', at), lfn.size());
    visit(lfn.substr(at, end - at), end < lfn.size());
    at = end;
  }
}

// A dataset is never taken for a file of the same name.
uint64_t DatasetKeyOf(uint64_t hash) { return Mix(hash ^ 0x9e3779b97f4a7c15ull); }

uint64_t TokenHash(std::string_view name) {
  uint64_t hash = kFnvBasis;
  bool in_digits = false;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) hash = FnvByte(hash, static_cast<unsigned char>(c));
    if (digit && !in_digits) hash = FnvByte(hash, '#');
    in_digits = digit;
  }
  return Mix(hash);
}

}  // namespace

LfnParser::LfnParser(DatasetConfig dataset, int token_buckets) : dataset_(std::move(dataset)), token_buckets_(token_buckets) {}

int LfnParser::LevelsFor(std::string_view lfn) const {
  for (const DatasetRule& rule : dataset_.rules) {
    if (lfn.substr(0, rule.prefix.size()) == rule.prefix) return rule.levels;
  }
  return dataset_.levels;
}

void LfnParser::Parse(std::string_view lfn, ParsedLfn* out) const {
  const int levels = LevelsFor(lfn);
  for (int i = 0; i < token_buckets_; ++i) out->tokens[i] = 0.0f;
  uint64_t file = kFnvBasis, dataset = Fnv("/");
  int level = 0;
  ForEachLevel(lfn, [&](std::string_view name, bool is_directory) {
    file = Fnv(name, FnvByte(file, '/'));
    if (!is_directory) return;
    if (++level <= levels) dataset = file;
    if (token_buckets_ == 0) return;
    const uint64_t token = TokenHash(name);
    out->tokens[token % static_cast<uint64_t>(token_buckets_)] += (token >> 63) != 0 ? -1.0f : 1.0f;
  });
  out->file = Mix(file);
  out->dataset = DatasetKeyOf(dataset);
}

uint64_t LfnParser::DatasetKey(std::string_view dataset) { return DatasetKeyOf(Fnv(dataset)); }

std::string LfnParser::DatasetOf(std::string_view lfn) const {
  const int levels = LevelsFor(lfn);
  std::string dataset;
  int level = 0;
  ForEachLevel(lfn, [&](std::string_view name, bool is_directory) {
    if (is_directory && ++level <= levels) dataset.append("/").append(name);
  });
  return dataset.empty() ? "/" : dataset;
}

}  // namespace smartcache
