// From what is known of an open to its answer. Pure: the random number comes in.
//
//   1. prefix in always_admit                      admit, rule
//   2. prefix in never_admit                       bypass, rule (on disk: admit, cached)
//   3. no model's score                            fallback, the reason why there is none (bypass on disk: admit, cached)
//   4. on disk:  score < evict                     evict, model
//                score >= admit                    admit, model
//                else                              admit, cached
//   5. not on disk: with probability e (`explore`) admit or bypass, either with 1/2, explore
//                score >= admit                    admit, model
//                else                              bypass, model
// A file on disk is never answered bypass: pfc would read it over the WAN although it is here. It is not explored either.
// `probability` is that of the answer given under the whole of it: in 5, 1 - e/2 for what the score says and e/2 for the other; else 1.
// Thread-safe: const. Failure: none.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smartcache/answer.hh"
#include "smartcache/config.hh"

namespace smartcache {

struct Scored {
  double score;         // P(opened again within the horizon)
  double admit, evict;  // the thresholds of the bundle that gave it
};

struct Verdict {
  Answer answer;
  Reason reason;
  double probability;
};

class Policy {
 public:
  explicit Policy(PolicyConfig config) : config_(std::move(config)) {}

  // Whether a prefix decides alone, so that no model need be asked.
  std::optional<Verdict> ByRule(std::string_view lfn, bool on_disk) const;
  Verdict ByScore(const Scored& scored, bool on_disk, double uniform) const;
  Verdict Fallback(Reason why, bool on_disk) const;

 private:
  const PolicyConfig config_;
};

}  // namespace smartcache
