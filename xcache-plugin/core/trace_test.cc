#include "smartcache/trace.hh"

#include <gtest/gtest.h>

#include <vector>

namespace smartcache {
namespace {

TEST(Trace, ConcernsAreWords) {
  EXPECT_EQ(ParseConcerns("off"), 0u);
  EXPECT_EQ(ParseConcerns("decisions"), 1u);
  EXPECT_EQ(ParseConcerns(" evictor\tdecisions "), 5u);
  EXPECT_EQ(ParseConcerns("all"), ~0u);
  for (const char* bad : {"", " ", "loud", "decisions,model", "off model", "Decisions"}) EXPECT_EQ(ParseConcerns(bad), std::nullopt) << bad;
}

TEST(Trace, OnlyWhatIsOnIsSaid) {
  std::vector<std::string> said;
  const Trace trace(static_cast<unsigned>(Concern::kModel), [&](Concern, const std::string& text) { said.push_back(text); });
  trace(Concern::kDecisions, "a");
  trace(Concern::kModel, "b");
  EXPECT_EQ(said, std::vector<std::string>{"b"});
  EXPECT_FALSE(Trace().On(Concern::kModel));
}

}  // namespace
}  // namespace smartcache
