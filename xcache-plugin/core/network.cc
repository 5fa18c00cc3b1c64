#include "smartcache/network.hh"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "json_file.hh"

namespace smartcache {
namespace {

constexpr size_t kLanes = 16;  // floats in the widest vector

size_t Padded(size_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

// The vectors of each code are those that its registers hold: wider ones would be taken apart, through memory.
struct Sse {
  using Vector = float __attribute__((vector_size(16), may_alias));
};
struct Ymm {
  using Vector = float __attribute__((vector_size(32), may_alias));
};
struct Zmm {
  using Vector = float __attribute__((vector_size(64), may_alias));
};

#define SMARTCACHE_INLINE __attribute__((always_inline)) inline

// kColumns vectors of outputs: bias + x * kernel. The inputs are split into kSplit sums, since a sum alone would wait for its own
// additions.
template <typename Registers, size_t kColumns, size_t kSplit>
SMARTCACHE_INLINE void Panel(const float* x, size_t inputs, const float* kernel, size_t stride, const float* bias, float* out) {
  using Vector = typename Registers::Vector;
  constexpr size_t kStep = sizeof(Vector) / sizeof(float);
  Vector sums[kSplit][kColumns] = {};
  for (size_t c = 0; c < kColumns; ++c) sums[0][c] = *reinterpret_cast<const Vector*>(bias + c * kStep);
  size_t i = 0;
  for (; i + kSplit <= inputs; i += kSplit) {
    for (size_t s = 0; s < kSplit; ++s)
      for (size_t c = 0; c < kColumns; ++c)
        sums[s][c] += (x[i + s] - Vector{}) * *reinterpret_cast<const Vector*>(kernel + (i + s) * stride + c * kStep);
  }
  for (; i < inputs; ++i)
    for (size_t c = 0; c < kColumns; ++c)
      sums[0][c] += (x[i] - Vector{}) * *reinterpret_cast<const Vector*>(kernel + i * stride + c * kStep);
  for (size_t c = 0; c < kColumns; ++c) {
    for (size_t s = 1; s < kSplit; ++s) sums[0][c] += sums[s][c];
    *reinterpret_cast<Vector*>(out + c * kStep) = sums[0][c];
  }
}

template <typename Registers>
SMARTCACHE_INLINE void Dense(const float* x, size_t inputs, const float* kernel, size_t columns, const float* bias, float* out) {
  constexpr size_t kStep = sizeof(typename Registers::Vector) / sizeof(float);
  size_t at = 0;
  for (; at + 8 * kStep <= columns; at += 8 * kStep) Panel<Registers, 8, 1>(x, inputs, kernel + at, columns, bias + at, out + at);
  for (; at + 4 * kStep <= columns; at += 4 * kStep) Panel<Registers, 4, 1>(x, inputs, kernel + at, columns, bias + at, out + at);
  for (; at + 2 * kStep <= columns; at += 2 * kStep) Panel<Registers, 2, 2>(x, inputs, kernel + at, columns, bias + at, out + at);
  if (at < columns) Panel<Registers, 1, 4>(x, inputs, kernel + at, columns, bias + at, out + at);
}

SMARTCACHE_INLINE bool Softmax(const float* logits, size_t count, float* out) {
  const float most = *std::max_element(logits, logits + count);
  float sum = 0;
  for (size_t i = 0; i < count; ++i) sum += out[i] = std::exp(logits[i] - most);
  for (size_t i = 0; i < count; ++i) out[i] /= sum;
  return std::isfinite(sum);
}

}  // namespace

struct NetworkCode {
  template <typename Registers>
  static SMARTCACHE_INLINE bool Run(const Network& network, const float* features, float* out) {
    alignas(64) float buffers[2][Network::kMaxWidth];
    float *x = buffers[0], *next = buffers[1];
    const float *mean = network.mean(), *scale = network.scale();
    for (size_t i = 0; i < network.inputs_; ++i) x[i] = (features[i] - mean[i]) / scale[i];
    const float* data = network.data_.get();
    for (const Network::Layer& layer : network.layers_) {
      Dense<Registers>(x, layer.inputs, data + layer.kernel, layer.columns, data + layer.bias, next);
      if (&layer == &network.layers_.back()) break;
      for (size_t i = 0; i < layer.columns; ++i) next[i] = next[i] < 0 ? 0 : next[i];  // what is no number stays that
      std::swap(x, next);
    }
    return Softmax(next, network.outputs(), out);
  }

