// One prediction in one call from Go: a call into C costs Go a switch of stacks, so feeding, running and copying out are done together.
#ifndef SMARTCACHE_TF_RUN_H
#define SMARTCACHE_TF_RUN_H

#include <stdint.h>

#include "tensorflow/c/c_api.h"

// The number of values in a row of `out` for one row of zeros, in `out_width`. Returns as smartcache_run.
char* smartcache_out_width(TF_Session* session, TF_Output in, TF_Output out, int64_t width, int64_t* out_width);

// Feeds `rows` x `width` floats to `in` and copies `rows` x `out_width` floats of `out` to `result`. Safe to call from several threads.
// Returns NULL, or what went wrong, which the caller frees; `result` is undefined then.
char* smartcache_run(TF_Session* session, TF_Output in, TF_Output out, const float* values, int64_t rows, int64_t width, float* result,
                     int64_t out_width);

#endif
