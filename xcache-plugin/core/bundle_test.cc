#include "smartcache/bundle.hh"

#include <nlohmann/json.hpp>

#include "testing/fixtures.hh"

namespace smartcache {
namespace {

using nlohmann::json;

class BundleTest : public ::testing::Test {
 protected:
  const Schema schema_ = MakeSchema(ParseConfig("", "test"));
  testing::TempFolder folder_;
  json good_ = json::parse(testing::BundleJson("reuse_v3", schema_.hash));

  Bundle Read() { return ReadBundle(folder_.path().string(), schema_); }

  std::string ErrorOf(const json& bundle) {
    testing::WriteFile(folder_ / "bundle.json", bundle.dump());
    try {
      Read();
    } catch (const BundleError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(BundleTest, ReadsWhatTheContractSays) {
  EXPECT_EQ(ErrorOf(good_), "");
  const Bundle bundle = Read();
  EXPECT_EQ(bundle.name, "reuse_v3");
  EXPECT_EQ(bundle.buckets, 3u);
  EXPECT_EQ(bundle.horizon_buckets, 1u);
  EXPECT_EQ(bundle.admit, 0.5);
  EXPECT_EQ(bundle.evict, 0.1);
  EXPECT_TRUE(bundle.golden_inputs.empty());
  const json request = json::parse(bundle.request_head + "\"values\":[1]}");
  EXPECT_EQ(request["keys"].size(), schema_.names.size());
  EXPECT_EQ(request["model"], "reuse_v3");
}

TEST_F(BundleTest, RefusesWhatItCannotTrustAndNamesIt) {
  const std::pair<const char*, json> wrong[] = {
      {"format", 2},
      {"name", ""},
      {"name", "a/b"},
      {"schema", {{"hash", "0123456789abcdef"}}},
      {"schema", json::object()},
      {"bucket_edges_s", json::array()},
      {"bucket_edges_s", {86400, 3600}},
      {"bucket_edges_s", {3600, "x"}},
      {"horizon_buckets", 0},
      {"horizon_buckets", 3},
      {"horizon_buckets", 1.5},
      {"horizon_s", 7200},
      {"thresholds", {{"admit", 0.1}, {"evict", 0.5}}},
      {"thresholds", {{"admit", 1.5}, {"evict", 0.5}}},
      {"thresholds", {{"admit", "high"}, {"evict", 0.5}}},
      {"thresholds", {{"admit", 0.5}}},
  };
  for (const auto& [field, value] : wrong) {
    json bundle = good_;
    bundle[field] = value;
    const std::string error = ErrorOf(bundle);
    EXPECT_NE(error.find("bundle.json"), std::string::npos) << bundle.dump();
    EXPECT_NE(error.find("must be"), std::string::npos) << error;
  }
  for (const char* field : {"format", "name", "schema", "bucket_edges_s", "horizon_s", "horizon_buckets", "thresholds"}) {
    json bundle = good_;
    bundle.erase(field);
    EXPECT_NE(ErrorOf(bundle).find(field), std::string::npos) << field;
  }
}

TEST_F(BundleTest, HalfABundleOrNoneIsRefused) {
  EXPECT_THROW(Read(), BundleError);
  const std::string text = good_.dump();
  for (size_t length = 0; length < text.size(); length += 7) {
    testing::WriteFile(folder_ / "bundle.json", text.substr(0, length));
    EXPECT_THROW(Read(), BundleError) << length;
  }
}

TEST_F(BundleTest, GoldenRowsMustFitTheModel) {
  EXPECT_EQ(ErrorOf(good_), "");
  const std::vector<float> row(schema_.names.size(), 0.5f);
  testing::WriteFile(folder_ / "golden.json", json{{"inputs", {row}}, {"outputs", {{0.2, 0.3, 0.5}}}}.dump());
  EXPECT_EQ(Read().golden_outputs[0][2], 0.5);
  testing::WriteFile(folder_ / "golden.json", json{{"inputs", {row}}, {"outputs", {{0.2, 0.8}}}}.dump());
  EXPECT_THROW(Read(), BundleError);
  testing::WriteFile(folder_ / "golden.json", json{{"inputs", {row, row}}, {"outputs", {{0.2, 0.3, 0.5}}}}.dump());
  EXPECT_THROW(Read(), BundleError);
  testing::WriteFile(folder_ / "golden.json", R"({"inputs": [[)");
  EXPECT_THROW(Read(), BundleError);
  std::filesystem::remove(folder_ / "golden.json");
  EXPECT_TRUE(Read().golden_inputs.empty());
  std::filesystem::create_symlink("golden.json", folder_ / "golden.json");  // there, but nobody can read it
  EXPECT_THROW(Read(), BundleError);
}

TEST_F(BundleTest, WeightsMustFitTheBundleOrAllOfItIsRefused) {
  EXPECT_EQ(ErrorOf(good_), "");
  EXPECT_EQ(Read().network, nullptr);
  EXPECT_THROW(ReadBundle(folder_.path().string(), schema_, Weights::kNeeded), BundleError);
  const size_t features = schema_.names.size();
  const std::string fits = testing::RandomWeights({features, 8, 3});
  testing::WriteFile(folder_ / "weights.json", fits);
  ASSERT_NE(Read().network, nullptr);
  EXPECT_EQ(Read().network->outputs(), 3u);
  EXPECT_NE(Read().id, Read().id);
  for (const std::string& wrong : {testing::RandomWeights({features, 8, 4}), testing::RandomWeights({features + 1, 8, 3}),
                                   fits.substr(0, fits.size() / 2), std::string("{}"), std::string(), fits + "x"}) {
    testing::WriteFile(folder_ / "weights.json", wrong);
    EXPECT_NE(ErrorOf(good_).find("weights.json: "), std::string::npos) << wrong.substr(0, 50);
    EXPECT_EQ(ReadBundle(folder_.path().string(), schema_, Weights::kIgnored).network, nullptr);
  }
}

TEST_F(BundleTest, FilesThatAreTooLargeOrTooDeepAreRefused) {
  json deep = good_;
  deep["provenance"] = json::parse(std::string(40, '[') + std::string(40, ']'));
  EXPECT_NE(ErrorOf(deep).find("32 levels"), std::string::npos);
  json named = good_;
  named["name"] = std::string(500000, 'a');
  EXPECT_LT(ErrorOf(named).size(), 600u);
  EXPECT_NE(ErrorOf(named), "");
  EXPECT_EQ(ErrorOf(good_), "");
  testing::WriteFile(folder_ / "golden.json", "");
  std::filesystem::resize_file(folder_ / "golden.json", size_t{100} << 20);
  EXPECT_NE(ErrorOf(good_).find("golden.json: cannot be read (more than"), std::string::npos) << ErrorOf(good_);
}

}  // namespace
}  // namespace smartcache
