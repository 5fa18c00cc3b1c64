// A cache's disk in memory: files of so many bytes, with what is in their .cinfo.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "smartcache/disk.hh"

namespace smartcache::testing {

class FakeDisk : public Disk {
 public:
  struct File {
    int64_t bytes, last_us;
    std::string cinfo;
  };

  void Put(const std::string& lfn, File file) {
    const std::lock_guard<std::mutex> lock(mutex_);
    files_[lfn] = std::move(file);
  }
  // As pfc's UnlinkFile answers.
  int Unlink(const std::string& lfn) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (busy_.count(lfn) != 0) return -EBUSY;
    if (files_.erase(lfn) == 0) return -ENOENT;
    removed_.push_back(lfn);
    return 0;
  }
  void Busy(const std::string& lfn) {
    const std::lock_guard<std::mutex> lock(mutex_);
    busy_[lfn] = true;
  }
  void Total(int64_t total, int64_t others = 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    total_ = total;
    others_ = others;
  }
  // Whether its top can be listed.
  void Listed(bool listed) {
    const std::lock_guard<std::mutex> lock(mutex_);
    listed_ = listed;
  }
  std::vector<std::string> removed() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return removed_;
  }
  int walks() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return walks_;
  }

  bool FileSystem(DiskUsage* out) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    *out = {others_, total_};
    for (const auto& [lfn, file] : files_) out->used += file.bytes;
    return total_ > 0;
  }
  bool Walk(const std::function<bool(const DiskFile&)>& each) override {
    std::map<std::string, File> files;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++walks_;
      if (!listed_) return false;
      files = files_;
    }
    for (const auto& [lfn, file] : files)
      if (!each({lfn, file.bytes, file.last_us})) return false;
    return true;
  }
  bool ReadCinfo(const std::string& lfn, std::string* out) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto it = files_.find(lfn);
    if (it == files_.end() || it->second.cinfo.empty()) return false;
    *out = it->second.cinfo;
    return true;
  }

 private:
  mutable std::mutex mutex_;  // guards all below
  std::map<std::string, File> files_;
  std::map<std::string, bool> busy_;
  std::vector<std::string> removed_;
  int64_t total_ = 0, others_ = 0;
  int walks_ = 0;
  bool listed_ = true;
};

}  // namespace smartcache::testing
