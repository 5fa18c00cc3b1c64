#include "smartcache/cinfo.hh"

#include <algorithm>
#include <cstring>

#include "smartcache/crc32c.hh"
#include "smartcache/md5.hh"

namespace smartcache {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "pfc writes its own byte order; only little-endian ones are known");

constexpr int32_t kVersion = 4;
constexpr size_t kStoreAt = 4, kStoreBytes = 48, kBitsAt = kStoreAt + kStoreBytes + 4, kRecordBytes = 56, kChecksumBytes = 4;
constexpr size_t kSizeAt = 12, kOldHead = 20, kMd5Bytes = 16, kRecordBytesV2 = 40;
constexpr int64_t kYear = 365 * 24 * 3600;
constexpr int64_t kLargestFile = INT64_C(1) << 50;
constexpr int64_t kLargestCount = INT64_C(1) << 60;  // three of them can be added
constexpr int32_t kMostRecords = 100000;
constexpr size_t kFirstRead = 4096;

template <typename T>
T At(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

struct Store {
  int64_t block_bytes, file_bytes, created_s, no_checksum_s;
  uint64_t accesses;
  int32_t checksums;
  int64_t blocks;
  size_t bit_bytes, records;
};

bool SizesCanBe(int64_t block_bytes, int64_t file_bytes) { return block_bytes > 0 && file_bytes >= 0 && file_bytes <= kLargestFile; }

// As pfc computes it, for an empty file too.
int64_t Blocks(int64_t block_bytes, int64_t file_bytes) { return file_bytes > 0 ? (file_bytes - 1) / block_bytes + 1 : 1; }

int64_t CountBits(std::string_view bits, int64_t blocks) {
  int64_t count = 0;
  size_t i = 0;
  for (; i + sizeof(uint64_t) < bits.size(); i += sizeof(uint64_t)) count += __builtin_popcountll(At<uint64_t>(bits, i));
  for (; i < bits.size(); ++i) {
    unsigned byte = static_cast<unsigned char>(bits[i]);
    if (i + 1 == bits.size() && blocks % 8 != 0) byte &= (1u << (blocks % 8)) - 1;
    count += __builtin_popcount(byte);
  }
  return count;
}

// `bytes` has at least the first kBitsAt. Null, or why not.
const char* ReadStore(std::string_view bytes, Store* out) {
  if (Crc32c(bytes.substr(kStoreAt, kStoreBytes)) != At<uint32_t>(bytes, kStoreAt + kStoreBytes))
    return "the checksum of its head is wrong";
  out->block_bytes = At<int64_t>(bytes, 4);
  out->file_bytes = At<int64_t>(bytes, 12);
  out->created_s = At<int64_t>(bytes, 20);
  out->no_checksum_s = At<int64_t>(bytes, 28);
  out->accesses = At<uint64_t>(bytes, 36);
  out->checksums = static_cast<int32_t>(At<uint32_t>(bytes, 44) & 7);
  const auto records = At<int32_t>(bytes, 48);
  if (!SizesCanBe(out->block_bytes, out->file_bytes)) return "its sizes are out of range";
  if (records < 0 || records > kMostRecords) return "its number of access records is out of range";
  out->records = static_cast<size_t>(records);
  out->blocks = Blocks(out->block_bytes, out->file_bytes);
  out->bit_bytes = static_cast<size_t>((out->blocks + 7) / 8);
  return nullptr;
}

Cinfo::Access ReadRecord(std::string_view bytes, size_t offset) {
  Cinfo::Access access;
  access.attach_s = At<int64_t>(bytes, offset);
  access.detach_s = At<int64_t>(bytes, offset + 8);
  access.clients = At<int32_t>(bytes, offset + 16);
  access.duration_s = At<int32_t>(bytes, offset + 20);
  access.times = int64_t{std::max(0, At<int32_t>(bytes, offset + 24))} + 1;
  access.hit = At<int64_t>(bytes, offset + 32);
  access.missed = At<int64_t>(bytes, offset + 40);
  access.bypassed = At<int64_t>(bytes, offset + 48);
  return access;
}

Cinfo::Access ReadRecordV2(std::string_view bytes, size_t offset) {
  Cinfo::Access access;
  access.attach_s = At<int64_t>(bytes, offset);
  access.detach_s = At<int64_t>(bytes, offset + 8);
  access.clients = 1;
  const int64_t open_s = access.detach_s > access.attach_s && access.attach_s > 0 ? access.detach_s - access.attach_s : 0;
  access.duration_s = static_cast<int32_t>(std::min<int64_t>(open_s, INT32_MAX));
  access.times = 1;
  access.hit = At<int64_t>(bytes, offset + 16);
  access.missed = At<int64_t>(bytes, offset + 24);
  access.bypassed = At<int64_t>(bytes, offset + 32);
  return access;
}

// Null, or why not.
const char* ParseOld(std::string_view bytes, int32_t version, Cinfo* out) {
  if (bytes.size() < kOldHead) return "it is cut off";
  *out = Cinfo{};
  out->version = version;
  out->block_bytes = At<int64_t>(bytes, 4);
  out->file_bytes = At<int64_t>(bytes, kSizeAt);
  if (!SizesCanBe(out->block_bytes, out->file_bytes)) return "its sizes are out of range";
  out->blocks = Blocks(out->block_bytes, out->file_bytes);
  const auto bit_bytes = static_cast<size_t>((out->blocks + 7) / 8);
  if (bytes.size() - kOldHead < bit_bytes + kMd5Bytes + sizeof(int64_t)) return "it is cut off";
  const std::string_view bits = bytes.substr(kOldHead, bit_bytes);
  const auto digest = Md5(bits);
  if (std::memcmp(digest.data(), bytes.data() + kOldHead + bit_bytes, digest.size()) != 0) return "the checksum of its blocks is wrong";
  out->blocks_present = CountBits(bits, out->blocks);
  size_t at = kOldHead + bit_bytes + kMd5Bytes;
  out->created_s = At<int64_t>(bytes, at);
  at += sizeof(int64_t);
  if (bytes.size() - at < sizeof(uint64_t)) return nullptr;  // stored, and never opened
  out->accesses = At<uint64_t>(bytes, at);
  const size_t record_bytes = version == 2 ? kRecordBytesV2 : kRecordBytes;
  for (at += sizeof(uint64_t); bytes.size() - at >= record_bytes; at += record_bytes) {
    const Cinfo::Access access = version == 2 ? ReadRecordV2(bytes, at) : ReadRecord(bytes, at);
    if (access.clients <= 0 || access.attach_s < kYear) continue;
    if (access.detach_s != 0 && (access.detach_s < kYear || access.detach_s < access.attach_s)) continue;
    if (out->records.size() == kMostRecords) return "its number of access records is out of range";
    out->records.push_back(access);
  }
  return nullptr;
}

bool IsCount(int64_t n) { return n >= 0 && n <= kLargestCount; }

}  // namespace

