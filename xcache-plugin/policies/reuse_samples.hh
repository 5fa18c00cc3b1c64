// What a model is trained on: rows of features of the past, and whether the object was requested again soon enough.
//
// A ring of the last rows. Each remembers when it was taken and, once its object is requested again, when that was. A row can be learned
// from when it is at least a horizon old: then it is known whether there was a request within the horizon, so no label is a guess.
//
// Cost: O(1) for each row and each request of an object with rows in the ring; `capacity` rows. Thread-safety: none. Failure:
// std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace smartcache {

struct LabelledRows {
  size_t width;
  std::vector<float> rows;     // one after the other
  std::vector<uint8_t> again;  // 1: requested again within the horizon
};

class ReuseSamples {
 public:
  ReuseSamples(size_t capacity, size_t width, size_t objects);

  // A new row of an object, to be filled by the caller.
  float* Add(uint32_t object, double now);
  // The object is requested: its rows that wait have their answer.
  void Request(uint32_t object, double now);

  // Of the rows that are at least `horizon` old, at most so many, drawn by `seed`, in the order of the ring.
  LabelledRows Labelled(double now, double horizon, size_t most, uint64_t seed) const;

 private:
  struct Sample {
    uint32_t object;
    uint32_t next;  // of the same object that waits, or none
    double at;
    double again;  // below `at`: not yet
  };

  const size_t capacity_, width_;
  std::vector<Sample> samples_;
  std::vector<float> rows_;
  std::vector<uint32_t> waiting_;  // of each object: the newest of its rows
  size_t head_ = 0;                // where the next one goes, once the ring is full
};

}  // namespace smartcache
