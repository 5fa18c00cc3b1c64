#include "smartcache/network.hh"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "testing/fixtures.hh"

namespace smartcache {
namespace {

using nlohmann::json;

// The formula of the header in double precision, straight from the JSON: shares no code with what is tested.
std::vector<double> Reference(const json& weights, const std::vector<float>& features) {
  std::vector<double> x;
  for (size_t i = 0; i < features.size(); ++i)
    x.push_back((static_cast<double>(features[i]) - weights["normalization"]["mean"][i].get<double>()) /
                weights["normalization"]["scale"][i].get<double>());
  for (const json& layer : weights["layers"]) {
    std::vector<double> next = layer["bias"];
    for (size_t i = 0; i < x.size(); ++i)
      for (size_t j = 0; j < next.size(); ++j) next[j] += x[i] * layer["kernel"][i][j].get<double>();
    if (layer["activation"] == "relu") {
      for (double& each : next) each = std::max(0.0, each);
    } else {
      const double most = *std::max_element(next.begin(), next.end());
      double sum = 0;
      for (double& each : next) sum += each = std::exp(each - most);
      for (double& each : next) each /= sum;
    }
    x = next;
  }
  return x;
}

TEST(Network, EqualsTheFormulaOnEveryCpuAndForEveryShape) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const std::vector<size_t>& widths : std::vector<std::vector<size_t>>{
           {39, 64, 32, 7}, {1, 1}, {3, 4, 3}, {16, 16, 16, 16}, {41, 130, 65, 17, 2}, {112, 256, 63}, {5, 1024, 3}}) {
    const std::string text = testing::RandomWeights(widths);
    const json weights = json::parse(text);
    for (const Network::Code code : Network::Runnable()) {
      const Network network(text, "test", code);
      ASSERT_EQ(network.inputs(), widths.front());
      ASSERT_EQ(network.outputs(), widths.back());
      std::vector<float> features(widths.front());
      std::vector<float> outputs(widths.back());
      for (int row = 0; row < 40; ++row) {
        // Far from the data the logits are large, and the last bits of float32 count for more.
        const bool far = row % 2 == 1;
        const float spread = far ? 30.0f : 3.0f;
        for (float& each : features) each = row == 39 ? 0.0f : spread * normal(random);
        ASSERT_TRUE(network.Evaluate(features.data(), outputs.data()));
        const std::vector<double> expected = Reference(weights, features);
        for (size_t k = 0; k < outputs.size(); ++k)
          ASSERT_NEAR(static_cast<double>(outputs[k]), expected[k], far ? 1e-4 : 1e-5)
              << widths.size() << " " << static_cast<int>(code) << " " << row;
      }
    }
  }
}

TEST(Network, AnOverflowIsNoAnswerAndNeverAWrongOne) {
  for (const Network::Code code : Network::Runnable()) {
    const Network network(testing::RandomWeights({4, 8, 3}), "test", code);
    float outputs[3];
    for (const float wild : {INFINITY, -INFINITY, NAN, 3e38f, -3e38f}) {
      const float features[4] = {0.5f, wild, 0.5f, wild};
      if (!network.Evaluate(features, outputs)) continue;
      float sum = 0;
      for (const float each : outputs) sum += each;
      EXPECT_NEAR(sum, 1.0f, 1e-5f) << wild;
    }
    const float not_a_number[4] = {NAN, NAN, NAN, NAN};
    EXPECT_FALSE(network.Evaluate(not_a_number, outputs));
  }
}

class NetworkRefusal : public ::testing::Test {
 protected:
  static std::string ErrorOf(const std::string& text) {
    try {
      const Network network(text, "/bundle/weights.json");
    } catch (const BundleError& error) {
      return error.what();
    }
    return "";
  }
  // The message about the network with `value` at `pointer`.
  std::string With(const char* pointer, const json& value) const {
    json changed = good_;
    changed[json::json_pointer(pointer)] = value;
    return ErrorOf(changed.dump());
  }
  static void Expect(const std::string& message, const char* part) {
    EXPECT_EQ(message.rfind("/bundle/weights.json: ", 0), 0u) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_LT(message.size(), 600u);
  }
  const std::string text_ = testing::RandomWeights({3, 4, 2});
  const json good_ = json::parse(text_);
};

