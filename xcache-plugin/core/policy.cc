#include "smartcache/policy.hh"

#include <algorithm>
#include <iterator>
#include <utility>

namespace smartcache {
namespace {

std::vector<Pattern> Compiled(const std::vector<std::string>& texts) {
  std::vector<Pattern> patterns;
  for (const std::string& text : texts) patterns.emplace_back(text);
  return patterns;
}

bool Any(const std::vector<Pattern>& patterns, std::string_view lfn) {
  return std::any_of(patterns.begin(), patterns.end(), [lfn](const Pattern& each) { return each.Matches(lfn); });
}

constexpr Verdict kCachedVerdict{Answer::kAdmit, Reason::kCached, 1.0};

}  // namespace

Policy::Policy(PolicyConfig config)
    : config_(std::move(config)), always_(Compiled(config_.always_admit)), never_(Compiled(config_.never_admit)) {}

std::optional<Verdict> Policy::ByRule(std::string_view lfn, bool on_disk) const {
  if (Any(always_, lfn)) return Verdict{Answer::kAdmit, Reason::kRule, 1.0};
  if (!Any(never_, lfn)) return std::nullopt;
  return on_disk ? kCachedVerdict : Verdict{Answer::kBypass, Reason::kRule, 1.0};
}

double Policy::UnderPressure(double admit, float fill) const {
  const std::vector<PressurePoint>& points = config_.pressure;
  if (points.empty() || !(fill >= 0)) return admit;
  const auto above = std::find_if(points.begin(), points.end(), [fill](const PressurePoint& each) { return each.fill > fill; });
  double factor = 1;
  if (above == points.begin()) {
    factor = points.front().factor;
  } else if (above == points.end()) {
    factor = points.back().factor;
  } else {
    const PressurePoint& below = *std::prev(above);
    factor = below.factor + (above->factor - below.factor) * (fill - below.fill) / (above->fill - below.fill);
  }
  // o / (1 + o) without the division by 1 - admit, which may be 0.
  return factor == 1 ? admit : factor * admit / (factor * admit + (1 - admit));
}

Verdict Policy::ByScore(const Scored& scored, bool on_disk, double uniform) const {
  const bool wanted = scored.score >= scored.admit;
  if (on_disk) {
    if (scored.score < scored.evict) return {Answer::kEvict, scored.reason, 1.0};
    return wanted ? Verdict{Answer::kAdmit, scored.reason, 1.0} : kCachedVerdict;
  }
  return Absent(wanted, scored.reason, uniform);
}

Verdict Policy::ByVote(bool stores, bool guarded, bool on_disk, double uniform) const {
  const Reason reason = guarded ? Reason::kGuard : Reason::kVote;
  if (on_disk) return stores ? Verdict{Answer::kAdmit, reason, 1.0} : kCachedVerdict;
  return Absent(stores, reason, uniform);
}

// A file that is not on disk, and whether it should be.
Verdict Policy::Absent(bool wanted, Reason reason, double uniform) const {
  // `uniform` in [0, e/2): admit at random; in [e/2, e): bypass at random.
  const double half = config_.explore / 2;
  const bool explored = uniform < config_.explore;
  const bool admit = explored ? uniform < half : wanted;
  return {admit ? Answer::kAdmit : Answer::kBypass, explored ? Reason::kExplore : reason, admit == wanted ? 1.0 - half : half};
}

Verdict Policy::Fallback(Reason why, bool on_disk) const {
  if (config_.fallback_admit) return {Answer::kAdmit, why, 1.0};
  return on_disk ? kCachedVerdict : Verdict{Answer::kBypass, why, 1.0};
}

}  // namespace smartcache
