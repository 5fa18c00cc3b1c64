// S3-FIFO: three queues. New objects enter a small one (a tenth of the bytes); at its end, what was requested at least twice there moves to
// the main queue, the rest leaves the cache and is remembered in a ghost queue (nine tenths of the capacity in bytes). What is requested
// while a ghost enters the main queue at once. At the end of the main queue, what was requested since goes round again, with one of at most
// three such requests used up. Until something was evicted, new objects go on into the main queue when the small one is full. An object not
// smaller than the small queue is never stored. All this as in libCacheSim, whose defaults these are. J. Yang, Y. Zhang, Z. Qiu, Y. Yue, K.
// V. Rashmi, FIFO queues are all you need for cache eviction, SOSP 2023. Cost: O(1) amortised a request; 24 bytes an object.
#pragma once

#include <cstdint>
#include <memory>

#include "object_policy.hh"

namespace smartcache {

std::unique_ptr<ObjectPolicy> MakeS3Fifo(int64_t capacity);

}  // namespace smartcache
