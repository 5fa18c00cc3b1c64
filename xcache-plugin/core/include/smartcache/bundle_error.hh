// A model bundle that cannot be used. The text names file, field, rule and value.
#pragma once

#include <stdexcept>

namespace smartcache {

struct BundleError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace smartcache
