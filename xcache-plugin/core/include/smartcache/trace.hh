// What may be traced in the server's log besides what an admin must know: nothing, until the configuration names a concern.
// Thread-safe where the sink is. Failure: none.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace smartcache {

enum class Concern : unsigned {
  kDecisions = 1,  // a line for each open
  kModel = 2,      // the model: what is asked in the background, bundles looked at
  kEvictor = 4,    // files removed, and why not
};

const char* NameOf(Concern concern);

// "off", "all", or names of concerns separated by spaces: the sum of them. Nothing for any other text.
std::optional<unsigned> ParseConcerns(std::string_view text);

class Trace {
 public:
  using Sink = std::function<void(Concern, const std::string&)>;

  Trace() = default;
  Trace(unsigned concerns, Sink sink) : concerns_(sink ? concerns : 0), sink_(std::move(sink)) {}

  // Ask before a text is made: an open must not pay for what nobody reads.
  bool On(Concern concern) const { return (concerns_ & static_cast<unsigned>(concern)) != 0; }
  void operator()(Concern concern, const std::string& text) const {
    if (On(concern)) sink_(concern, text);
  }

 private:
  unsigned concerns_ = 0;
  Sink sink_;
};

}  // namespace smartcache
