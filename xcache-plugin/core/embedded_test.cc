// The embedded copy of a model, alone and in place of an endpoint.
#include "smartcache/embedded.hh"

#include <nlohmann/json.hpp>

#include "smartcache/endpoint_with_copy.hh"
#include "testing/fixtures.hh"

namespace smartcache {
namespace {

using nlohmann::json;
using Warmth = Model::Warmth;

class FakeEndpoint : public Model {
 public:
  void Predict(const Bundle& bundle, const float*, Clock::time_point, Prediction* out) noexcept override {
    ++asked;
    out->answered = result == Reason::kModel;
    out->result(Source::kEndpoint) = result;
    out->buckets = bundle.buckets;
    for (size_t i = 0; i < bundle.buckets; ++i) out->outputs[i] = i == 0 ? 1.0 : 0.0;
  }
  size_t rows_at_once() const noexcept override { return 7; }
  Warmth Warm(const Bundle&, Finding* finding) override {
    *finding = {"the endpoint says so", Reason::kInvalidReply};
    return warmth;
  }
  Reason result = Reason::kModel;
  Warmth warmth = Warmth::kReady;
  int asked = 0;
};

class EmbeddedTest : public ::testing::Test {
 protected:
  EmbeddedTest() {
    BundleTexts texts;
    texts.info = testing::BundleJson("reuse_v3", schema_.hash);
    texts.weights = testing::ConstantWeights(schema_.names.size(), {0.7, 0.2, 0.1});
    const std::vector<float> row(schema_.names.size(), 0.5f);
    texts.golden = json{{"inputs", {row}}, {"outputs", {{0.7, 0.2, 0.1}}}}.dump();
    good_ = ParseBundle(texts, "folder", schema_);
    texts.golden = json{{"inputs", {row, row}}, {"outputs", {{0.7, 0.2, 0.1}, {0.7001, 0.1999, 0.1}}}}.dump();
    wrong_ = ParseBundle(texts, "folder", schema_);
    texts.golden.reset();
    unchecked_ = ParseBundle(texts, "folder", schema_);
    texts.weights.reset();
    without_ = ParseBundle(texts, "folder", schema_);
  }
  Prediction Ask(Model& model, const Bundle& bundle) {
    Prediction prediction;
    const std::vector<float> features(schema_.names.size(), 0.1f);
    model.Predict(bundle, features.data(), Model::Clock::now(), &prediction);
    return prediction;
  }

