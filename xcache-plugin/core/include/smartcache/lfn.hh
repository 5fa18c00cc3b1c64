// What an LFN says by itself: its identity, its dataset and the tokens of its directory names.
//
// Repeated slashes count as one, as pfc collapses them too. The dataset is the first `levels` directory levels, fewer where the path is
// shorter, "/" where it has none; the first rule whose prefix fits gives `levels`, else the configured default.
// A token is a directory name with every run of digits replaced by one '#', so that Run2017B and Run2018B meet; it is hashed into one of
// `token_buckets` counters and adds +1 or -1 there (signed feature hashing, so that collisions cancel in the mean).
// Thread-safe: const after construction. Failure: none; any bytes are an LFN.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "smartcache/config.hh"

namespace smartcache {

constexpr int kMaxTokenBuckets = 64;

struct ParsedLfn {
  uint64_t file;
  uint64_t dataset;
  float tokens[kMaxTokenBuckets];  // the first token_buckets of them are set
};

class LfnParser {
 public:
  LfnParser(DatasetConfig dataset, int token_buckets);

  // Everything in one pass, without allocation.
  void Parse(std::string_view lfn, ParsedLfn* out) const;

  std::string DatasetOf(std::string_view lfn) const;
  // ParsedLfn::dataset of the files of the dataset with this name, as DatasetOf gives it.
  static uint64_t DatasetKey(std::string_view dataset);

 private:
  int LevelsFor(std::string_view lfn) const;

  const DatasetConfig dataset_;
  const int token_buckets_;
};

}  // namespace smartcache
