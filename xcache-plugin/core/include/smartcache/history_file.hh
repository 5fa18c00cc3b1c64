// The history as bytes: what the plugin keeps over a restart, and what `Core.save` gives.
//
// Little-endian. A header: magic, version, number of half-lives, a hash of what the entries depend on ([dataset], half-lives), the moment
// (boot_us, seq, time of the last open, touches), number of entries, bytes of an entry, CRC-32C. Then blocks: number of entries (1 to
// 4096), CRC-32C, the entries in no order; a block of 0 entries is the end. An entry is History::Entry without its links, and its counters.
// Exact: what is restored goes on as what was written would have, to the last bit, also in what it forgets; with less memory the entries
// touched longest ago are left out.
// Thread-safety: WriteHistory takes the owner's mutex for each of its steps (a few hundred entries copied) and leaves it while it writes:
// what it writes is the history of one moment all the same (see History, snapshot). Failure: false with the reason in `why`. RestoreHistory
// takes any bytes: what is not a whole history of this configuration is refused, and the history is then empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "smartcache/config.hh"
#include "smartcache/history.hh"

namespace smartcache {

// The moment that a saved history is of: after `seq` opens of the boot.
struct HistoryState {
  int64_t boot_us = 0;
  uint64_t seq = 0;
  int64_t t_us = 0;       // of the last open
  bool scanned = false;   // it also holds what was learnt from the disk, and not from opens
  bool scan_due = false;  // and not all of the disk yet
};

// Takes some bytes; false: it cannot.
using HistorySink = std::function<bool(const void* data, size_t size)>;

// `state` is called under the mutex, at the moment that is written.
bool WriteHistory(const Config& config, History* history, std::mutex* mutex, const std::function<HistoryState()>& state,
                  const HistorySink& sink, std::string* why);

class HistorySource {
 public:
  virtual ~HistorySource() = default;
  // Reads `size` bytes; fewer at the end, or where reading fails.
  virtual size_t Read(void* data, size_t size) = 0;
  // Starts again; false: it cannot.
  virtual bool Rewind() = 0;
};

// `history` is empty. `why` ends the sentence "the file ...".
bool RestoreHistory(HistorySource* source, const Config& config, History* history, HistoryState* state, std::string* why);
bool RestoreHistory(std::string_view bytes, const Config& config, History* history, HistoryState* state, std::string* why);

}  // namespace smartcache