  static bool Portable(const Network& network, const float* features, float* out) noexcept { return Run<Sse>(network, features, out); }
#ifdef __x86_64__
  __attribute__((target("avx2,fma"))) static bool Avx2(const Network& network, const float* features, float* out) noexcept {
    return Run<Ymm>(network, features, out);
  }
  __attribute__((target("avx512f,avx2,fma"))) static bool Avx512(const Network& network, const float* features, float* out) noexcept {
    return Run<Zmm>(network, features, out);
  }
#endif

  static decltype(&Portable) For(Network::Code code) {
#ifdef __x86_64__
    if (code == Network::Code::kAvx512) return &Avx512;
    if (code == Network::Code::kAvx2) return &Avx2;
#endif
    (void)code;
    return &Portable;
  }
};

std::vector<Network::Code> Network::Runnable() {
  std::vector<Code> codes = {Code::kPortable};
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    codes.push_back(Code::kAvx2);
    if (__builtin_cpu_supports("avx512f")) codes.push_back(Code::kAvx512);
  }
#endif
  return codes;
}

Network::Network(std::string_view json, const std::string& source, Code code) : run_(NetworkCode::For(code)) {
  const JsonFile file(source, json);
  const auto& normalization = file.Get(file.root(), "normalization");
  std::vector<float> mean, scale;
  file.Floats(file.Get(normalization, "mean", "normalization"), "normalization.mean", 0, &mean);
  inputs_ = mean.size();
  if (inputs_ < 1 || inputs_ > kMaxWidth)
    file.Refuse("normalization.mean", "an array of 1 to " + std::to_string(kMaxWidth) + " numbers", std::to_string(inputs_) + " long");
  file.Floats(file.Get(normalization, "scale", "normalization"), "normalization.scale", inputs_, &scale);
  const float least = *std::min_element(scale.begin(), scale.end());
  if (!(least > 0)) file.Refuse("normalization.scale", "positive", std::to_string(least));

  const auto& listed = file.Get(file.root(), "layers");
  if (!listed.is_array() || listed.empty() || listed.size() > kMaxLayers)
    file.Refuse("layers", "an array of 1 to " + std::to_string(kMaxLayers) + " layers", listed);
  std::vector<float> values(2 * Padded(inputs_));
  std::copy(mean.begin(), mean.end(), values.begin());
  std::copy(scale.begin(), scale.end(), values.begin() + static_cast<std::ptrdiff_t>(inputs_));
  size_t width = inputs_, weights = 0;
  for (const auto& each : listed) {
    const std::string where = "layers[" + std::to_string(layers_.size()) + "]";
    const auto& activation = file.Get(each, "activation", where);
    const char* expected = layers_.size() + 1 == listed.size() ? "softmax" : "relu";
    if (activation != expected) file.Refuse(where + ".activation", '"' + std::string(expected) + '"', activation);
    std::vector<float> bias, row;
    file.Floats(file.Get(each, "bias", where), where + ".bias", 0, &bias);
    if (bias.empty() || bias.size() > kMaxWidth)
      file.Refuse(where + ".bias", "an array of 1 to " + std::to_string(kMaxWidth) + " numbers", std::to_string(bias.size()) + " long");
    weights += width * bias.size();
    if (weights > kMaxWeights) file.Refuse("layers", "at most " + std::to_string(kMaxWeights) + " weights", std::to_string(weights));
    const auto& kernel = file.Get(each, "kernel", where);
    if (!kernel.is_array() || kernel.size() != width)
      file.Refuse(where + ".kernel", "an array of " + std::to_string(width) + " rows, one for each input", kernel);

    const Layer layer{width, bias.size(), Padded(bias.size()), values.size(), values.size() + Padded(bias.size())};
    layers_.push_back(layer);
    values.resize(layer.kernel + width * layer.columns);
    std::copy(bias.begin(), bias.end(), values.begin() + static_cast<std::ptrdiff_t>(layer.bias));
    for (size_t i = 0; i < width; ++i) {
      row.clear();
      file.Floats(kernel[i], where + ".kernel[" + std::to_string(i) + "]", layer.outputs, &row);
      std::copy(row.begin(), row.end(), values.begin() + static_cast<std::ptrdiff_t>(layer.kernel + i * layer.columns));
    }
    width = layer.outputs;
  }
  // Every length in `values` is of whole vectors.
  data_.reset(static_cast<float*>(std::aligned_alloc(kLanes * sizeof(float), values.size() * sizeof(float))));
  if (!data_) throw std::bad_alloc();
  std::memcpy(data_.get(), values.data(), values.size() * sizeof(float));
}

std::shared_ptr<const Network> Network::Read(const std::string& path) {
  return std::make_shared<const Network>(ReadText(path, kMaxFileBytes), path);
}

}  // namespace smartcache
