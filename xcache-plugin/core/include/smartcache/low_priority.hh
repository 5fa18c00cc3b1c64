// Makes the calling thread give way to all others of the server on the disk: the last of its class. Not the idle class: under a disk that
// is never idle, a thread in it would never get on. Not on the processor: who holds a lock must not wait behind those that wait for it.
// Failure: none; where the system does not let it, the thread goes on as it was.
#pragma once

namespace smartcache {

void LowerPriority() noexcept;

}  // namespace smartcache
