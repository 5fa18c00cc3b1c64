#include "smartcache/bundle_watcher.hh"

#include "testing/fixtures.hh"

namespace smartcache {
namespace {

using testing::BundleJson;
using testing::Install;
using testing::WaitUntil;

class FakeModel : public Model {
 public:
  void Predict(const Bundle&, const float*, Clock::time_point, Prediction*) noexcept override {}
  Warmth Warm(const Bundle& bundle, Finding* finding) override {
    ++asked;
    if (throws) throw 1;  // no std::exception
    finding->why = "told so";
    return bundle.name == wrong_name ? Warmth::kWrong : warmth.load();
  }
  std::atomic<Warmth> warmth{Warmth::kReady};
  std::atomic<int> asked{0};
  std::atomic<bool> throws{false};
  std::string wrong_name = "wrong_v1";
};

class BundleWatcherTest : public ::testing::Test {
 protected:
  const Schema schema_ = MakeSchema(ParseConfig("", "test"));
  testing::TempFolder folder_;
  testing::LogLines log_;
  FakeModel model_;

  ModelConfig config_ = [this] {
    ModelConfig config = ParseConfig("", "test").model;
    config.bundle_dir = folder_.path().string();
    config.poll_s = 0.01;
    return config;
  }();

  void Promote(const std::string& name) { Install(folder_.path(), name, BundleJson(name, schema_.hash)); }
  static std::string Name(const BundleWatcher& watcher) {
    const auto bundle = watcher.current();
    return bundle ? bundle->name : "";
  }
};

TEST_F(BundleWatcherTest, FollowsTheLinkForthAndBack) {
  Promote("reuse_v1");
  const BundleWatcher watcher(config_, schema_, &model_, log_.sink());
  ASSERT_TRUE(WaitUntil([&] { return Name(watcher) == "reuse_v1"; }));
  Promote("reuse_v2");
  ASSERT_TRUE(WaitUntil([&] { return Name(watcher) == "reuse_v2"; }));
  Promote("reuse_v1");
  ASSERT_TRUE(WaitUntil([&] { return Name(watcher) == "reuse_v1"; }));
  EXPECT_TRUE(WaitUntil([&] { return log_.Count("is in use") == 3; }));
}

TEST_F(BundleWatcherTest, ABadBundleIsRefusedOnceAndTheOneBeforeStays) {
  Promote("reuse_v1");
  const BundleWatcher watcher(config_, schema_, &model_, log_.sink());
  ASSERT_TRUE(WaitUntil([&] { return Name(watcher) == "reuse_v1"; }));
  Install(folder_.path(), "reuse_v2", BundleJson("reuse_v2", "0000000000000000"));
  ASSERT_TRUE(WaitUntil([&] { return log_.Has("schema.hash"); }));
  Install(folder_.path(), "reuse_v3", BundleJson("reuse_v3", schema_.hash).substr(0, 80));
  ASSERT_TRUE(WaitUntil([&] { return log_.Has("JSON object"); }));
  Promote("wrong_v1");
  ASSERT_TRUE(WaitUntil([&] { return log_.Has("told so"); }));
  std::filesystem::remove(folder_.path() / "current");
  ASSERT_TRUE(WaitUntil([&] { return log_.Has("current"); }));
  EXPECT_EQ(Name(watcher), "reuse_v1");
  EXPECT_EQ(log_.Count("schema.hash"), 1u);
  Promote("reuse_v4");
  EXPECT_TRUE(WaitUntil([&] { return Name(watcher) == "reuse_v4"; }));
}

TEST_F(BundleWatcherTest, AMendedBundleIsTaken) {
  Install(folder_.path(), "reuse_v1", "{");
  const BundleWatcher watcher(config_, schema_, &model_, log_.sink());
  ASSERT_TRUE(WaitUntil([&] { return log_.Has("bundle.json"); }));
  EXPECT_EQ(watcher.current(), nullptr);
  testing::WriteFile(folder_.path() / "reuse_v1" / "bundle.json", BundleJson("reuse_v1", schema_.hash));
  EXPECT_TRUE(WaitUntil([&] { return Name(watcher) == "reuse_v1"; }));
}

TEST_F(BundleWatcherTest, GoldenRowsThatCannotBeReadAreNotTakenForNone) {
  const std::filesystem::path golden = folder_.path() / "reuse_v1" / "golden.json";
  std::filesystem::create_directories(golden.parent_path());
  std::filesystem::create_symlink("golden.json", golden);  // a loop
  Promote("reuse_v1");
  const BundleWatcher watcher(config_, schema_, &model_, log_.sink());
  ASSERT_TRUE(WaitUntil([&] { return log_.Has("golden.json"); }));
  EXPECT_EQ(watcher.current(), nullptr);
  std::filesystem::remove(golden);
  testing::WriteFile(golden, R"({"inputs":[],"outputs":[]})");
  EXPECT_TRUE(WaitUntil([&] { return Name(watcher) == "reuse_v1"; }));
}

TEST_F(BundleWatcherTest, GoldenRowsThatComeLateOrChangeAreRead) {
  Promote("reuse_v1");
  const BundleWatcher watcher(config_, schema_, &model_, log_.sink());
  ASSERT_TRUE(WaitUntil([&] { return Name(watcher) == "reuse_v1"; }));
  EXPECT_TRUE(WaitUntil([&] { return log_.Count("has no golden.json") == 1; }));
  std::string row = "0.5";
  for (size_t i = 1; i < schema_.names.size(); ++i) row += ",0.5";
  const std::string golden = R"({"inputs":[[)" + row + R"(]],"outputs":[[0.2,0.3,0.5]]})";
  testing::WriteFile(folder_.path() / "reuse_v1" / "next", golden);
  std::filesystem::rename(folder_.path() / "reuse_v1" / "next", folder_.path() / "reuse_v1" / "golden.json");
  ASSERT_TRUE(WaitUntil([&] { return watcher.current()->golden_inputs.size() == 1; }));
  EXPECT_EQ(log_.Count("has no golden.json"), 1u);
  std::filesystem::remove(folder_.path() / "reuse_v1" / "golden.json");
  EXPECT_TRUE(WaitUntil([&] { return watcher.current()->golden_inputs.empty(); }));
}

TEST_F(BundleWatcherTest, NothingThatIsThrownEndsTheThread) {
  model_.throws = true;
  Promote("reuse_v1");
  const BundleWatcher watcher(config_, schema_, &model_, log_.sink());
  ASSERT_TRUE(WaitUntil([&] { return model_.asked >= 2; }));
  EXPECT_EQ(watcher.current(), nullptr);
  model_.throws = false;
  EXPECT_TRUE(WaitUntil([&] { return Name(watcher) == "reuse_v1"; }));
}

TEST_F(BundleWatcherTest, ACopyGoesIntoUseAtOnceAndTheEndpointIsCheckedUntilItAnswers) {
  const std::string weights = testing::RandomWeights({schema_.names.size(), 3});
  Promote("reuse_v1");
  const BundleWatcher watcher(config_, schema_, &model_, log_.sink());
  ASSERT_TRUE(WaitUntil([&] { return log_.Has("reuse_v1 is in use"); }));
  EXPECT_TRUE(log_.Has(", without an embedded copy: it has no weights.json"));
  model_.warmth = Model::Warmth::kUsable;
  Install(folder_.path(), "reuse_v2", BundleJson("reuse_v2", schema_.hash), "", weights);
  ASSERT_TRUE(WaitUntil([&] { return log_.Has("reuse_v2 is in use, though told so; its embedded copy answers"); }));
  EXPECT_NE(watcher.current()->network, nullptr);
  const int asked = model_.asked;
  ASSERT_TRUE(WaitUntil([&] { return model_.asked > asked + 3; }));
  EXPECT_EQ(log_.Count("told so"), 1u);
  EXPECT_EQ(log_.Count("is checked:"), 0u);
  model_.warmth = Model::Warmth::kReady;
  EXPECT_TRUE(WaitUntil([&] { return log_.Has("model reuse_v2 is checked: its endpoint answers"); }));
}

TEST_F(BundleWatcherTest, DamagedWeightsAreRefusedAndTheModelBeforeStays) {
  const std::string weights = testing::RandomWeights({schema_.names.size(), 3});
  Install(folder_.path(), "reuse_v1", BundleJson("reuse_v1", schema_.hash), "", weights);
  const BundleWatcher watcher(config_, schema_, &model_, log_.sink());
  ASSERT_TRUE(WaitUntil([&] { return Name(watcher) == "reuse_v1"; }));
  Install(folder_.path(), "reuse_v2", BundleJson("reuse_v2", schema_.hash), "", weights.substr(0, weights.size() / 2));
  ASSERT_TRUE(WaitUntil([&] { return log_.Has("reuse_v2/weights.json"); }));
  EXPECT_EQ(Name(watcher), "reuse_v1");
  EXPECT_NE(watcher.current()->network, nullptr);
  testing::WriteFile(folder_.path() / "reuse_v2" / "weights.json", weights);
  EXPECT_TRUE(WaitUntil([&] { return Name(watcher) == "reuse_v2"; }));
}

TEST_F(BundleWatcherTest, WhereTheCopyAloneAnswersABundleNeedsOne) {
  config_.use = ModelUse::kEmbedded;
  Promote("reuse_v1");
  const BundleWatcher watcher(config_, schema_, &model_, log_.sink());
  ASSERT_TRUE(WaitUntil([&] { return log_.Has("weights.json: must be there"); }));
  EXPECT_EQ(watcher.current(), nullptr);
}

TEST_F(BundleWatcherTest, TheFirstGoesIntoUseUnaskedTheNextOnlyOnceItAnswers) {
  model_.warmth = Model::Warmth::kLater;
  Promote("reuse_v1");
  const BundleWatcher watcher(config_, schema_, &model_, log_.sink());
  ASSERT_TRUE(WaitUntil([&] { return Name(watcher) == "reuse_v1"; }));
  Promote("reuse_v2");
  ASSERT_TRUE(WaitUntil([&] { return log_.Has("not in use yet"); }));
  const int asked = model_.asked;
  ASSERT_TRUE(WaitUntil([&] { return model_.asked > asked + 3; }));
  EXPECT_EQ(Name(watcher), "reuse_v1");
  EXPECT_EQ(log_.Count("not in use yet"), 1u);
  model_.warmth = Model::Warmth::kReady;
  EXPECT_TRUE(WaitUntil([&] { return Name(watcher) == "reuse_v2"; }));
}

TEST_F(BundleWatcherTest, TheFirstIsWithdrawnWhenItsModelTurnsOutWrong) {
  model_.warmth = Model::Warmth::kLater;
  Promote("reuse_v1");
  const BundleWatcher watcher(config_, schema_, &model_, log_.sink());
  ASSERT_TRUE(WaitUntil([&] { return Name(watcher) == "reuse_v1"; }));
  model_.warmth = Model::Warmth::kWrong;
  EXPECT_TRUE(WaitUntil([&] { return watcher.current() == nullptr; }));
  EXPECT_TRUE(WaitUntil([&] { return log_.Has("withdrawn"); }));
}

}  // namespace
}  // namespace smartcache
