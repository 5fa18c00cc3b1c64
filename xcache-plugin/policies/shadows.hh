// Full metadata caches (shadows) beside a real one: what each would hold, what each would have lost, and so how much each has to say.
//
// Nine simple rules: LRU, S3-FIFO, LIRS, ARC, LFU-DA, hyperbolic, SLRU, and LIRS and SLRU that store at the second use. Which of them is
// best differs by trace and by size, and cannot be known beforehand. One more may join them, a cache that follows a model. Each is fed with
// every request.
//
// Loss, on the clock of requested bytes: M <- M exp(-s / (t C)) + s (missed + l stored) for a request of s bytes, C the capacity, t = 10
// turnovers, l = 0.03: a miss, and a little for what it writes to the disk. How much each has to say, anew each 64 requests: votes.hh. LRU
// has a start of 1 %: it is what a site has anyway, and who is ahead of it by less may be behind tomorrow. So has who joins: a model gets
// better as it learns, and its past says too little of it.
//
// Cost: the caches' (a virtual call for each a request); 2 bytes an object beside theirs. Thread-safety: none. Failure: std::bad_alloc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "object_policy.hh"
#include "votes.hh"

namespace smartcache {

class Shadows {
 public:
  using Mask = Votes::Mask;
  static constexpr size_t kRules = 9, kLru = 0;
  // Where one more has joined, this is it.
  static constexpr size_t kJoined = kRules;

  explicit Shadows(int64_t capacity);
  Shadows(const Shadows&) = delete;
  Shadows& operator=(const Shadows&) = delete;

  // One more, before the first request. It gets each request after the rules, and may look at what they hold and say.
  void Join(std::unique_ptr<ObjectPolicy> expert);

  // Room for objects below this number: see ObjectPolicy.
  void Reserve(size_t objects);

  // One request, to all. What some of them have let go of, other than this object, is appended to `changed`; an object may be there twice.
  void Request(uint32_t object, int64_t size, std::vector<uint32_t>* changed);

  // Who holds it, and what all of them say of it together.
  Mask mask(uint32_t object) const { return object < masks_.size() ? masks_[object] : Mask{0}; }
  double vote(Mask mask) const { return all_.vote(mask); }
  size_t masks() const { return all_.masks(); }
  // The rules alone.
  Mask rules_mask(uint32_t object) const { return mask(object) & ((1u << kRules) - 1); }
  double rules_vote(Mask rules_mask) const { return rules_.vote(rules_mask); }

  size_t count() const { return shadows_.size(); }
  static const char* Name(size_t shadow);
  double loss(size_t shadow) const { return losses_[shadow]; }
  // As they were told before a restart, one number each; who has most to say is known at once.
  void Restore(const std::vector<double>& losses, int64_t lru_missed_bytes);
  double weight(size_t shadow) const { return all_.weight(shadow); }
  // Of all, as they are followed now.
  double expected_loss() const { return all_.Expected(losses_); }
  int64_t lru_missed_bytes() const { return lru_missed_bytes_; }

  // What LRU has let go of at the last request.
  const std::vector<uint32_t>& lru_removed() const { return lru_removed_; }

  // The loss of another cache on the same requests, after the last one: `*loss` decays as those of the shadows do.
  void Charge(double* loss, int64_t size, bool hit, bool stored) const { *loss = *loss * decay_ + Loss(size, hit, stored); }

 private:
  static double Loss(int64_t size, bool hit, bool stored);
  void Add(std::unique_ptr<ObjectPolicy> shadow);

  const int64_t capacity_;
  std::vector<std::unique_ptr<ObjectPolicy>> shadows_;
  std::vector<uint32_t> removed_, lru_removed_;  // by one of them, at the last request
  std::vector<double> losses_;
  Votes rules_, all_;
  std::vector<Mask> masks_;
  double decay_ = 1;
  int64_t lru_missed_bytes_ = 0;
  uint64_t requests_ = 0;
};

}  // namespace smartcache
