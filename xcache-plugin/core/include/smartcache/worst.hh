// Of all files that are shown to it, those that are worth least, as many as free `bytes`: what a run of the evictor removes.
//
// A heap with the best of them on top: a file that is worth less is taken in, and the best fall out as soon as what is left frees enough.
// So memory goes with what is to be removed, not with what is on disk: never more than `most_files` files. Of two of equal value the one
// accessed longer ago is the worse. O(log n) for a file that is taken in, O(1) for one that is not.
// Thread-safety: none. Failure: std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace smartcache {

struct Candidate {
  double value;
  int64_t last_us;
  int64_t bytes;
  std::string lfn;
};

class Worst {
 public:
  Worst(int64_t bytes, size_t most_files) : needed_(bytes), most_files_(most_files) {}

  void Show(std::string_view lfn, int64_t bytes, double value, int64_t last_us);
  // The worst first. Empties it.
  std::vector<Candidate> Take();
  size_t size() const { return heap_.size(); }
  int64_t bytes() const { return bytes_; }

 private:
  const int64_t needed_;
  const size_t most_files_;
  int64_t bytes_ = 0;
  std::vector<Candidate> heap_;
};

}  // namespace smartcache
