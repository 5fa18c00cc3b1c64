// A .cinfo of version 4, byte for byte as pfc writes it, with what it claims to order.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "smartcache/crc32c.hh"

namespace smartcache::testing {

struct CinfoSample {
  struct Record {
    int64_t attach_s, detach_s;
    int32_t clients, duration_s, merged;
    int64_t hit, missed, bypassed;
  };

  int64_t block_bytes = 131072, file_bytes = 1 << 20, created_s = 100;
  std::vector<unsigned char> bits = {0xff};
  std::vector<Record> records;
  int32_t claimed_records = -2;  // -2: as many as there are

  std::string Bytes() const {
    uint64_t accesses = 0;
    for (const Record& record : records) accesses += 1 + static_cast<uint64_t>(record.merged);
    std::string store, tail(bits.begin(), bits.end());
    Put(&store, block_bytes);
    Put(&store, file_bytes);
    Put(&store, created_s);
    Put(&store, int64_t{0});
    Put(&store, accesses);
    Put(&store, uint32_t{2});
    Put(&store, claimed_records == -2 ? static_cast<int32_t>(records.size()) : claimed_records);
    for (const Record& record : records) {
      Put(&tail, record.attach_s);
      Put(&tail, record.detach_s);
      Put(&tail, record.clients);
      Put(&tail, record.duration_s);
      Put(&tail, record.merged);
      Put(&tail, int32_t{0});
      Put(&tail, record.hit);
      Put(&tail, record.missed);
      Put(&tail, record.bypassed);
    }
    std::string all;
    Put(&all, int32_t{4});
    all += store;
    Put(&all, Crc32c(store));
    all += tail;
    Put(&all, Crc32c(tail));
    return all;
  }

 private:
  template <typename T>
  static void Put(std::string* out, T value) {
    out->append(reinterpret_cast<const char*>(&value), sizeof value);
  }
};

}  // namespace smartcache::testing
