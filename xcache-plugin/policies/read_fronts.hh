// Where the files of a dataset are being read now, one after the other: how soon a file's turn comes.
//
// Campaigns read a dataset file by file, and read it again days later in the same order. A front is one such reading: the position it has
// reached, when, and its pace. Positions are those of a group's first requests. A request moves the front that is nearest behind it, at
// most kReach positions; where there is none a new one begins, in the place of the front that has been still for longest.
//
// Cost: a loop over kFronts; 80 bytes a group. Thread-safety: none. No failure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace smartcache {

class ReadFronts {
 public:
  static constexpr size_t kFronts = 4;
  static constexpr uint32_t kReach = 8;

  struct Coming {
    float ahead;   // positions from the front that is nearest behind; all are -1 where there is none
    float still;   // turnovers since it moved
    float pace;    // turnovers a position; -1 where it has not moved yet
    float due;     // ahead * pace - still: when its turn comes
    float moved;   // how many requests have moved it
    float fronts;  // how many are behind
  };

  // A request at a position of the group.
  void Request(uint32_t position, double now);
  Coming Before(uint32_t position, double now) const;

 private:
  struct Front {
    double at = 0;
    uint32_t position = 0;
    uint32_t moved = 0;  // 0, and no request: there is none
    float pace = -1;
    bool is = false;
  };

  std::array<Front, kFronts> fronts_;
};

}  // namespace smartcache
