#include "embedded.hh"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "smartcache/network.hh"

namespace nb = nanobind;
using smartcache::Network;

namespace {

using Floats = nb::ndarray<nb::numpy, float>;
using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// A [rows, columns] array that owns its data; one dimension where rows is 0.
Floats Owned(std::unique_ptr<float[]> data, size_t rows, size_t columns, bool flat) {
  nb::capsule owner(data.get(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
  const size_t shape[2] = {flat ? columns : rows, columns};
  return Floats(data.release(), flat ? 1 : 2, shape, owner);
}

class EmbeddedModel {
 public:
  explicit EmbeddedModel(const std::string& folder) : network_(Network::Read(folder + "/weights.json")) {}

  Floats Predict(const Rows& rows) const {
    const size_t n = rows.shape(0), width = network_->inputs(), outputs = network_->outputs();
    if (rows.shape(1) != width)
      throw nb::value_error(
          ("predict: rows must have " + std::to_string(width) + " features, but have " + std::to_string(rows.shape(1))).c_str());
    std::unique_ptr<float[]> result(new float[n * outputs]);
    {
      const nb::gil_scoped_release unlocked;
      for (size_t i = 0; i < n; ++i) {
        float* out = result.get() + i * outputs;
        if (!network_->Evaluate(rows.data() + i * width, out)) std::fill(out, out + outputs, NAN);
      }
    }
    return Owned(std::move(result), n, outputs, false);
  }

  size_t inputs() const { return network_->inputs(); }
  size_t outputs() const { return network_->outputs(); }
  Floats mean() const { return Copy(network_->mean()); }
  Floats scale() const { return Copy(network_->scale()); }

 private:
  Floats Copy(const float* values) const {
    std::unique_ptr<float[]> copy(new float[inputs()]);
    std::copy(values, values + inputs(), copy.get());
    return Owned(std::move(copy), 0, inputs(), true);
  }

  const std::shared_ptr<const Network> network_;
};

}  // namespace

void BindEmbeddedModel(nb::module_& m) {
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const smartcache::BundleError& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    }
  });
  nb::class_<EmbeddedModel>(
      m, "EmbeddedModel",
      "The network in a bundle's weights.json, evaluated by the code that the plugin runs. Immutable; ValueError names "
      "what is wrong with the file.")
      .def(nb::init<const std::string&>(), nb::arg("bundle_folder"))
      .def("predict", &EmbeddedModel::Predict, nb::arg("rows"),
           "[N, F] features to [N, B] probabilities; NaN in a row whose numbers overflow. Releases the GIL.")
      .def_prop_ro("inputs", &EmbeddedModel::inputs, "F.")
      .def_prop_ro("outputs", &EmbeddedModel::outputs, "B.")
      .def_prop_ro("mean", &EmbeddedModel::mean, nb::rv_policy::automatic, "[F]: what is taken off a feature.")
      .def_prop_ro("scale", &EmbeddedModel::scale, nb::rv_policy::automatic, "[F]: what it is then divided by.");
}
