#include "reuse_features.hh"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace smartcache {
namespace {

constexpr float kUnknown = -1.0f;
constexpr uint32_t kCohort = 16;  // objects that were new one after the other
// Half-lives in turnovers: the longest, and each next a quarter of the one before, so that one power of two gives all.
constexpr double kLongest = 32, kGroupLongest = 8;
constexpr float kPrior = 4;  // requests of which one is a repeated one

float Fourth(float x) { return (x * x) * (x * x); }

// What remains after `age` at each half-life, the longest first.
template <size_t kCount>
std::array<float, kCount> Decays(double age, double longest) {
  std::array<float, kCount> decays;
  decays[0] = std::exp2(static_cast<float>(-age / longest));
  for (size_t i = 1; i < kCount; ++i) decays[i] = Fourth(decays[i - 1]);
  return decays;
}

struct Feature {
  std::string name;
  const char* kind;
};

std::vector<Feature> AllFeatures(size_t gaps, size_t counts, size_t group_counts) {
  constexpr const char *kRecency = "recency", *kFronts = "fronts", *kShadows = "shadows";
  std::vector<Feature> all = {{"size", "size"}, {"age", kRecency}, {"requests", "counts"}, {"lifetime", kRecency}};
  for (size_t i = 0; i < gaps; ++i) all.push_back({"gap_" + std::to_string(i), kRecency});
  for (const char* name : {"gap_mean", "age_to_gap_mean", "age_to_gap_0"}) all.push_back({name, kRecency});
  for (size_t i = 0; i < counts; ++i) all.push_back({"count_" + std::to_string(i), "counts"});
  for (const auto& [group, kind] : {std::pair<std::string, const char*>{"group_", "dataset"}, {"cohort_", "cohort"}}) {
    for (const char* name : {"age", "requests", "again_share", "requests_per_object", "gap"}) all.push_back({group + name, kind});
    for (size_t i = 0; i < group_counts; ++i) all.push_back({group + "count_" + std::to_string(i), kind});
    for (size_t i = 0; i < group_counts; ++i) all.push_back({group + "again_share_" + std::to_string(i), kind});
  }
  for (const char* name : {"ahead", "still", "pace", "due", "moved", "fronts"}) all.push_back({std::string("front_") + name, kFronts});
  all.push_back({"position_share", kFronts});
  all.push_back({"fill", "fill"});
  all.push_back({"after_cohort", "cohort"});
  all.push_back({"vote", kShadows});
  for (size_t i = 0; i < Shadows::kRules; ++i) all.push_back({"held_by_" + std::to_string(i), kShadows});
  return all;
}

}  // namespace

ReuseFeatures::ReuseFeatures(std::vector<uint32_t> groups, const std::vector<std::string>& left_out)
    : objects_(groups.size()), group_of_(std::move(groups)), cohorts_(objects_.size() / kCohort + 1) {
  const auto most = std::max_element(group_of_.begin(), group_of_.end());
  groups_.resize(most == group_of_.end() ? 0 : size_t{*most} + 1);
  fronts_.resize(groups_.size());
  const std::vector<std::string>& kinds = Kinds();
  for (const std::string& kind : left_out)
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
      throw std::invalid_argument("left_out: there is no kind of features \"" + kind.substr(0, 100) + "\"");
  for (size_t i = 0; i < kinds.size(); ++i)
    if (std::find(left_out.begin(), left_out.end(), kinds[i]) != left_out.end()) left_out_.push_back(i);
}

const std::vector<std::string>& ReuseFeatures::Names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (Feature& each : AllFeatures(kGaps, kDecays, kGroupDecays)) all.push_back(std::move(each.name));
    return all;
  }();
  return names;
}

const std::vector<std::string>& ReuseFeatures::Kinds() {
  static const std::vector<std::string> kinds = [] {
    std::vector<std::string> all;
    for (const Feature& each : AllFeatures(kGaps, kDecays, kGroupDecays)) all.emplace_back(each.kind);
    return all;
  }();
  return kinds;
}

