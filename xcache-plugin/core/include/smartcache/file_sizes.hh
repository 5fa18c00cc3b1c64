// How large a file will be that was never seen: as those of its dataset are on average; else as all are; else as it is told here.
//
// Of the datasets the last 4096 are kept, at the place that their key names. Thread-safety: none. Failure: none.
#pragma once

#include <array>
#include <cstdint>

namespace smartcache {

class FileSizes {
 public:
  explicit FileSizes(int64_t unknown_bytes) : unknown_bytes_(unknown_bytes) {}

  // A file of this dataset is known to be so large.
  void Learn(uint64_t dataset, int64_t size) {
    Mean& mean = datasets_[dataset % datasets_.size()];
    if (mean.key != dataset) mean = Mean{dataset};
    mean.Add(size);
    all_.Add(size);
  }

  // Whether anything is known of any.
  bool known() const { return all_.count > 0; }
  int64_t Expected(uint64_t dataset) const {
    const Mean& mean = datasets_[dataset % datasets_.size()];
    if (mean.key == dataset && mean.count > 0) return static_cast<int64_t>(mean.bytes);
    return all_.count > 0 ? static_cast<int64_t>(all_.bytes) : unknown_bytes_;
  }

 private:
  struct Mean {
    uint64_t key = 0, count = 0;
    double bytes = 0;
    void Add(int64_t size) { bytes += (static_cast<double>(size) - bytes) / static_cast<double>(++count); }
  };

  const int64_t unknown_bytes_;
  Mean all_;
  std::array<Mean, 4096> datasets_{};
};

}  // namespace smartcache
