// pfc's record of a cached file, the .cinfo beside it: its true size, which blocks are here, how it was accessed.
//
// Version 4 (all of XRootD 5 and 6), little-endian:
//   int32 version | Store: int64 block size, file size, created, no-checksum time; uint64 accesses; uint32 status; int32 n
//   | uint32 crc32c(Store) | one bit a block, lowest first | n records of 56 bytes | uint32 crc32c(bits, records)
// An access is one life of pfc's File object: from the first client that opens the file to the last that closes it. Old records are merged,
// so that at most `pfc.acchistorysize` are kept; the accesses of all records add up to `accesses`.
// Versions 2 and 3 (XRootD 4): int32 version, int64 block size, file size | bits | 16 bytes MD5 of the bits | int64 created, uint64
// accesses
//   | records to the end of the file, of 56 bytes, in version 2 of 40 (attach, detach, hit, missed, bypassed). A record that cannot be (no
//   clients, times before 1971 or out of order) is passed over, as pfc does. The records have no checksum.
// Thread-safe: pure. Failure: false and why, or what is unknown as -1; any bytes may come in.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace smartcache {

struct Cinfo {
  struct Access {
    int64_t attach_s, detach_s;  // of the first and the last of them; detach_s 0: it never came
    int32_t clients, duration_s;
    int64_t times;  // accesses merged in this record, 1 or more
    int64_t hit, missed, bypassed;
  };
  int32_t version;
  int64_t block_bytes, file_bytes, created_s;
  int64_t no_checksum_s;  // when the first block came without a checksum; 0: none has
  int32_t checksums;      // pfc's CkSumCheck_e, what the blocks were checked against: 0 nothing, 1 the cache's, 2 the origin's, 3 both
  int64_t blocks, blocks_present;
  uint64_t accesses;
  std::vector<Access> records;
};

// What a whole .cinfo says, its checksums verified. False: `why` it says nothing.
bool ParseCinfo(std::string_view bytes, Cinfo* out, std::string* why);

// Bytes that were read in the access over the file's size, in [0, 4]; -1 where it has not ended or its counts cannot be.
float ReadShare(const Cinfo::Access& access, int64_t file_bytes);

// What an open needs: the true size, and the read share of the last access. -1: unknown.
struct CinfoHead {
  int64_t file_bytes = -1;
  float read_share = -1;
};

// Reads at an offset of the .cinfo: bytes read, or less than 0.
using ReadAt = std::function<ssize_t(void* buffer, int64_t offset, size_t size)>;

// Two reads at most, one for most files: the head and what follows it, and the last record where it lies farther on. The checksum of the
// Store is verified; that of the records only where all of them came in the first read.
CinfoHead ReadCinfoHead(const ReadAt& read);

// More than any .cinfo has: one of a file of a petabyte in blocks of 512 kB.
constexpr size_t kLargestCinfo = size_t{256} << 20;

}  // namespace smartcache
