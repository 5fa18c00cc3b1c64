// A portfolio of caches, followed as far as each earns it, with LRU as the bound of the loss.
//
// Shadows vote (shadows.hh): nine simple rules and, where asked for, a cache that follows a model (learned.hh). A miss evicts what has the
// lowest vote (of equals, what was requested longest ago) until the new object fits, and passes the new one by where the next victim has
// the higher vote. Guard: where the bytes missed from the beginning exceed those of the LRU shadow by more than 2 % (and 0.01 C), and the
// loss of the cache itself is above LRU's, plain LRU decides; until they exceed it by less than 0.25 %, or the loss of the shadows that
// are followed is more than 2 % below LRU's. Without the last, a debt from one bad hour keeps LRU for days that others would win.
//
// Cost: the shadows', and a heap operation for each stored object that a shadow lets go of: O(log n). 24 bytes an object, and up to 8 heap
// entries of 16 bytes for one that is stored, those out of date included, beside the shadows'.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "learned.hh"
#include "object_policy.hh"
#include "shadows.hh"

namespace smartcache {

class Portfolio : public ObjectPolicy {
 public:
  // What all shadows say of an object together, 0 to 1: the lowest goes first.
  virtual double vote(uint32_t object) const = 0;
  // Plain LRU decides now.
  virtual bool guarded() const = 0;

  // What it has come to besides what it holds: its losses, decayed and whole.
  struct Losses {
    double own = 0;
    int64_t missed_bytes = 0;
    bool guarded = false;
  };
  virtual Losses losses() const = 0;
  virtual void Restore(const Losses& losses) = 0;

  // Drops heap entries that are out of date, where most are: O(n log n) now and then. `Request` does it by itself unless it is left to
  // whoever calls this, who has time for it.
  virtual void Tidy() = 0;
};

// The simple rules alone.
std::unique_ptr<ObjectPolicy> MakePortfolio(int64_t capacity);

// On shadows that somebody else owns, who must let nobody join them any more and outlive it. `tidies`: whether Request does.
std::unique_ptr<Portfolio> Follow(int64_t capacity, Shadows* shadows, bool tidies = true);

// The simple rules and a model, which is trained and handed over from outside.
struct LearnedPortfolio {
  // `groups`: see LearnedCache; objects must be below its length.
  LearnedPortfolio(int64_t capacity, std::vector<uint32_t> groups, const LearnedOptions& options = {});

  Shadows shadows;
  LearnedCache* learned;  // what has joined the shadows
  std::unique_ptr<ObjectPolicy> cache;
};

}  // namespace smartcache
