// From what is known of an open to its answer. Pure: random number, fill and state of the budget come in.
//
//   0. turned off                                  admit, off
//   1. a pattern of always_admit                   admit, rule (over the budget too; it is charged)
//   2. a pattern of never_admit                    bypass, rule (on disk: admit, cached)
//   3. not on disk, over the budget                bypass, budget (no model is asked, nothing explored)
//   4. no model's score                            fallback, the reason why there is none (bypass on disk: admit, cached)
//   5. on disk:  score < evict                     evict, model
//                score >= admit'                   admit, model
//                else                              admit, cached
//      with a portfolio (file_portfolio.hh), which knows the score: on disk: admit, vote where it stores the file, else admit, cached; what
//      is worth least goes when the disk fills. Not on disk as in 6, vote in place of model; guard where LRU decides
//   6. not on disk: with probability e (`explore`) admit or bypass, either with 1/2, explore
//                score >= admit'                   admit, model
//                else                              bypass, model
// Where the embedded copy gave the score in place of the endpoint, the reason why the endpoint did not stands for `model`.
// A file on disk is never answered bypass: pfc would read it over the WAN although it is here. It is not explored either.
// Pressure: admit' = o / (1 + o), o = f(fill) * admit / (1 - admit), with f the polygon through the points of `pressure`, constant outside
// of them; where the fill is unknown or there are no points, f = 1. The odds, so that no factor leads out of 0..1: with a price P of a
// useless byte (admit = P / (1 + P)) a factor of 2 doubles that price. `evict` is the bundle's own: what is on disk has been paid for.
// `probability` is that of the answer given under the whole of it: in 6, 1 - e/2 for what the score says and e/2 for the other; else 1.
// Thread-safe: const. Failure: the constructor throws std::invalid_argument for a bad pattern, which ParseConfig has refused before.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smartcache/answer.hh"
#include "smartcache/config.hh"
#include "smartcache/pattern.hh"

namespace smartcache {

struct Scored {
  double score;         // P(opened again within the horizon)
  double admit, evict;  // the thresholds in use: the bundle's, `admit` under the pressure of now
  Reason reason;        // kModel, or why the source that was asked first did not give it
};

struct Verdict {
  Answer answer;
  Reason reason;
  double probability;
};

class Policy {
 public:
  explicit Policy(PolicyConfig config);

  // Whether a pattern decides alone, so that no model need be asked.
  std::optional<Verdict> ByRule(std::string_view lfn, bool on_disk) const;
  Verdict Off() const { return {Answer::kAdmit, Reason::kOff, 1.0}; }
  Verdict OverBudget() const { return {Answer::kBypass, Reason::kBudget, 1.0}; }
  // The admit threshold of a bundle as it is under this fill; -1 where that is unknown.
  double UnderPressure(double admit, float fill) const;
  Verdict ByScore(const Scored& scored, bool on_disk, double uniform) const;
  // Whether the portfolio stores it, and whether it is LRU that says so.
  Verdict ByVote(bool stores, bool guarded, bool on_disk, double uniform) const;
  Verdict Fallback(Reason why, bool on_disk) const;

 private:
  Verdict Absent(bool wanted, Reason reason, double uniform) const;

  const PolicyConfig config_;
  std::vector<Pattern> always_, never_;
};

}  // namespace smartcache
