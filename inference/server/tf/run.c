#include "run.h"

#include <stdio.h>
#include <string.h>

char* smartcache_run(TF_Session* session, TF_Output in, TF_Output out, const float* values, int64_t rows, int64_t width, float* result,
                     int64_t out_width) {
  const int64_t dims[2] = {rows, width};
  const size_t bytes = (size_t)(rows * width) * sizeof(float);
  TF_Tensor* input = TF_AllocateTensor(TF_FLOAT, dims, 2, bytes);
  if (input == NULL) return strdup("no memory for the input");
  memcpy(TF_TensorData(input), values, bytes);

  char* problem = NULL;
  TF_Tensor* output = NULL;
  TF_Status* status = TF_NewStatus();
  TF_SessionRun(session, NULL, &in, &input, 1, &out, &output, 1, NULL, 0, NULL, status);
  if (TF_GetCode(status) != TF_OK) {
    problem = strdup(TF_Message(status));
  } else if (TF_TensorType(output) != TF_FLOAT || TF_NumDims(output) != 2 || TF_Dim(output, 0) != rows ||
             TF_Dim(output, 1) != out_width) {
    char text[128];
    snprintf(text, sizeof text, "the output is not float32 of shape [%lld, %lld]", (long long)rows, (long long)out_width);
    problem = strdup(text);
  } else {
    memcpy(result, TF_TensorData(output), (size_t)(rows * out_width) * sizeof(float));
  }
  if (output != NULL) TF_DeleteTensor(output);
  TF_DeleteStatus(status);
  TF_DeleteTensor(input);
  return problem;
}
