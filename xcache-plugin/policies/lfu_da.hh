// LFU with dynamic ageing: out goes the lowest of K = uses + L, where K is set at each request of the object and L is the K of what was
// evicted last, so that what was popular once grows old; of equals, what was requested longest ago. M. Arlitt, L. Cherkasova, J. Dilley, R.
// Friedrich, T. Jin, Evaluating content management techniques for web proxy caches, SIGMETRICS Performance Evaluation Review 27(4), 2000.
// (libCacheSim adds L to K at each hit, instead of setting it: its figures differ.) Cost: ranked.hh.
#pragma once

#include <cstdint>
#include <memory>

#include "object_policy.hh"

namespace smartcache {

std::unique_ptr<ObjectPolicy> MakeLfuDa(int64_t capacity);

}  // namespace smartcache
