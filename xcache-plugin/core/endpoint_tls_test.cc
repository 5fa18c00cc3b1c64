// Behind TLS, with a CA bundle, which takes long to load where it is as long as a system's: no open ever does it.
#include "smartcache/endpoint.hh"
#include "testing/fixtures.hh"
#include "testing/system.hh"
#include "testing/tls_server.hh"

namespace smartcache {
namespace {

using testing::Authority;
using testing::WaitUntil;

class EndpointTlsTest : public ::testing::Test {
 protected:
  EndpointTlsTest() {
    config_.endpoint_url = server_.url();
    config_.deadline_ms = 5000;
    config_.breaker_failures = 1000000;
    config_.connections = 4;
    config_.ca_file = folder_ / "ca.pem";
    Believe(ours_);
    testing::WriteFile(folder_ / "bundle.json", testing::BundleJson("reuse_v3", schema_.hash));
    bundle_ = ReadBundle(folder_.path().string(), schema_);
  }

  ~EndpointTlsTest() override {
    EXPECT_EQ(by_opens_, 0u) << "an open has loaded the bundle";
    EXPECT_GT(testing::bundles_loaded, 0u) << "libcurl loads it by another function than the one that is counted";
  }

  void Believe(const Authority& authority) {
    testing::WriteFile(folder_ / "next.pem", authority.pem());
    std::filesystem::rename(folder_ / "next.pem", config_.ca_file);
  }
  Reason Open(EndpointModel& model) {
    Prediction prediction;
    const size_t before = testing::bundles_loaded_here;
    model.Predict(bundle_, features_.data(), Model::Clock::now(), &prediction);
    by_opens_ += testing::bundles_loaded_here - before;
    return prediction.reason();
  }

  const Authority ours_{"ours"}, theirs_{"theirs"};
  testing::TlsServer server_{ours_, "[0.25,0.25,0.5]"};
  testing::TempFolder folder_;
  const Schema schema_ = MakeSchema(ParseConfig("", "test"));
  ModelConfig config_ = ParseConfig("", "test").model;
  Bundle bundle_;
  Finding finding_;
  std::vector<float> features_ = std::vector<float>(schema_.names.size(), 0.1f);
  size_t by_opens_ = 0;
};

TEST_F(EndpointTlsTest, AfterARestartOfTheEndpointOpensConnectAndLoadNothing) {
  EndpointModel model(config_, features_.size());
  ASSERT_EQ(model.Warm(bundle_, &finding_), Model::Warmth::kReady) << finding_.why;
  EXPECT_EQ(server_.handshakes(), 4u);
  const size_t environment_reads = testing::environment_reads;
  for (size_t i = 0; i < 10; ++i) {
    server_.Restart(&ours_);
    const size_t before = server_.handshakes();
    ASSERT_EQ(Open(model), Reason::kModel) << i;
    ASSERT_GT(server_.handshakes(), before) << i;
  }
  EXPECT_EQ(testing::environment_reads, environment_reads);
}

TEST_F(EndpointTlsTest, WhereTheEndpointWasNotThereAtFirstTheBackgroundLoads) {
  server_.Restart(nullptr);
  EndpointModel model(config_, features_.size());
  EXPECT_EQ(model.Warm(bundle_, &finding_), Model::Warmth::kLater);
  EXPECT_EQ(Open(model), Reason::kUnreachable);
  server_.Restart(&ours_);
  EXPECT_TRUE(WaitUntil([&] { return Open(model) == Reason::kModel; }));
}

TEST_F(EndpointTlsTest, AChangedBundleIsBelievedAndAVanishedOneStaysInUse) {
  testing::LogLines log;
  EndpointModel model(config_, features_.size(), log.sink());
  ASSERT_EQ(model.Warm(bundle_, &finding_), Model::Warmth::kReady) << finding_.why;
  server_.Restart(&theirs_);
  EXPECT_EQ(Open(model), Reason::kUnreachable);
  Believe(theirs_);
  EXPECT_TRUE(WaitUntil([&] { return Open(model) == Reason::kModel; }));
  std::filesystem::remove(config_.ca_file);
  EXPECT_TRUE(WaitUntil([&] { return log.Has("[model] ca_file must be a file"); }));
  server_.Restart(&theirs_);
  EXPECT_EQ(Open(model), Reason::kModel);
}

TEST_F(EndpointTlsTest, ABundleThatIsNoneIsNamedAndTheOneBeforeStaysInUse) {
  testing::LogLines log;
  EndpointModel model(config_, features_.size(), log.sink());
  ASSERT_EQ(model.Warm(bundle_, &finding_), Model::Warmth::kReady) << finding_.why;
  testing::WriteFile(config_.ca_file, "-----BEGIN CERTIFICATE-----\nhalf of on");
  EXPECT_TRUE(WaitUntil([&] { return log.Has("[model] ca_file must be a file of certificates"); }));
  server_.Restart(&ours_);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Open(model), Reason::kModel) << i;
  EXPECT_EQ(model.Warm(bundle_, &finding_), Model::Warmth::kReady) << finding_.why;
  Believe(theirs_);
  server_.Restart(&theirs_);
  EXPECT_TRUE(WaitUntil([&] { return Open(model) == Reason::kModel; }));
}

TEST_F(EndpointTlsTest, AChangedBundleWhileNewConnectionsAreRefusedIsTriedOnceASecond) {
  EndpointModel model(config_, features_.size());
  ASSERT_EQ(model.Warm(bundle_, &finding_), Model::Warmth::kReady) << finding_.why;
  server_.RefuseNew();
  const auto first = std::chrono::steady_clock::now();
  Believe(theirs_);
  ASSERT_TRUE(WaitUntil([&] { return server_.refused() >= 1; }));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Open(model), Reason::kModel) << i;
  ASSERT_TRUE(WaitUntil([&] { return server_.refused() >= 3; }));
  EXPECT_GT(std::chrono::steady_clock::now() - first, std::chrono::milliseconds(1500));
  server_.Restart(&theirs_);
  EXPECT_TRUE(WaitUntil([&] { return Open(model) == Reason::kModel; }));
}

TEST_F(EndpointTlsTest, AChangedBundleWhileTheEndpointIsAwayIsLoadedOnceItIsBack) {
  EndpointModel model(config_, features_.size());
  ASSERT_EQ(model.Warm(bundle_, &finding_), Model::Warmth::kReady) << finding_.why;
  server_.Restart(nullptr);
  Believe(theirs_);
  EXPECT_TRUE(WaitUntil([&] { return Open(model) == Reason::kUnreachable; }));
  server_.Restart(&theirs_);
  EXPECT_TRUE(WaitUntil([&] { return Open(model) == Reason::kModel; }));
}

}  // namespace
}  // namespace smartcache