  const Schema schema_ = MakeSchema(ParseConfig("", "test"));
  Bundle good_, wrong_, unchecked_, without_;
  Finding finding_;
};

TEST_F(EmbeddedTest, AnswersWithTheBundlesNetwork) {
  EmbeddedModel model;
  const Prediction prediction = Ask(model, good_);
  ASSERT_TRUE(prediction.answered);
  EXPECT_EQ(prediction.reason(), Reason::kModel);
  EXPECT_EQ(prediction.result(Source::kEmbedded), Reason::kModel);
  EXPECT_EQ(prediction.result(Source::kEndpoint), Reason::kNoModel);
  ASSERT_EQ(prediction.buckets, 3u);
  EXPECT_NEAR(prediction.outputs[0], 0.7, 1e-6);
  EXPECT_NEAR(prediction.outputs[2], 0.1, 1e-6);
  EXPECT_FALSE(Ask(model, without_).answered);
  EXPECT_EQ(Ask(model, without_).reason(), Reason::kNoModel);
}

TEST_F(EmbeddedTest, GoldenRowsAreCheckedToTheFifthDecimal) {
  EmbeddedModel model;
  EXPECT_EQ(model.Warm(good_, &finding_), Warmth::kReady);
  EXPECT_EQ(model.Warm(unchecked_, &finding_), Warmth::kReady);
  EXPECT_EQ(model.Warm(wrong_, &finding_), Warmth::kWrong);
  EXPECT_NE(finding_.why.find("in bucket 0 of golden row 1 where 0.7001"), std::string::npos) << finding_.why;
  EXPECT_EQ(model.Warm(without_, &finding_), Warmth::kLater);
}

TEST_F(EmbeddedTest, AnOverflowIsAnInvalidReply) {
  BundleTexts texts;
  texts.info = testing::BundleJson("reuse_v3", schema_.hash);
  json weights = json::parse(testing::ConstantWeights(schema_.names.size(), {0.7, 0.2, 0.1}));
  weights["layers"][0]["kernel"][0] = {3e38, -3e38, 3e38};
  weights["normalization"]["scale"][0] = 1e-30;
  texts.weights = weights.dump();
  const Bundle bundle = ParseBundle(texts, "folder", schema_);
  EmbeddedModel model;
  EXPECT_FALSE(Ask(model, bundle).answered);
  EXPECT_EQ(Ask(model, bundle).reason(), Reason::kInvalidReply);
}

class EndpointWithCopyTest : public EmbeddedTest {
 protected:
  FakeEndpoint* endpoint_ = new FakeEndpoint;  // owned by model_
  EndpointWithCopy model_{std::unique_ptr<Model>(endpoint_)};
};

TEST_F(EndpointWithCopyTest, TheEndpointIsAskedFirst) {
  ASSERT_EQ(model_.Warm(good_, &finding_), Warmth::kReady);
  const Prediction prediction = Ask(model_, good_);
  EXPECT_EQ(prediction.outputs[0], 1.0);
  EXPECT_EQ(prediction.reason(), Reason::kModel);
  EXPECT_EQ(prediction.result(Source::kEmbedded), Reason::kNoModel);
}

TEST_F(EndpointWithCopyTest, TheCopyAnswersWithTheReasonWhyTheEndpointDidNot) {
  ASSERT_EQ(model_.Warm(good_, &finding_), Warmth::kReady);
  for (const Reason why : {Reason::kDeadline, Reason::kBreakerOpen, Reason::kUnreachable, Reason::kInvalidReply, Reason::kError}) {
    endpoint_->result = why;
    const Prediction prediction = Ask(model_, good_);
    ASSERT_TRUE(prediction.answered);
    EXPECT_NEAR(prediction.outputs[0], 0.7, 1e-6);
    EXPECT_EQ(prediction.reason(), why);
    EXPECT_EQ(prediction.result(Source::kEmbedded), Reason::kModel);
  }
}

TEST_F(EndpointWithCopyTest, ForRowsAlikeTheCopyAnswersWhatTheEndpointDidNot) {
  const std::vector<float> features(schema_.names.size(), 0.1f);
  const std::vector<const float*> rows(3, features.data());
  const auto ask = [&] {
    std::vector<Prediction> predictions(rows.size());
    model_.PredictRows(good_, rows, predictions.data());
    return predictions;
  };
  EXPECT_EQ(model_.rows_at_once(), 7u);
  endpoint_->warmth = Warmth::kLater;
  ASSERT_EQ(model_.Warm(good_, &finding_), Warmth::kUsable);
  for (const Prediction& each : ask()) EXPECT_EQ(each.result(Source::kEmbedded), Reason::kModel);
  EXPECT_EQ(endpoint_->asked, 0);
  endpoint_->warmth = Warmth::kReady;
  ASSERT_EQ(model_.Warm(good_, &finding_), Warmth::kReady);
  for (const Prediction& each : ask()) EXPECT_EQ(each.outputs[0], 1.0);
  EXPECT_EQ(endpoint_->asked, 3);
  endpoint_->result = Reason::kDeadline;
  for (const Prediction& each : ask()) {
    EXPECT_EQ(each.reason(), Reason::kDeadline);
    EXPECT_NEAR(each.outputs[0], 0.7, 1e-6);
  }
}

TEST_F(EndpointWithCopyTest, AnEndpointThatHasNotShownThatItServesTheBundleIsNotAsked) {
  for (const Warmth warmth : {Warmth::kLater, Warmth::kWrong}) {
    endpoint_->warmth = warmth;
    ASSERT_EQ(model_.Warm(good_, &finding_), Warmth::kUsable);
    EXPECT_EQ(finding_.why, "the endpoint says so");
    const Prediction prediction = Ask(model_, good_);
    EXPECT_TRUE(prediction.answered);
    EXPECT_EQ(prediction.reason(), Reason::kInvalidReply);
    EXPECT_EQ(endpoint_->asked, 0);
  }
  endpoint_->warmth = Warmth::kReady;
  ASSERT_EQ(model_.Warm(good_, &finding_), Warmth::kReady);
  EXPECT_EQ(Ask(model_, good_).reason(), Reason::kModel);
  EXPECT_EQ(endpoint_->asked, 1);
  Ask(model_, unchecked_);  // another reading
  EXPECT_EQ(endpoint_->asked, 1);
}

TEST_F(EndpointWithCopyTest, AWrongCopyIsAWrongBundle) { EXPECT_EQ(model_.Warm(wrong_, &finding_), Warmth::kWrong); }

TEST_F(EndpointWithCopyTest, WithoutACopyAllIsTheEndpoints) {
  endpoint_->warmth = Warmth::kWrong;
  EXPECT_EQ(model_.Warm(without_, &finding_), Warmth::kWrong);
  endpoint_->warmth = Warmth::kLater;
  EXPECT_EQ(model_.Warm(without_, &finding_), Warmth::kLater);
  EXPECT_EQ(Ask(model_, without_).reason(), Reason::kModel);
  endpoint_->result = Reason::kDeadline;
  EXPECT_FALSE(Ask(model_, without_).answered);
  EXPECT_EQ(Ask(model_, without_).reason(), Reason::kDeadline);
}

}  // namespace
}  // namespace smartcache
