#include "smartcache/bundle.hh"

#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

namespace smartcache {
namespace {

using nlohmann::json;

class BundleReader {
 public:
  explicit BundleReader(std::string path) : path_(std::move(path)) {
    std::ifstream file(path_);
    if (!file) throw BundleError(path_ + ": cannot be read; promote the model again");
    root_ = json::parse(file, nullptr, false);
    if (!root_.is_object()) Refuse("", "a JSON object", "not one: the file may be incomplete");
  }

  [[noreturn]] void Refuse(const std::string& field, const std::string& rule, const std::string& value) const {
    throw BundleError(path_ + ": " + (field.empty() ? "it" : field) + " must be " + rule + ", but is " + value);
  }

  const json& root() const { return root_; }

  const json& Get(const json& object, const char* field) const {
    const auto it = object.find(field);
    if (it == object.end()) Refuse(field, "there", "missing");
    return *it;
  }

  double Number(const json& object, const char* field) const {
    const json& value = Get(object, field);
    if (!value.is_number() || !std::isfinite(value.get<double>())) Refuse(field, "a finite number", value.dump());
    return value.get<double>();
  }

  template <typename T>
  std::vector<std::vector<T>> Rows(const char* field, size_t width) const {
    const json& rows = Get(root_, field);
    std::vector<std::vector<T>> result;
    if (!rows.is_array()) Refuse(field, "an array of rows", rows.dump());
    for (const json& row : rows) {
      if (!row.is_array() || row.size() != width) Refuse(field, "rows of " + std::to_string(width) + " numbers", row.dump());
      auto& numbers = result.emplace_back();
      for (const json& value : row) {
        if (!value.is_number()) Refuse(field, "rows of " + std::to_string(width) + " numbers", row.dump());
        numbers.push_back(value.get<T>());
      }
    }
    return result;
  }

 private:
  std::string path_;
  json root_;
};

}  // namespace

Bundle ReadBundle(const std::string& folder, const Schema& schema) {
  Bundle bundle;
  const BundleReader read(folder + "/bundle.json");
  const json& root = read.root();
  if (read.Number(root, "format") != 1) read.Refuse("format", "1", root["format"].dump());

  const json& name = read.Get(root, "name");
  if (!name.is_string() || !std::regex_match(name.get<std::string>(), std::regex("[A-Za-z0-9_]{1,128}")))
    read.Refuse("name", "a name of letters, digits and _ (the installed copy has the registry's)", name.dump());
  bundle.name = name;

  const json& their_schema = read.Get(root, "schema");
  const json& hash = their_schema.is_object() ? read.Get(their_schema, "hash") : their_schema;
  if (hash != schema.hash)
    read.Refuse("schema.hash", "\"" + schema.hash + "\", that of the features computed here ([dataset] and [features])", hash.dump());

  const json& edges = read.Get(root, "bucket_edges_s");
  double before = 0;
  if (!edges.is_array() || edges.empty() || edges.size() >= kMaxBuckets)
    read.Refuse("bucket_edges_s", "an array of 1 to 63 numbers", edges.dump());
  for (const json& edge : edges) {
    if (!edge.is_number() || !(edge.get<double>() > before)) read.Refuse("bucket_edges_s", "positive numbers that rise", edges.dump());
    before = edge;
  }
  bundle.buckets = edges.size() + 1;

  const double horizon_buckets = read.Number(root, "horizon_buckets");
  if (horizon_buckets < 1 || horizon_buckets > static_cast<double>(edges.size()) || horizon_buckets != std::floor(horizon_buckets))
    read.Refuse("horizon_buckets", "a whole number from 1 to " + std::to_string(edges.size()), root["horizon_buckets"].dump());
  bundle.horizon_buckets = static_cast<size_t>(horizon_buckets);
  if (read.Number(root, "horizon_s") != edges[bundle.horizon_buckets - 1].get<double>())
    read.Refuse("horizon_s", "the edge that horizon_buckets names, " + edges[bundle.horizon_buckets - 1].dump(), root["horizon_s"].dump());

  const json& thresholds = read.Get(root, "thresholds");
  if (!thresholds.is_object()) read.Refuse("thresholds", "an object with admit and evict", thresholds.dump());
  bundle.admit = read.Number(thresholds, "admit");
  bundle.evict = read.Number(thresholds, "evict");
  if (!(0 <= bundle.evict && bundle.evict <= bundle.admit && bundle.admit <= 1))
    read.Refuse("thresholds", "0 <= evict <= admit <= 1", thresholds.dump());

  const std::string golden_path = folder + "/golden.json";
  struct stat status;
  // Rows that are there and cannot be read are no reason to trust the model unchecked.
  if (::lstat(golden_path.c_str(), &status) == 0 || errno != ENOENT) {
    const BundleReader golden(golden_path);
    bundle.golden_inputs = golden.Rows<float>("inputs", schema.names.size());
    bundle.golden_outputs = golden.Rows<double>("outputs", bundle.buckets);
    if (bundle.golden_inputs.size() != bundle.golden_outputs.size())
      golden.Refuse("outputs", "as many rows as inputs, " + std::to_string(bundle.golden_inputs.size()),
                    std::to_string(bundle.golden_outputs.size()));
  }

  bundle.request_head = R"({"keys":)" + json(schema.names).dump() + R"(,"values":[)";
  bundle.request_tail = R"(],"model":")" + bundle.name + R"("})";
  return bundle;
}

}  // namespace smartcache
