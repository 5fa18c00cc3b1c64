// What a rule of the literature would keep of a sequence of requests for whole objects: metadata only, no byte is stored.
//
// The same classes serve the simulator (`smartcache simulate`) and shadows beside a real cache: no XRootD, no clock, nothing random
// (hyperbolic draws from a fixed seed), so the same requests give the same outcome on every machine.
//
// What all rules share:
// - Objects are dense numbers, 0 and up; whoever has names or hashes numbers them once, in front. Tables grow to the highest number seen.
// - Sizes and capacity are bytes. An object larger than the capacity is never stored. Objects of no bytes are stored.
// - A miss makes room first, then stores; what rule bypasses on its own account says so in its header.
// - Where the size of an object changes, the requests count with the size they state, and the stored copy from then on with the new one; if
//   the cache is over its capacity then, it evicts as for a miss (that may be the object itself). libCacheSim 0.3.5 leaves the copy at its
//   first size.
//
// Cost: what a rule's header says; an object known to a rule, stored or not, takes 24 bytes in its table (slots.hh), some rules add to it.
// Thread-safety: none. Failure: std::bad_alloc where a table grows; nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace smartcache {

struct PolicyCounters {
  int64_t requests = 0;
  int64_t hits = 0;
  int64_t bytes = 0;          // requested
  int64_t hit_bytes = 0;      // requested and stored at that time
  int64_t written_bytes = 0;  // stored on a miss
  int64_t deleted_bytes = 0;
  int64_t objects_deleted = 0;
};

class ObjectPolicy {
 public:
  ObjectPolicy() = default;
  ObjectPolicy(const ObjectPolicy&) = delete;
  ObjectPolicy& operator=(const ObjectPolicy&) = delete;
  virtual ~ObjectPolicy() = default;

  // One request. Is the object stored? If not, it is now, unless the rule passes it by. size is never negative.
  virtual bool Request(uint32_t object, int64_t size) = 0;
  // n requests in turn: the same, faster.
  virtual void Replay(const uint32_t* objects, const int64_t* sizes, size_t n) = 0;
  virtual bool Holds(uint32_t object) const = 0;
  // From now on what is removed is appended there too, in its order; whoever reads it empties it. It must outlive the policy.
  virtual void TellRemoved(std::vector<uint32_t>* removed) = 0;

  // Room for objects below this number: until there are more no request pays for a table that grows.
  virtual void Reserve(size_t /*objects*/) {}

  virtual PolicyCounters counters() const = 0;
};

}  // namespace smartcache
