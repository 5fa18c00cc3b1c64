#include "smartcache/bundle.hh"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>

#include "json_file.hh"
#include "smartcache/hash.hh"

namespace smartcache {
namespace {

using nlohmann::json;

constexpr size_t kMaxInfoBytes = size_t{1} << 20, kMaxGoldenBytes = size_t{16} << 20;

// Nothing where there is no such file. One that is there and cannot be read is no reason to trust the model without it.
std::optional<std::string> TextIfThere(const std::string& path, size_t limit) {
  struct stat status;
  if (::lstat(path.c_str(), &status) != 0 && errno == ENOENT) return std::nullopt;
  return ReadText(path, limit);
}

bool IsName(const std::string& text) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), fits);
}

}  // namespace

Bundle ReadBundle(const std::string& folder, const Schema& schema, Weights weights) {
  BundleTexts texts;
  texts.info = ReadText(folder + "/bundle.json", kMaxInfoBytes);
  texts.golden = TextIfThere(folder + "/golden.json", kMaxGoldenBytes);
  if (weights != Weights::kIgnored) texts.weights = TextIfThere(folder + "/weights.json", Network::kMaxFileBytes);
  if (weights == Weights::kNeeded && !texts.weights)
    throw BundleError(folder +
                      "/weights.json: must be there where nothing but the embedded copy of a model is to answer; export the model again");
  return ParseBundle(texts, folder, schema);
}

Bundle ParseBundle(const BundleTexts& texts, const std::string& folder, const Schema& schema) {
  static std::atomic<uint64_t> readings{0};
  Bundle bundle;
  bundle.id = ++readings;
  const JsonFile read(folder + "/bundle.json", texts.info);
  const json& root = read.root();
  if (read.Number(root, "format") != 1) read.Refuse("format", "1", root["format"]);

  const json& name = read.Get(root, "name");
  if (!name.is_string() || !IsName(name.get<std::string>()))
    read.Refuse("name", "a name of letters, digits and _ (the installed copy has the registry's)", name);
  bundle.name = name;

  const json& their_schema = read.Get(root, "schema");
  const json& hash = their_schema.is_object() ? read.Get(their_schema, "hash") : their_schema;
  if (hash != schema.hash)
    read.Refuse("schema.hash", "\"" + schema.hash + "\", that of the features computed here ([dataset] and [features])", hash);

  const json& edges = read.Get(root, "bucket_edges_s");
  double before = 0;
  if (!edges.is_array() || edges.empty() || edges.size() >= kMaxBuckets)
    read.Refuse("bucket_edges_s", "an array of 1 to 63 numbers", edges);
  for (const json& edge : edges) {
    if (!edge.is_number() || !(edge.get<double>() > before)) read.Refuse("bucket_edges_s", "positive numbers that rise", edges);
    before = edge;
  }
  bundle.buckets = edges.size() + 1;
  bundle.bucket_edges_s = edges.get<std::vector<double>>();
  uint64_t edges_hash = kFnvBasis;
  for (const double edge : bundle.bucket_edges_s) edges_hash = Fnv({reinterpret_cast<const char*>(&edge), sizeof edge}, edges_hash);
  bundle.edges_id = static_cast<uint32_t>(Mix(edges_hash));

  const double horizon_buckets = read.Number(root, "horizon_buckets");
  if (horizon_buckets < 1 || horizon_buckets > static_cast<double>(edges.size()) || horizon_buckets != std::floor(horizon_buckets))
    read.Refuse("horizon_buckets", "a whole number from 1 to " + std::to_string(edges.size()), root["horizon_buckets"]);
  bundle.horizon_buckets = static_cast<size_t>(horizon_buckets);
  if (read.Number(root, "horizon_s") != edges[bundle.horizon_buckets - 1].get<double>())
    read.Refuse("horizon_s", "the edge that horizon_buckets names, " + edges[bundle.horizon_buckets - 1].dump(), root["horizon_s"]);

  const json& thresholds = read.Get(root, "thresholds");
  if (!thresholds.is_object()) read.Refuse("thresholds", "an object with admit and evict", thresholds);
  bundle.admit = read.Number(thresholds, "admit");
  bundle.evict = read.Number(thresholds, "evict");
  if (!(0 <= bundle.evict && bundle.evict <= bundle.admit && bundle.admit <= 1))
    read.Refuse("thresholds", "0 <= evict <= admit <= 1", thresholds);

  if (texts.golden) {
    const JsonFile golden(folder + "/golden.json", *texts.golden);
    bundle.golden_inputs = golden.Rows("inputs", schema.names.size());
    bundle.golden_outputs = golden.Rows("outputs", bundle.buckets);
    if (bundle.golden_inputs.size() != bundle.golden_outputs.size())
      golden.Refuse("outputs", "as many rows as inputs, " + std::to_string(bundle.golden_inputs.size()),
                    std::to_string(bundle.golden_outputs.size()));
  }
  if (texts.weights) {
    const std::string path = folder + "/weights.json";
    bundle.network = std::make_shared<const Network>(*texts.weights, path);
    if (bundle.network->inputs() != schema.names.size() || bundle.network->outputs() != bundle.buckets)
      throw BundleError(path + ": layers must take " + std::to_string(schema.names.size()) + " features and give " +
                        std::to_string(bundle.buckets) + " outputs, as bundle.json has it, but take " +
                        std::to_string(bundle.network->inputs()) + " and give " + std::to_string(bundle.network->outputs()));
  }

  bundle.request_head = R"({"model":")" + bundle.name + R"(","keys":)" + json(schema.names).dump() + ",";
  return bundle;
}

}  // namespace smartcache
