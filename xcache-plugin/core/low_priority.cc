#include "smartcache/low_priority.hh"

#include <sys/syscall.h>
#include <unistd.h>

namespace smartcache {

void LowerPriority() noexcept {
  // Linux sets it for the thread that asks. The constants stand in no header of the C library. The processor is left alone: these threads
  // take the lock that opens are decided under, and would hold it while they wait for their turn.
  constexpr int kWhoProcess = 1, kClassBestEffort = 2, kClassShift = 13, kLast = 7;
  ::syscall(SYS_ioprio_set, kWhoProcess, 0, (kClassBestEffort << kClassShift) | kLast);
}

}  // namespace smartcache
