// 64-bit FNV-1a: the identity of files, datasets and tokens, and the hash of the feature schema. The same on every machine and in every
// run: no seed. Among a million files two share a hash with a probability of about 3e-8; they would then share one history.
#pragma once

#include <cstdint>
#include <string_view>

namespace smartcache {

constexpr uint64_t kFnvBasis = 14695981039346656037ull;

constexpr uint64_t FnvByte(uint64_t hash, unsigned char byte) { return (hash ^ byte) * 1099511628211ull; }

constexpr uint64_t Fnv(std::string_view text, uint64_t hash = kFnvBasis) {
  for (const char c : text) hash = FnvByte(hash, static_cast<unsigned char>(c));
  return hash;
}

// Spreads all bits over all bits (the finaliser of splitmix64): FNV's low bits alone are weak for short texts.
constexpr uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace smartcache
