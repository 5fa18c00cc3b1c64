#include "smartcache/policy.hh"

#include <algorithm>

namespace smartcache {
namespace {

bool AnyPrefix(const std::vector<std::string>& prefixes, std::string_view lfn) {
  return std::any_of(prefixes.begin(), prefixes.end(), [lfn](const std::string& prefix) { return lfn.substr(0, prefix.size()) == prefix; });
}

constexpr Verdict kCachedVerdict{Answer::kAdmit, Reason::kCached, 1.0};

}  // namespace

std::optional<Verdict> Policy::ByRule(std::string_view lfn, bool on_disk) const {
  if (AnyPrefix(config_.always_admit, lfn)) return Verdict{Answer::kAdmit, Reason::kRule, 1.0};
  if (!AnyPrefix(config_.never_admit, lfn)) return std::nullopt;
  return on_disk ? kCachedVerdict : Verdict{Answer::kBypass, Reason::kRule, 1.0};
}

Verdict Policy::ByScore(const Scored& scored, bool on_disk, double uniform) const {
  const bool wanted = scored.score >= scored.admit;
  if (on_disk) {
    if (scored.score < scored.evict) return {Answer::kEvict, Reason::kModel, 1.0};
    return wanted ? Verdict{Answer::kAdmit, Reason::kModel, 1.0} : kCachedVerdict;
  }
  // `uniform` in [0, e/2): admit at random; in [e/2, e): bypass at random.
  const double half = config_.explore / 2;
  const bool explored = uniform < config_.explore;
  const bool admit = explored ? uniform < half : wanted;
  return {admit ? Answer::kAdmit : Answer::kBypass, explored ? Reason::kExplore : Reason::kModel, admit == wanted ? 1.0 - half : half};
}

Verdict Policy::Fallback(Reason why, bool on_disk) const {
  if (config_.fallback_admit) return {Answer::kAdmit, why, 1.0};
  return on_disk ? kCachedVerdict : Verdict{Answer::kBypass, why, 1.0};
}

}  // namespace smartcache
