// W-TinyLFU: new objects enter a window (LRU, 1 % of the bytes); the rest is a segmented LRU of two lists, where a hit moves to the
// protected one (80 % of it) and what that has too much of falls back. When room is needed and the window is full, the end of the window
// competes with the end of the main part: the one that was requested less often lately goes, the newcomer where they are equal. Frequencies
// are halved each time that ten times as many requests were made as objects are stored. As meant here: the frequency of each object is
// counted exactly, up to 15, in its slot, which is there anyhow, in place of the paper's sketch and doorkeeper. An object larger than the
// window competes for itself: with the end of the main part, before it is stored, and is passed by where it loses. (libCacheSim never
// stores those, and ages its sketch by bytes: its figures differ.) G. Einziger, R. Friedman, B. Manes, TinyLFU: a highly efficient cache
// admission policy, ACM Transactions on Storage 13(4), 2017. Cost: O(1) amortised a request; 24 bytes an object.
#pragma once

#include <cstdint>
#include <memory>

#include "object_policy.hh"

namespace smartcache {

std::unique_ptr<ObjectPolicy> MakeWTinyLfu(int64_t capacity);

}  // namespace smartcache
