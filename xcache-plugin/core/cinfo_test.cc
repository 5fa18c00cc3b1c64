#include "smartcache/cinfo.hh"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>

#include "smartcache/crc32c.hh"
#include "smartcache/hash.hh"
#include "smartcache/md5.hh"
#include "testing/cinfo_sample.hh"
#include "testing/fixtures.hh"

namespace smartcache {
namespace {

namespace fs = std::filesystem;
using testing::CinfoSample;

std::string PfcTime(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%y%m%d:%H%M%S", &utc);
  return text;
}

ReadAt From(const std::string& bytes, int* reads = nullptr) {
  return [&bytes, reads](void* buffer, int64_t offset, size_t size) -> ssize_t {
    if (reads) ++*reads;
    if (offset < 0) return -EINVAL;
    const size_t from = std::min(static_cast<size_t>(offset), bytes.size());
    const size_t n = std::min(size, bytes.size() - from);
    std::memcpy(buffer, bytes.data() + from, n);
    return static_cast<ssize_t>(n);
  };
}

// Known values of RFC 3720, B.4.
TEST(Crc32c, IsTheSameByInstructionAndFromTables) {
  std::string bytes;
  for (uint64_t i = 0; i < 300; ++i) {
    for (size_t skip = 0; skip < 8; ++skip) {  // whatever the alignment
      if (skip > bytes.size()) break;
      const std::string_view part = std::string_view(bytes).substr(skip);
      ASSERT_EQ(Crc32c(part, 7), Crc32cFromTables(part, 7)) << part.size();
    }
    bytes += static_cast<char>(Mix(i));
  }
}

TEST(Crc32c, IsTheOneOfTheStandards) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c("456789", Crc32c("123")), 0xe3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
}

// What XRootD's own xrdpfc_print says of files of real caches.
TEST(Cinfo, SaysWhatXrootdItselfSays) {
  const char* given = std::getenv("SMARTCACHE_CAPTURES");
  const fs::path folder = fs::path(given ? given : SMARTCACHE_CAPTURES) / "cinfo";
  if (!fs::exists(folder)) GTEST_SKIP() << "no captures at " << folder;
  int compared = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".cinfo") continue;
    SCOPED_TRACE(entry.path());
    const auto said = nlohmann::json::parse(testing::ReadFile(fs::path(entry.path()).replace_extension(".json")));
    const std::string bytes = testing::ReadFile(entry.path());
    Cinfo cinfo;
    std::string why;
    ASSERT_TRUE(ParseCinfo(bytes, &cinfo, &why)) << why;
    EXPECT_EQ(cinfo.file_bytes, said["file_size"]);
    EXPECT_EQ(cinfo.block_bytes, said["buffer_size"]);
    EXPECT_EQ(cinfo.blocks, said["n_blocks"]);
    EXPECT_EQ(cinfo.accesses, said["n_acc_total"]);
    EXPECT_NEAR(100.0 * static_cast<double>(cinfo.blocks_present) / static_cast<double>(cinfo.blocks),
                said["state_percentage"].get<double>(), 0.01);
    const auto& accesses = said["accesses"];
    ASSERT_EQ(cinfo.records.size(), accesses.size());
    uint64_t times = 0;
    for (size_t i = 0; i < accesses.size(); ++i) {
      const Cinfo::Access& access = cinfo.records[i];
      EXPECT_EQ(access.hit, accesses[i]["B_hit"]);
      EXPECT_EQ(access.missed, accesses[i]["B_miss"]);
      EXPECT_EQ(access.bypassed, accesses[i]["B_bypass"]);
      EXPECT_EQ(access.clients, accesses[i]["n_ios"]);
      EXPECT_EQ(access.times, accesses[i]["n_mrg"].get<int64_t>() + 1);
      EXPECT_EQ(PfcTime(access.attach_s), accesses[i]["attach"]);
      if (access.detach_s != 0) {
        EXPECT_EQ(PfcTime(access.detach_s), accesses[i]["detach"]);
      }
      times += static_cast<uint64_t>(access.times);
    }
    EXPECT_EQ(times, cinfo.accesses);
    const CinfoHead head = ReadCinfoHead(From(bytes));
    EXPECT_EQ(head.file_bytes, cinfo.file_bytes);
    EXPECT_EQ(head.read_share, cinfo.records.empty() ? -1.0f : ReadShare(cinfo.records.back(), cinfo.file_bytes));
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

TEST(Cinfo, ReadsWhatWasWritten) {
  CinfoSample sample;
  sample.file_bytes = 1000001;
  sample.block_bytes = 131072;  // 8 blocks
  sample.bits = {0b00001101};
  sample.records = {{100, 110, 2, 9, 3, 10, 20, 30}, {200, 260, 1, 60, 0, 500000, 250000, 0}};
  Cinfo cinfo;
  std::string why;
  ASSERT_TRUE(ParseCinfo(sample.Bytes(), &cinfo, &why)) << why;
  EXPECT_EQ(cinfo.file_bytes, 1000001);
  EXPECT_EQ(cinfo.blocks, 8);
  EXPECT_EQ(cinfo.blocks_present, 3);
  ASSERT_EQ(cinfo.records.size(), 2u);
  EXPECT_EQ(cinfo.records[0].times, 4);
  EXPECT_EQ(cinfo.records[1].attach_s, 200);
  EXPECT_EQ(cinfo.records[1].missed, 250000);
  const std::string bytes = sample.Bytes();
  int reads = 0;
  const CinfoHead head = ReadCinfoHead(From(bytes, &reads));
  EXPECT_EQ(head.file_bytes, 1000001);
  EXPECT_NEAR(head.read_share, 0.75, 1e-5);
  EXPECT_EQ(reads, 1);
}

TEST(Cinfo, ALargeOneTakesTwoReads) {
  CinfoSample sample;
  sample.file_bytes = INT64_C(20) << 30;
  sample.block_bytes = 131072;
  sample.bits.assign(((INT64_C(20) << 30) / 131072) / 8, 0xff);
  sample.records = {{200, 260, 1, 60, 0, INT64_C(10) << 30, 0, 0}};
  const std::string bytes = sample.Bytes();
  int reads = 0;
  const CinfoHead head = ReadCinfoHead(From(bytes, &reads));
  EXPECT_EQ(reads, 2);
  EXPECT_EQ(head.file_bytes, INT64_C(20) << 30);
  EXPECT_EQ(head.read_share, 0.5f);
}

TEST(Cinfo, WhatCannotBeIsUnknown) {
  CinfoSample sample;
  sample.records = {{200, 0, 1, 60, 0, 1000, 0, 0}};  // never closed: the server was killed
  EXPECT_EQ(ReadCinfoHead(From(sample.Bytes())).read_share, -1);
  sample.records = {{200, 260, 1, 60, 0, -5, 0, 0}};
  EXPECT_EQ(ReadCinfoHead(From(sample.Bytes())).read_share, -1);
  sample.records = {{200, 260, 1, 60, 0, INT64_MAX, INT64_MAX, INT64_MAX}};
  EXPECT_EQ(ReadCinfoHead(From(sample.Bytes())).read_share, -1);
  sample.records = {{200, 260, 1, 60, 0, INT64_C(1) << 50, 0, 0}};
  EXPECT_EQ(ReadCinfoHead(From(sample.Bytes())).read_share, 4);
  sample.records.clear();
  const CinfoHead head = ReadCinfoHead(From(sample.Bytes()));
  EXPECT_EQ(head.read_share, -1);
  EXPECT_EQ(head.file_bytes, sample.file_bytes);
  EXPECT_EQ(ReadCinfoHead([](void*, int64_t, size_t) { return ssize_t{-EIO}; }).file_bytes, -1);
}

std::string Old(int32_t version, const std::string& records, int64_t file_bytes = 1 << 20, const std::string& bits = "\x0f") {
  std::string bytes;
  const auto put = [&bytes](auto value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(version);
  put(int64_t{131072});
  put(file_bytes);
  bytes += bits;
  const auto digest = Md5(bits);
  bytes.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  put(int64_t{1600000000});
  put(uint64_t{7});
  return bytes + records;
}

std::string OldRecord(const std::vector<int64_t>& words) {
  return std::string(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(int64_t));
}

constexpr int64_t Two(int64_t low, int64_t high) { return low | high << 32; }

// RFC 1321, A.5.
TEST(Md5, IsTheOneOfTheStandard) {
  const auto hex = [](std::string_view bytes) {
    std::string text;
    for (const unsigned char byte : Md5(bytes)) {
      char two[3];
      std::snprintf(two, sizeof two, "%02x", byte);
      text += two;
    }
    return text;
  };
  EXPECT_EQ(hex(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(hex("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
  EXPECT_EQ(hex("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"), "d174ab98d277d9f5a5611c2c9f419d9f");
  EXPECT_EQ(hex("12345678901234567890123456789012345678901234567890123456789012345678901234567890"), "57edf4a22be3c955ac49da2e2107b67a");
}

TEST(Cinfo, VersionsOfXrootd4) {
  const int64_t t = 1600000000;
  const std::string three = OldRecord({t, t + 9, Two(2, 5), Two(3, 0), 10, 20, 30}), two = OldRecord({t, t + 9, 10, 20, 30});
  Cinfo cinfo;
  std::string why;
  for (const int32_t version : {2, 3}) {
    const std::string bytes = Old(version, (version == 2 ? two : three) + "rest");
    ASSERT_TRUE(ParseCinfo(bytes, &cinfo, &why)) << why;
    EXPECT_EQ(cinfo.version, version);
    EXPECT_EQ(cinfo.blocks, 8);
    EXPECT_EQ(cinfo.blocks_present, 4);
    EXPECT_EQ(cinfo.created_s, t);
    EXPECT_EQ(cinfo.accesses, 7u);
    ASSERT_EQ(cinfo.records.size(), 1u);
    EXPECT_EQ(cinfo.records[0].detach_s, t + 9);
    EXPECT_EQ(cinfo.records[0].duration_s, version == 2 ? 9 : 5);
    EXPECT_EQ(cinfo.records[0].times, version == 2 ? 1 : 4);
    EXPECT_EQ(cinfo.records[0].bypassed, 30);
    EXPECT_EQ(ReadCinfoHead(From(bytes)).file_bytes, 1 << 20);
    EXPECT_EQ(ReadCinfoHead(From(bytes)).read_share, -1);
    // The number of accesses may be missing, and all else that is cut is refused.
    const size_t head = Old(version, "").size();
    for (size_t n = 4; n < head; ++n) EXPECT_EQ(ParseCinfo(bytes.substr(0, n), &cinfo, &why), n >= head - 8) << n << " bytes";
    for (size_t bit = 20 * 8; bit < (20 + 1 + 16) * 8; ++bit) {
      std::string bad = bytes;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
      EXPECT_FALSE(ParseCinfo(bad, &cinfo, &why)) << "bit " << bit;
    }
  }
  // What pfc passes over: no clients, an open before 1971, a close before the open.
  const std::string bad =
      OldRecord({t, t, Two(0, 5), 0, 1, 2, 3}) + OldRecord({5, 6, 1, 0, 1, 2, 3}) + OldRecord({t, t - 1, 1, 0, 1, 2, 3});
  ASSERT_TRUE(ParseCinfo(Old(3, bad + three), &cinfo, &why)) << why;
  EXPECT_EQ(cinfo.records.size(), 1u);
  EXPECT_FALSE(ParseCinfo(Old(3, "", int64_t{1} << 51), &cinfo, &why));
  EXPECT_FALSE(ParseCinfo(Old(2, "", -1), &cinfo, &why));
}

TEST(Cinfo, EveryFlippedBitAndEveryCutIsRefused) {
  CinfoSample sample;
  sample.records = {{100, 110, 2, 9, 3, 10, 20, 30}, {200, 260, 1, 60, 0, 500, 250, 0}};
  const std::string good = sample.Bytes();
  Cinfo cinfo;
  std::string why;
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(ParseCinfo(bad, &cinfo, &why)) << "bit " << bit;
    ReadCinfoHead(From(bad));
  }
  for (size_t n = 0; n < good.size(); ++n) {
    const std::string cut = good.substr(0, n);
    EXPECT_FALSE(ParseCinfo(cut, &cinfo, &why)) << n << " bytes";
    ReadCinfoHead(From(cut));
  }
}

// With checksums that are right, so that the ranges are what stops them.
TEST(Cinfo, HostileNumbersAreRefused) {
  const auto refused = [](const std::function<void(CinfoSample*)>& spoil) {
    CinfoSample sample;
    spoil(&sample);
    Cinfo cinfo;
    std::string why;
    const bool parsed = ParseCinfo(sample.Bytes(), &cinfo, &why);
    ReadCinfoHead(From(sample.Bytes()));
    return !parsed && !why.empty();
  };
  EXPECT_FALSE(refused([](CinfoSample*) {}));
  for (const int64_t size : {INT64_C(-1), INT64_MIN, INT64_MAX, INT64_C(1) << 51})
    EXPECT_TRUE(refused([&](CinfoSample* sample) { sample->file_bytes = size; })) << size;
  for (const int64_t block : {INT64_C(0), INT64_C(-1), INT64_MIN, INT64_C(1)})
    EXPECT_TRUE(refused([&](CinfoSample* sample) { sample->block_bytes = block; })) << block;
  for (const int32_t n : {-1, INT32_MIN, INT32_MAX, 1, 100000})
    EXPECT_TRUE(refused([&](CinfoSample* sample) { sample->claimed_records = n; })) << n;
}

TEST(Cinfo, AnyBytesAreReadWithoutHarm) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random() % 300, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (i % 2 && bytes.size() >= 4) bytes.replace(0, 4, std::string("\4\0\0\0", 4));
    Cinfo cinfo;
    std::string why;
    EXPECT_FALSE(ParseCinfo(bytes, &cinfo, &why));
    const CinfoHead head = ReadCinfoHead(From(bytes));
    EXPECT_TRUE(head.read_share == -1);
  }
}

}  // namespace
}  // namespace smartcache
