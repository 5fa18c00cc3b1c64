// What is stored, in no order, and room made in it at the cost of the worst of some that are drawn.
//
// A miss evicts among candidates: the worst that were kept from the last time, and others drawn at random. The lowest worth goes first, of
// equals who was requested longest ago; where the new object is worth less than every candidate, it is passed by.
//
// K. Psounis, B. Prabhakar, A randomized web-cache replacement scheme (INFOCOM 2001): of N drawn the worst go, and the next worst are kept
// for the next time. Passing by is ours.
// Cost: a judgement for each candidate. 8 bytes an object. Thread-safety: none. Failure: std::bad_alloc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "slots.hh"

namespace smartcache {

class Candidates {
 public:
  struct Judged {
    double worth;
    double last;  // when it was requested last, on any clock
    uint32_t object;
  };

  // `most` of an eviction, and of them `kept` for the next.
  Candidates(int64_t capacity, size_t most, size_t kept, uint64_t seed)
      : capacity_(capacity), most_(most), kept_most_(kept), random_(seed * 0x9e3779b97f4a7c15ull + 1) {}

  void Reserve(size_t objects) {
    if (objects > place_.size()) place_.resize(objects, kNone);
  }
  bool Holds(uint32_t object) const { return object < place_.size() && place_[object] != kNone; }
  bool empty() const { return stored_.empty(); }
  int64_t used() const { return used_; }
  bool over() const { return used_ > capacity_; }

  void Store(uint32_t object, int64_t size) {
    if (object >= place_.size()) Reserve(std::max<size_t>(size_t{object} + 1, place_.size() * 2));
    place_[object] = static_cast<uint32_t>(stored_.size());
    stored_.push_back(object);
    used_ += size;
  }
  // What is stored has become larger by this.
  void Grow(int64_t bytes) { used_ += bytes; }
  // One of them, at random.
  uint32_t Draw() { return stored_[Random() % stored_.size()]; }

  // Until `size` more bytes fit: `judge` gives an object's Judged, `removed` is told who goes and gives the bytes that it had. False where
  // the new one is passed by. kNone: there is none.
  template <class Judge, class Removed>
  bool MakeRoom(uint32_t object, int64_t size, const Judge& judge, const Removed& removed) {
    while (used_ > capacity_ - size) {
      DrawAll(object, judge);
      const bool passed_by = object != kNone && judge(object).worth < drawn_.front().worth;
      // A part of them at most: of those drawn anew some may be worse than the rest of these.
      const size_t most = passed_by ? 0 : std::max<size_t>(1, drawn_.size() / 4);
      size_t next = 0;
      for (; next < most && used_ > capacity_ - size; ++next) {
        Leave(drawn_[next].object);
        used_ -= removed(drawn_[next].object);
      }
      kept_.clear();
      for (; next < drawn_.size() && kept_.size() < kept_most_; ++next) kept_.push_back(drawn_[next].object);
      if (passed_by) return false;
    }
    return true;
  }

 private:
  template <class Judge>
  void DrawAll(uint32_t object, const Judge& judge) {
    drawn_.clear();
    for (const uint32_t each : kept_)
      if (Holds(each) && each != object) drawn_.push_back(judge(each));
    const size_t most = std::min(most_, stored_.size());
    while (drawn_.size() < most) drawn_.push_back(judge(Draw()));
    std::sort(drawn_.begin(), drawn_.end(), [](const Judged& a, const Judged& b) {
      if (a.worth != b.worth) return a.worth < b.worth;
      return a.last != b.last ? a.last < b.last : a.object < b.object;
    });
    // Drawn twice, an object has the same worth both times.
    drawn_.erase(std::unique(drawn_.begin(), drawn_.end(), [](const Judged& a, const Judged& b) { return a.object == b.object; }),
                 drawn_.end());
  }

  void Leave(uint32_t object) {
    const uint32_t at = place_[object];
    stored_[at] = stored_.back();
    place_[stored_[at]] = at;
    stored_.pop_back();
    place_[object] = kNone;
  }

  // xorshift64: G. Marsaglia, Xorshift RNGs (2003).
  uint64_t Random() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return random_;
  }

  const int64_t capacity_;
  const size_t most_, kept_most_;
  std::vector<uint32_t> stored_;  // in no order
  std::vector<uint32_t> place_;   // of each object, where it is in it
  std::vector<uint32_t> kept_;
  std::vector<Judged> drawn_;
  int64_t used_ = 0;
  uint64_t random_;
};

}  // namespace smartcache
