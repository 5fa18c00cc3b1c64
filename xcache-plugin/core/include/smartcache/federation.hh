// What the caches of a federation together saw of the dataset of an open: a row of the dataset side table (side_table.hh), as the features
// take it. Thread-safe: values.
#pragma once

#include <cstdint>

namespace smartcache {

struct Federation {
  int64_t until_us = -1;  // when the table was made; -1: there is none, and nothing below says anything
  bool known = false;     // whether the table has the dataset; false: nothing below says anything
  int64_t last_open_us = 0;
  // ln(1 + x) of counts, all but the first over the longest of the table's windows.
  float opens_shortest = 0, opens = 0, files = 0, caches = 0;
  float reopen_share = 0;  // of the opens, shrunk as all shares of the features are
  float part_read = 0;     // bytes read over the sizes of the files opened, 0..1; -1: no size was known
};

}  // namespace smartcache
