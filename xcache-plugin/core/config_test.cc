#include "smartcache/config.hh"

#include <sys/stat.h>

#include "testing/fixtures.hh"

namespace smartcache {
namespace {

std::string ErrorOf(const std::string& toml) {
  try {
    ParseConfig(toml, "site.toml");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Config, ReferenceIsCompleteAndInRange) {
  const Config config = ParseConfig("", "defaults");
  EXPECT_TRUE(config.policy.fallback_admit);
  EXPECT_FALSE(config.features.half_lives_s.empty());
  EXPECT_GT(config.model.deadline_ms, 0);
}

TEST(Config, OverlayChangesOnlyWhatItNames) {
  const Config reference = ParseConfig("", "defaults");
  const Config config = ParseConfig("[policy]\nfallback = \"bypass\"\n[model]\ndeadline_ms = 3\n", "site.toml");
  EXPECT_FALSE(config.policy.fallback_admit);
  EXPECT_EQ(config.model.deadline_ms, 3.0);  // an integer where a number is expected
  EXPECT_EQ(config.policy.explore, reference.policy.explore);
}

TEST(Config, RulesArePrefixAndLevels) {
  const Config config = ParseConfig("[dataset]\nrules = [{ prefix = \"/store/user/\", levels = 4 }]", "site.toml");
  ASSERT_EQ(config.dataset.rules.size(), 1u);
  EXPECT_EQ(config.dataset.rules[0].prefix, "/store/user/");
  EXPECT_EQ(config.dataset.rules[0].levels, 4);
}

TEST(Config, EndpointsThatAreUrls) {
  for (const std::string url :
       {"", "http://h", "https://host.example.org", "http://127.0.0.1:8083", "https://[::1]:8443/models/a/", "http://h/a:b"})
    EXPECT_EQ(ParseConfig("[model]\nendpoint_url = \"" + url + "\"", "site.toml").model.endpoint_url, url);
}

struct Bad {
  const char* toml;
  std::vector<const char*> parts;
};

// Shown in the test's name.
void PrintTo(const Bad& bad, std::ostream* out) { *out << ::testing::PrintToString(bad.toml); }

class BadConfig : public ::testing::TestWithParam<Bad> {};

TEST_P(BadConfig, NamesSourceFieldRuleValueAndFix) {
  const std::string error = ErrorOf(GetParam().toml);
  EXPECT_NE(error.find("site.toml"), std::string::npos) << error;
  for (const char* part : GetParam().parts) EXPECT_NE(error.find(part), std::string::npos) << part << " in: " << error;
}

INSTANTIATE_TEST_SUITE_P(All, BadConfig,
                         ::testing::Values(Bad{"[modle]\n", {"unknown section [modle]", "did you mean \"model\"?"}},
                                           Bad{"[zzzzzzzzzz]\n", {"unknown section [zzzzzzzzzz]", "known are", "history"}},
                                           Bad{"model = 3", {"[model]", "must be a table", "3"}},
                                           Bad{"[model]\nendpoint = \"x\"", {"[model]", "unknown key \"endpoint\""}},
                                           Bad{"[spark]\nmastr = \"x\"", {"[spark]", "did you mean \"master\"?"}},
                                           Bad{"[model]\nuse = \"tfaas\"", {"[model] use", "\"endpoint+embedded\", \"endpoint\"", "tfaas"}},
                                           Bad{"[model]\ndeadline_ms = \"5\"", {"deadline_ms", "a number", "5"}},
                                           Bad{"[model]\nconnections = 2.5", {"connections", "an integer", "2.5"}},
                                           Bad{"[model]\ndeadline_ms = 0", {"deadline_ms", "more than 0 and at most 1000", "is 0"}},
                                           Bad{"[model]\ndeadline_ms = nan", {"deadline_ms", "more than 0"}},
                                           Bad{"[evictor]\nlow = 1", {"low", "less than high", "is 1 where high is 0.9"}},
                                           Bad{"[evictor]\nbenefit = \"files\"", {"benefit", "\"open\" or \"byte\"", "files"}},
                                           Bad{"[model]\nbundle_dir = \"models\"", {"bundle_dir", "absolute path", "models"}},
                                           Bad{"[model]\nendpoint_url = \"ftp://x\"", {"endpoint_url", "http://", "ftp://x"}},
                                           Bad{"[model]\nendpoint_url = \"http://\"", {"endpoint_url", "a host"}},
                                           Bad{"[model]\nendpoint_url = \"http://h:99999\"", {"endpoint_url", "a port", "h:99999"}},
                                           Bad{"[model]\nendpoint_url = \"http://h:\"", {"endpoint_url", "a port"}},
                                           Bad{"[model]\nendpoint_url = \"http://h x\"", {"endpoint_url", "h x"}},
                                           Bad{"[model]\nendpoint_url = \"http://[::1\"", {"endpoint_url", "[::1"}},
                                           Bad{"[model]\nendpoint_url = \"http://u:p@h\"", {"endpoint_url", "token_file"}},
                                           Bad{"[model]\nendpoint_url = \"http://h/?a=b\"", {"endpoint_url", "?a=b"}},
                                           Bad{"[model]\ntoken_file = \"token\"", {"[model] token_file", "absolute path", "\"token\""}},
                                           Bad{"[model]\nca_file = \"ca.pem\"", {"[model] ca_file", "absolute path", "ca.pem"}},
                                           Bad{"[plugin_metrics]\ntextfile = \"a.prom\"", {"[plugin_metrics] textfile", "absolute path"}},
                                           Bad{"[policy]\nexplore = -0.1", {"explore", "at least 0 and at most 1", "-0.1"}},
                                           Bad{"[policy]\nfallback = \"store\"", {"fallback", "\"admit\" or \"bypass\"", "store"}},
                                           Bad{"[policy]\nnever_admit = [\"store\"]", {"never_admit", "begins with / or *", "store"}},
                                           Bad{"[policy]\nalways_admit = [\"/store/[a\"]",
                                               {"always_admit", "whose [ has its ]", "/store/[a"}},
                                           Bad{"[policy]\npressure = [[0.9, 1.0], [0.9, 2.0]]", {"pressure", "which rises"}},
                                           Bad{"[policy]\npressure = [[0.9, 0.0]]", {"pressure", "positive factor"}},
                                           Bad{"[policy]\npressure = [0.9, 1.0]", {"pressure", "pairs"}},
                                           Bad{"[budget]\nobjects = -1", {"[budget] objects", "at least 0", "-1"}},
                                           Bad{"[budget]\nburst_s = 0", {"[budget] burst_s", "more than 0"}},
                                           Bad{"[plugin_metrics]\nbind = \"localhost\"", {"bind", "an IP address", "localhost"}},
                                           Bad{"[trace]\nlevel = \"loud\"", {"[trace] level", "decisions", "loud"}},
                                           Bad{"[history]\nmemory_bytes = 10", {"memory_bytes", "at least 65536", "10"}},
                                           Bad{"[features]\nhalf_lives_s = []", {"half_lives_s", "1 to 8"}},
                                           Bad{"[features]\nhalf_lives_s = [3600.0, 3600.0]", {"half_lives_s", "rise"}},
                                           Bad{"[features]\ntoken_buckets = 65", {"token_buckets", "at most 64", "65"}},
                                           Bad{"[dataset]\nrules = [{ prefix = \"/a\", level = 4 }]", {"rules", "prefix", "levels"}},
                                           Bad{"[decision_log]\nport = 70000", {"port", "at most 65535", "70000"}},
                                           Bad{"[~policy]\n", {"not TOML", "line 1"}}, Bad{"[policy\n", {"not TOML", "line 1"}}));

TEST(Config, FileThatCannotBeRead) {
  try {
    LoadConfig("/nonexistent/smartcache.toml");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent/smartcache.toml: cannot be read"), std::string::npos);
  }
}

TEST(Config, WhatIsNoFileOfReasonableSizeIsNotRead) {
  const testing::TempFolder folder;
  testing::WriteFile(folder / "large.toml", std::string((1 << 20) + 1, '\n'));
  ASSERT_EQ(::mkfifo((folder / "pipe.toml").c_str(), 0600), 0);
  for (const std::string& path : {folder / "large.toml", folder / "pipe.toml", folder / "", std::string("/dev/zero")})
    EXPECT_THROW(LoadConfig(path), ConfigError) << path;
}

TEST(Config, EmptyFileIsTheReference) {
  const testing::TempFolder folder;
  testing::WriteFile(folder / "empty.toml", "");
  EXPECT_EQ(LoadConfig(folder / "empty.toml").policy.explore, ParseConfig("", "defaults").policy.explore);
}

}  // namespace
}  // namespace smartcache
