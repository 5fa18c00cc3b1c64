// Where the core says what an admin must know: one line of text each time. Never a line per open. Called from any thread.
#pragma once

#include <functional>
#include <string>

namespace smartcache {

using Log = std::function<void(const std::string&)>;

}  // namespace smartcache
