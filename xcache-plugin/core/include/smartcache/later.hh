// Work that an open need not wait for, done in its order by a few threads: a bounded queue.
//
// Nobody is woken for each piece of work, since that costs more than most pieces do: one thread looks each kLookEvery and does what came
// meanwhile; the others sleep until they are called, because work comes while nobody looks, or waits behind work that takes long (kLong).
// Where nothing came for kAwake the one sleeps too. Handing work over therefore costs a fraction of a microsecond on a busy server, and a
// piece of work waits kLookEvery, or as long as a piece before it takes. With several threads two pieces may be done at once.
// Where several pieces had better be done together (`at_once`), a thread takes what is there as one, and no other is called meanwhile
// until there are so many again.
// Thread-safe. Failure: Add says where the queue is full. The destructor does what is still there first.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "smartcache/features.hh"

namespace smartcache {

// An open with an LFN of its own.
struct KeptOpen {
  std::string lfn;
  Open open;  // its `lfn` is valid only in the hands of a task
};

class Later {
 public:
  static constexpr std::chrono::milliseconds kLookEvery{10};
  static constexpr std::chrono::milliseconds kAwake{200};
  // A model that is asked over the network; the embedded one answers in a few microseconds.
  static constexpr std::chrono::microseconds kLong{50};

  using Task = std::function<void(const std::vector<KeptOpen>& opens)>;
  // `task` must not throw; it gets up to `at_once()` opens, their `lfn` valid, which is asked each time, with a lock held. `threads` and
  // what `at_once` answers at least 1; without one it is 1.
  Later(Task task, size_t threads, size_t capacity, std::function<size_t()> at_once = {});
  ~Later();
  Later(const Later&) = delete;
  Later& operator=(const Later&) = delete;

  // False where `capacity` opens wait already.
  bool Add(const Open& open);
  // Not done yet, those that are being done included.
  size_t waiting() const;

 private:
  void Run();
  // Takes the next ones; false at the end.
  bool Next(std::unique_lock<std::mutex>* lock, std::vector<KeptOpen>* out);
  size_t AtOnce() const { return at_once_ ? at_once_() : 1; }

  const Task task_;
  const std::function<size_t()> at_once_;
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable called_;
  std::deque<KeptOpen> queue_;
  size_t busy_ = 0;       // opens that are being done
  size_t asleep_ = 0;     // threads
  bool looking_ = false;  // one of them
  bool long_ = true;      // the last piece that was done
  bool stop_ = false;
  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace smartcache
