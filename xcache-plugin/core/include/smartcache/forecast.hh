// What a model said of a file at its open, with what is needed to judge it as it ages. The pointers are to be there for the call only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace smartcache {

struct Forecast {
  const double* edges_s;
  size_t edges;
  uint32_t id;  // a hash of the edges
  double horizon_s;
  const double* outputs;  // edges + 1
  bool store;             // by its thresholds
};

}  // namespace smartcache
