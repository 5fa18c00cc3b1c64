#include "policies.hh"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "arc.hh"
#include "belady.hh"
#include "fifo.hh"
#include "gdsf.hh"
#include "hyperbolic.hh"
#include "lfu.hh"
#include "lfu_da.hh"
#include "lirs.hh"
#include "lru.hh"
#include "portfolio.hh"
#include "s3_fifo.hh"
#include "scdl.hh"
#include "sieve.hh"
#include "slru.hh"
#include "uses.hh"
#include "w_tiny_lfu.hh"

namespace smartcache {
namespace {

using Make = std::unique_ptr<ObjectPolicy> (*)(int64_t capacity, uint64_t seed);

template <auto kMake>
std::unique_ptr<ObjectPolicy> Plain(int64_t capacity, uint64_t /*seed*/) {
  return kMake(capacity);
}

constexpr std::string_view kBelady = "belady";

const std::vector<std::pair<std::string, Make>>& Rules() {
  static const std::vector<std::pair<std::string, Make>> rules = {
      {"lru", Plain<MakeLru>},      {"fifo", Plain<MakeFifo>},           {"lfu", Plain<MakeLfu>},
      {"lfu-da", Plain<MakeLfuDa>}, {"gdsf", Plain<MakeGdsf>},           {"s3-fifo", Plain<MakeS3Fifo>},
      {"sieve", Plain<MakeSieve>},  {"slru", Plain<MakeSlru>},           {"arc", Plain<MakeArc>},
      {"lirs", Plain<MakeLirs>},    {"w-tinylfu", Plain<MakeWTinyLfu>},  {"hyperbolic", MakeHyperbolic},
      {"scdl", MakeScdl},           {"portfolio", Plain<MakePortfolio>},
  };
  return rules;
}

// Insertions, deletions and replacements from one to the other.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string Listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

[[noreturn]] void Unknown(std::string_view name, std::string_view rule) {
  std::vector<std::string> near;
  for (const std::string& each : PolicyNames())
    if (Distance(rule, each) <= 2 || (rule.size() >= 3 && each.find(rule) != std::string::npos)) near.push_back(each);
  throw std::invalid_argument("policy: must be one of " + Listed(PolicyNames()) + ", alone or behind uses2+ to uses9+, is \"" +
                              std::string(name.substr(0, 100)) + "\"" + (near.empty() ? "" : "; did you mean " + Listed(near) + "?"));
}

std::invalid_argument Wrong(const std::string& what) { return std::invalid_argument(what); }

PolicyCounters Minus(const PolicyCounters& a, const PolicyCounters& b) {
  return {a.requests - b.requests,
          a.hits - b.hits,
          a.bytes - b.bytes,
          a.hit_bytes - b.hit_bytes,
          a.written_bytes - b.written_bytes,
          a.deleted_bytes - b.deleted_bytes,
          a.objects_deleted - b.objects_deleted};
}

// The bound on ids keeps one stray id from making tables of gigabytes.
void Check(const Trace& trace) {
  if (trace.n >= std::numeric_limits<uint32_t>::max())
    throw Wrong("objects: must be fewer than 2^32 - 1 requests, are " + std::to_string(trace.n) + "; simulate parts of the trace");
  int64_t sum = 0;
  for (size_t i = 0; i < trace.n; ++i) {
    if (trace.objects[i] >= trace.n)
      throw Wrong("objects[" + std::to_string(i) + "]: must be dense ids from 0, so below the number of requests, " +
                  std::to_string(trace.n) + ", is " + std::to_string(trace.objects[i]) + "; number the objects by first appearance");
    if (trace.sizes[i] < 0)
      throw Wrong("sizes[" + std::to_string(i) + "]: must not be negative, is " + std::to_string(trace.sizes[i]) +
                  "; leave out or mend the row");
    if (__builtin_add_overflow(sum, trace.sizes[i], &sum))
      throw Wrong("sizes: must sum to less than 2^63 bytes, pass it at sizes[" + std::to_string(i) +
                  "] = " + std::to_string(trace.sizes[i]) + "; leave out or mend the row");
  }
}

}  // namespace

const std::vector<std::string>& PolicyNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& rule : Rules()) all.push_back(rule.first);
    all.emplace_back(kBelady);
    return all;
  }();
  return names;
}

std::unique_ptr<ObjectPolicy> MakePolicy(std::string_view name, int64_t capacity, const Trace* future, uint64_t seed) {
  if (capacity <= 0) throw Wrong("capacity: must be above 0 bytes, is " + std::to_string(capacity) + "; give the size of the cache");
  std::string_view rule = name;
  uint32_t uses = 1;
  if (rule.substr(0, 4) == "uses" && rule.size() > 6 && rule[4] >= '2' && rule[4] <= '0' + static_cast<char>(kMostUses) && rule[5] == '+') {
    uses = static_cast<uint32_t>(rule[4] - '0');
    rule.remove_prefix(6);
  }
  if (rule == kBelady) {
    if (uses > 1)
      throw Wrong("policy: belady takes no admission, it knows the future, is \"" + std::string(name) + "\"; leave the prefix out");
    if (!future) throw Wrong("policy: belady needs the whole trace beforehand; use it where the trace is simulated");
    return MakeBelady(capacity, future->objects, future->n);
  }
  for (const auto& [known, make] : Rules())
    if (known == rule) return uses > 1 ? MakeUses(capacity, uses, make(capacity, seed)) : make(capacity, seed);
  Unknown(name, rule);
}

std::vector<PolicyCounters> SimulateObjects(std::string_view name, const Trace& trace, int64_t capacity, int64_t windows, uint64_t seed) {
  if (windows < 1 || static_cast<size_t>(windows) > std::max<size_t>(trace.n, 1))
    throw Wrong("windows: must be 1 to the number of requests, " + std::to_string(trace.n) + ", is " + std::to_string(windows) +
                "; ask for fewer");
  Check(trace);
  const std::unique_ptr<ObjectPolicy> policy = MakePolicy(name, capacity, &trace, seed);
  const auto parts = static_cast<size_t>(windows);
  std::vector<PolicyCounters> result(parts);
  PolicyCounters before;
  size_t done = 0;
  for (size_t w = 0; w < parts; ++w) {
    // Without a product that could pass 64 bits: trace.n and parts are below 2^32.
    const size_t end = trace.n * (w + 1) / parts;
    policy->Replay(trace.objects + done, trace.sizes + done, end - done);
    done = end;
    const PolicyCounters now = policy->counters();
    result[w] = Minus(now, before);
    before = now;
  }
  return result;
}

}  // namespace smartcache
