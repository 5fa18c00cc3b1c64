// The dataset side table (contract 8), as the stream publishes it: what the caches of a federation together saw of each dataset.
//
// Read strictly, line by line, within bounds: kMaxSideTableBytes in all, kMaxSideTableLine a line, kMaxSideTableRows datasets; each number
// within the range that it can have, the names rising, and the last line right about the number and the SHA-256 of all before it. One row
// that cannot be is the end of the whole table: who wrote it cannot be trusted with the others. Kept is what the features take: 40 bytes a
// dataset, sorted by the key that the core has for it, with an index by the first bits of the key: a lookup is two steps in memory.
// Thread-safe: immutable. Failure: SideTableError, whose text says thing, rule, value and the way out; std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "smartcache/federation.hh"

namespace smartcache {

constexpr size_t kMaxSideTableBytes = size_t{512} << 20;
constexpr size_t kMaxSideTableLine = 16384;
constexpr size_t kMaxSideTableRows = 1000000;

struct SideTableError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class SideTable {
 public:
  // `source` names the text in messages.
  SideTable(std::string_view text, const std::string& source);
  // The regular file at `path`, read in pieces: nothing but what is kept takes memory.
  static SideTable Read(const std::string& path);

  // What it says of the dataset with this key (LfnParser::DatasetKey).
  Federation Find(uint64_t dataset) const;

  int64_t version() const { return version_; }
  int64_t until_us() const { return until_us_; }
  size_t datasets() const { return rows_.size(); }
  size_t memory_bytes() const { return rows_.capacity() * sizeof(Row) + starts_.capacity() * sizeof(uint32_t); }

 private:
  struct Row {
    uint64_t key;
    int64_t last_open_us;
    float opens_shortest, opens, files, caches, reopen_share, part_read;
  };
  class Reader;

  SideTable() = default;
  void MakeIndex();

  int64_t version_ = 0, until_us_ = 0;
  std::vector<Row> rows_;  // by key
  // Where the rows begin whose key has these first bits; one more at the end.
  std::vector<uint32_t> starts_;
  int shift_ = 0;
};

}  // namespace smartcache