void ReuseFeatures::Request(uint32_t object, int64_t size, double now) {
  Object& it = objects_[object];
  const bool again = it.requests > 0;
  if (again) {
    const double age = now - it.last;
    std::copy_backward(it.gaps.begin(), it.gaps.end() - 1, it.gaps.end());
    it.gaps[0] = static_cast<float>(age);
    const auto decays = Decays<kDecays>(age, kLongest);
    for (size_t i = 0; i < kDecays; ++i) it.counts[i] *= decays[i];
  } else {
    it.first = now;
    it.cohort = first_seen_++ / kCohort;
    it.position = groups_[group_of_[object]].objects;
    it.gaps.fill(kUnknown);
  }
  for (float& count : it.counts) count += 1;
  ++it.requests;
  it.last = now;
  it.size = size;
  Touch(&groups_[group_of_[object]], again, now);
  fronts_[group_of_[object]].Request(it.position, now);
  Touch(&cohorts_[it.cohort], again, now);
}

void ReuseFeatures::Touch(Group* group, bool again, double now) {
  if (group->requests > 0) {
    const double age = now - group->last;
    group->gap = static_cast<float>(age);
    const auto decays = Decays<kGroupDecays>(age, kGroupLongest);
    for (size_t i = 0; i < kGroupDecays; ++i) {
      group->counts[i] *= decays[i];
      group->again_counts[i] *= decays[i];
    }
  } else {
    group->first = now;
    group->gap = kUnknown;
  }
  for (size_t i = 0; i < kGroupDecays; ++i) {
    group->counts[i] += 1;
    group->again_counts[i] += again ? 1.0f : 0.0f;
  }
  ++group->requests;
  group->again += again ? 1 : 0;
  group->objects += again ? 0 : 1;
  group->last = now;
}

void ReuseFeatures::Row(uint32_t object, double now, const Beside& beside, float* row) const {
  float* const first = row;
  const Object& it = objects_[object];
  const auto age = static_cast<float>(now - it.last);
  const bool again = it.requests > 1;
  const float mean = again ? static_cast<float>((it.last - it.first) / (it.requests - 1)) : kUnknown;
  const auto ratio = [&](float gap) { return again ? age / (gap + 1e-6f) : kUnknown; };
  *row++ = static_cast<float>(it.size);
  *row++ = age;
  *row++ = static_cast<float>(it.requests);
  *row++ = static_cast<float>(now - it.first);
  row = std::copy(it.gaps.begin(), it.gaps.end(), row);
  *row++ = mean;
  *row++ = ratio(mean);
  *row++ = ratio(it.gaps[0]);
  const auto decays = Decays<kDecays>(static_cast<double>(age), kLongest);
  for (size_t i = 0; i < kDecays; ++i) *row++ = it.counts[i] * decays[i];
  row = Append(groups_[group_of_[object]], now, row);
  const Group& cohort = cohorts_[it.cohort];
  row = Append(cohort, now, row);
  const ReadFronts::Coming coming = fronts_[group_of_[object]].Before(it.position, now);
  for (const float each : {coming.ahead, coming.still, coming.pace, coming.due, coming.moved, coming.fronts}) *row++ = each;
  *row++ = static_cast<float>(it.position + 1) / static_cast<float>(groups_[group_of_[object]].objects);
  *row++ = static_cast<float>(beside.fill);
  *row++ = static_cast<float>(it.first - cohort.first);
  *row++ = static_cast<float>(beside.vote);
  for (size_t i = 0; i < Shadows::kRules; ++i) *row++ = (beside.held_by >> i & 1) != 0 ? 1.0f : 0.0f;
  for (const size_t i : left_out_) first[i] = kUnknown;
}

float* ReuseFeatures::Append(const Group& group, double now, float* row) {
  const double age = now - group.last;
  *row++ = static_cast<float>(age);
  *row++ = static_cast<float>(group.requests);
  *row++ = (static_cast<float>(group.again) + 1) / (static_cast<float>(group.requests) + kPrior);
  *row++ = static_cast<float>(group.requests) / static_cast<float>(group.objects);
  *row++ = group.gap;
  const auto decays = Decays<kGroupDecays>(age, kGroupLongest);
  for (size_t i = 0; i < kGroupDecays; ++i) *row++ = group.counts[i] * decays[i];
  for (size_t i = 0; i < kGroupDecays; ++i) *row++ = (group.again_counts[i] * decays[i] + 1) / (group.counts[i] * decays[i] + kPrior);
  return row;
}

}  // namespace smartcache