bool ParseCinfo(std::string_view bytes, Cinfo* out, std::string* why) {
  const auto refuse = [why](const std::string& text) {
    *why = text;
    return false;
  };
  if (bytes.size() < sizeof(int32_t)) return refuse("it is cut off");
  const auto version = At<int32_t>(bytes, 0);
  if (version == 2 || version == 3) {
    const char* problem = ParseOld(bytes, version, out);
    return problem == nullptr || refuse(problem);
  }
  if (version != kVersion) return refuse("it is of version " + std::to_string(version) + ", where 2 to 4 are known");
  if (bytes.size() < kBitsAt) return refuse("it is cut off");
  Store store{};
  if (const char* problem = ReadStore(bytes, &store)) return refuse(problem);
  const size_t tail = store.bit_bytes + store.records * kRecordBytes;
  // What is longer was shortened by pfc, which does not truncate the file: only its beginning counts.
  if (bytes.size() < kBitsAt + tail + kChecksumBytes) return refuse("it is cut off");
  if (Crc32c(bytes.substr(kBitsAt, tail)) != At<uint32_t>(bytes, kBitsAt + tail))
    return refuse("the checksum of its blocks and access records is wrong");

  out->version = version;
  out->block_bytes = store.block_bytes;
  out->file_bytes = store.file_bytes;
  out->created_s = store.created_s;
  out->no_checksum_s = store.no_checksum_s;
  out->checksums = store.checksums;
  out->accesses = store.accesses;
  out->blocks = store.blocks;
  out->blocks_present = CountBits(bytes.substr(kBitsAt, store.bit_bytes), store.blocks);
  out->records.clear();
  out->records.reserve(store.records);
  for (size_t i = 0; i < store.records; ++i) out->records.push_back(ReadRecord(bytes, kBitsAt + store.bit_bytes + i * kRecordBytes));
  return true;
}

float ReadShare(const Cinfo::Access& access, int64_t file_bytes) {
  if (file_bytes <= 0 || access.detach_s <= 0 || !IsCount(access.hit) || !IsCount(access.missed) || !IsCount(access.bypassed)) return -1;
  const auto read = static_cast<double>(access.hit + access.missed + access.bypassed);
  return static_cast<float>(std::min(4.0, read / static_cast<double>(file_bytes)));
}

CinfoHead ReadCinfoHead(const ReadAt& read) {
  CinfoHead head;
  char buffer[kFirstRead];
  const ssize_t got = read(buffer, 0, sizeof buffer);
  if (got < static_cast<ssize_t>(kOldHead)) return head;
  const std::string_view bytes(buffer, std::min(static_cast<size_t>(got), sizeof buffer));
  const auto version = At<int32_t>(bytes, 0);
  if (version == 2 || version == 3) {
    const auto size = At<int64_t>(bytes, kSizeAt);
    if (size >= 0 && size <= kLargestFile) head.file_bytes = size;
  }
  Store store{};
  if (version != kVersion || bytes.size() < kBitsAt || ReadStore(bytes, &store) != nullptr) return head;
  head.file_bytes = store.file_bytes;
  if (store.records == 0) return head;

  const size_t tail = store.bit_bytes + store.records * kRecordBytes;
  const size_t last = kBitsAt + tail - kRecordBytes;
  char record[kRecordBytes];
  if (kBitsAt + tail + kChecksumBytes <= bytes.size()) {
    if (Crc32c(bytes.substr(kBitsAt, tail)) != At<uint32_t>(bytes, kBitsAt + tail)) return head;
    std::memcpy(record, buffer + last, sizeof record);
  } else if (read(record, static_cast<int64_t>(last), sizeof record) != static_cast<ssize_t>(sizeof record)) {
    return head;
  }
  const Cinfo::Access access = ReadRecord(std::string_view(record, sizeof record), 0);
  head.read_share = ReadShare(access, store.file_bytes);
  return head;
}

}  // namespace smartcache
