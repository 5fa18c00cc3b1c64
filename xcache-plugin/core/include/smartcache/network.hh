// The network of a model, evaluated in this process from the weights that training exported (weights.json of a bundle).
//
//   x0 = (x - mean) / scale        x[i+1] = activation_i(x[i] * kernel_i + bias_i)        relu for all layers but the last, softmax for
//   that
// In float32, as Keras computes it; sums are added in another order and with fused multiply-add where the CPU has it, so the last bits may
// differ from one machine to the next: outputs are equal to Keras' to 1e-5. (Features must be equal to the last bit; a score need not.)
// Read strictly: shapes that fit each other, finite numbers, positive scales, at most 16 layers of at most 1024 units, at most 2^19
// weights. Thread-safe: immutable. An evaluation allocates nothing, locks nothing and needs 8 KiB of stack. Failure: BundleError while
// reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "smartcache/bundle_error.hh"

namespace smartcache {

class Network {
 public:
  static constexpr size_t kMaxLayers = 16, kMaxWidth = 1024, kMaxWeights = size_t{1} << 19;
  static constexpr size_t kMaxFileBytes = size_t{16} << 20;

  // Which code evaluates. The best that this CPU can run is the default.
  enum class Code { kPortable, kAvx2, kAvx512 };
  static std::vector<Code> Runnable();

  // `json` as in weights.json; `source` names it in messages. Throws BundleError.
  Network(std::string_view json, const std::string& source, Code code = Runnable().back());
  // The file at `path`.
  static std::shared_ptr<const Network> Read(const std::string& path);

  size_t inputs() const { return inputs_; }
  size_t outputs() const { return layers_.back().outputs; }
  const float* mean() const { return data_.get(); }
  const float* scale() const { return data_.get() + inputs_; }

  // outputs() probabilities for inputs() features. False where they are no distribution: a number overflowed.
  bool Evaluate(const float* features, float* out) const noexcept { return run_(*this, features, out); }

 private:
  friend struct NetworkCode;

  struct Layer {
    size_t inputs, outputs, columns;  // `columns`: outputs, padded to whole vectors
    size_t bias, kernel;              // where they begin in data_: [columns] and [inputs][columns]
  };
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };

  size_t inputs_;
  std::vector<Layer> layers_;
  std::unique_ptr<float[], Free> data_;  // aligned to vectors: mean, scale, then bias and kernel of each layer
  bool (*run_)(const Network&, const float*, float*) noexcept;
};

}  // namespace smartcache
