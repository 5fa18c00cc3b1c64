#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Runs; where that goes well `*output` is what came out, float32 of two dimensions of which the first is `rows`, and the caller deletes it.
static char* run(TF_Session* session, TF_Output in, TF_Output out, const float* values, int64_t rows, int64_t width, TF_Tensor** output) {
  const int64_t dims[2] = {rows, width};
  const size_t bytes = (size_t)(rows * width) * sizeof(float);
  TF_Tensor* input = TF_AllocateTensor(TF_FLOAT, dims, 2, bytes);
  if (input == NULL) return strdup("no memory for the input");
  memcpy(TF_TensorData(input), values, bytes);

  char* problem = NULL;
  TF_Status* status = TF_NewStatus();
  TF_SessionRun(session, NULL, &in, &input, 1, &out, output, 1, NULL, 0, NULL, status);
  if (TF_GetCode(status) != TF_OK) {
    problem = strdup(TF_Message(status));
  } else if (TF_TensorType(*output) != TF_FLOAT || TF_NumDims(*output) != 2 || TF_Dim(*output, 0) != rows) {
    char text[128];
    snprintf(text, sizeof text, "the output is not float32 of two dimensions, of which the first is %lld", (long long)rows);
    problem = strdup(text);
    TF_DeleteTensor(*output);
  }
  TF_DeleteStatus(status);
  TF_DeleteTensor(input);
  return problem;
}

char* smartcache_out_width(TF_Session* session, TF_Output in, TF_Output out, int64_t width, int64_t* out_width) {
  float* zeros = calloc((size_t)width, sizeof(float));
  if (zeros == NULL) return strdup("no memory for the input");
  TF_Tensor* output = NULL;
  char* problem = run(session, in, out, zeros, 1, width, &output);
  if (problem == NULL) {
    *out_width = TF_Dim(output, 1);
    TF_DeleteTensor(output);
  }
  free(zeros);
  return problem;
}

char* smartcache_run(TF_Session* session, TF_Output in, TF_Output out, const float* values, int64_t rows, int64_t width, float* result,
                     int64_t out_width) {
  TF_Tensor* output = NULL;
  char* problem = run(session, in, out, values, rows, width, &output);
  if (problem != NULL) return problem;
  if (TF_Dim(output, 1) != out_width) {
    char text[128];
    snprintf(text, sizeof text, "the output is not float32 of shape [%lld, %lld]", (long long)rows, (long long)out_width);
    problem = strdup(text);
  } else {
    memcpy(result, TF_TensorData(output), (size_t)(rows * out_width) * sizeof(float));
  }
  TF_DeleteTensor(output);
  return problem;
}