TEST_F(NetworkRefusal, NamesTheFieldThatIsWrong) {
  ASSERT_EQ(ErrorOf(text_), "");
  Expect(With("/layers", json::array()), "layers must be an array of 1 to 16 layers");
  Expect(With("/layers", std::vector<json>(17, good_["layers"][0])), "1 to 16 layers");
  Expect(With("/layers", "x"), "1 to 16 layers");
  Expect(With("/layers/0", 7), "layers[0] must be an object");
  Expect(With("/layers/0/activation", "tanh"), "layers[0].activation must be \"relu\", but is \"tanh\"");
  Expect(With("/layers/1/activation", "relu"), "layers[1].activation must be \"softmax\"");
  Expect(With("/layers/0/bias", {1.0}), "layers[0].kernel[0] must be an array of 1 finite numbers");
  Expect(With("/layers/0/bias", json::array()), "layers[0].bias must be an array of 1 to 1024");
  Expect(With("/layers/1/kernel", {{1, 2}}), "layers[1].kernel must be an array of 4 rows");
  Expect(With("/layers/1/kernel/2", {1}), "layers[1].kernel[2] must be an array of 2 finite numbers within float32, but is 1 long");
  Expect(With("/layers/1/kernel/2/0", "1"), "layers[1].kernel[2]");
  Expect(With("/layers/1/kernel/2/0", nullptr), "layers[1].kernel[2]");
  Expect(With("/layers/1/kernel/2/0", 1e39), "layers[1].kernel[2]");
  Expect(With("/normalization", 1), "normalization must be an object");
  Expect(With("/normalization/scale/1", 0), "normalization.scale must be positive");
  Expect(With("/normalization/scale/1", -1), "normalization.scale must be positive");
  Expect(With("/normalization/scale", {1, 1}), "normalization.scale");
  Expect(With("/normalization/mean", json::array()), "normalization.mean must be an array of 1 to 1024");
  for (const char* field : {"layers", "normalization"}) {
    json less = good_;
    less.erase(field);
    Expect(ErrorOf(less.dump()), field);
  }
}

TEST_F(NetworkRefusal, HalfAFileIsNone) {
  for (size_t length = 0; length < text_.size(); length += 11) EXPECT_NE(ErrorOf(text_.substr(0, length)), "") << length;
}

TEST_F(NetworkRefusal, WhatIsTooLargeOrTooDeepIsNotBuilt) {
  Expect(ErrorOf(std::string(1000000, '[')), "32 levels");
  Expect(ErrorOf(R"({"layers":)" + std::string(1000000, '[')), "32 levels");
  Expect(With("/layers/0/kernel", std::vector<int>(100000)), "but is array of 100000");
  json wide = good_;
  wide["normalization"] = {{"mean", std::vector<float>(1024)}, {"scale", std::vector<float>(1024, 1)}};
  wide["layers"][0]["bias"] = std::vector<float>(1024);
  Expect(ErrorOf(wide.dump()), "at most 524288 weights");
}

TEST_F(NetworkRefusal, AHundredMegabytesAreNotRead) {
  const testing::TempFolder folder;
  const std::string path = folder / "weights.json";
  testing::WriteFile(path, "{");
  std::filesystem::resize_file(path, size_t{100} << 20);
  try {
    Network::Read(path);
    FAIL();
  } catch (const BundleError& error) {
    EXPECT_NE(std::string(error.what()).find("more than 16777216 bytes"), std::string::npos) << error.what();
  }
}

TEST_F(NetworkRefusal, APipeHoldsNobodyUp) {
  const testing::TempFolder folder;
  const std::string path = folder / "weights.json";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THROW(Network::Read(path), BundleError);
  EXPECT_THROW(Network::Read(folder / "absent"), BundleError);
  EXPECT_THROW(Network::Read(folder.path().string()), BundleError);
}

}  // namespace
}  // namespace smartcache
