#include "read_fronts.hh"

#include <algorithm>

namespace smartcache {
namespace {

constexpr float kNewest = 0.25f;  // what the last step counts in the pace

}  // namespace

void ReadFronts::Request(uint32_t position, double now) {
  Front* nearest = nullptr;
  Front* stillest = &fronts_[0];
  for (Front& front : fronts_) {
    if (front.is && front.position <= position && position - front.position <= kReach && (!nearest || front.position > nearest->position))
      nearest = &front;
    if (!front.is || (stillest->is && front.at < stillest->at)) stillest = &front;
  }
  if (!nearest) {
    *stillest = Front{now, position, 0, -1, true};
    return;
  }
  if (const uint32_t steps = position - nearest->position; steps > 0) {
    const auto step = static_cast<float>((now - nearest->at) / steps);
    nearest->pace = nearest->moved == 0 ? step : nearest->pace + kNewest * (step - nearest->pace);
    ++nearest->moved;
  }
  nearest->position = position;
  nearest->at = now;
}

ReadFronts::Coming ReadFronts::Before(uint32_t position, double now) const {
  const Front* nearest = nullptr;
  float behind = 0;
  for (const Front& front : fronts_) {
    if (!front.is || front.position >= position) continue;
    ++behind;
    if (!nearest || front.position > nearest->position) nearest = &front;
  }
  if (!nearest) return {-1, -1, -1, -1, -1, 0};
  const auto ahead = static_cast<float>(position - nearest->position);
  const auto still = static_cast<float>(now - nearest->at);
  const float due = nearest->pace < 0 ? -1 : std::max(0.0f, ahead * nearest->pace - still);
  return {ahead, still, nearest->pace, due, static_cast<float>(nearest->moved), behind};
}

}  // namespace smartcache
