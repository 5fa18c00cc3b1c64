#include "smartcache/pattern.hh"

#include <gtest/gtest.h>

#include <ctime>
#include <random>
#include <stdexcept>

namespace smartcache {
namespace {

bool Fits(const char* pattern, std::string_view lfn) { return Pattern(pattern).Matches(lfn); }

TEST(Pattern, WithoutWildcardItIsAPrefix) {
  EXPECT_TRUE(Fits("/store/user/", "/store/user/a/b"));
  EXPECT_TRUE(Fits("/store/us", "/store/user"));
  EXPECT_TRUE(Fits("/store/user", "/store/user"));
  EXPECT_FALSE(Fits("/store/user/", "/store/user"));
  EXPECT_FALSE(Fits("/store/user/", "/x/store/user/"));
}

TEST(Pattern, WithOneItIsTheWholeLfn) {
  EXPECT_TRUE(Fits("/store/*/GEN-SIM/*", "/store/mc/a/b/GEN-SIM/f"));
  EXPECT_FALSE(Fits("/store/*/GEN-SIM/*", "/store/mc/GEN-SIMS/f"));
  EXPECT_FALSE(Fits("/store/*/GEN-SIM/*", "/store/GEN-SIM/f"));  // the two slashes are two
  EXPECT_TRUE(Fits("*.root", "/a/b.root"));
  EXPECT_FALSE(Fits("*.root", "/a/b.root.1"));
  EXPECT_TRUE(Fits("*", "/"));
  EXPECT_TRUE(Fits("/a*", "/a"));
  EXPECT_TRUE(Fits("/a**b", "/ab"));
  EXPECT_TRUE(Fits("/a?c", "/abc"));
  EXPECT_FALSE(Fits("/a?c", "/abcd"));
  EXPECT_FALSE(Fits("/a?c", "/ac"));
  EXPECT_FALSE(Fits("/ab*ba", "/aba"));  // the two ends do not share a byte
  EXPECT_TRUE(Fits("/Run20[12][0-9][!A-C]/*", "/Run2018D/f"));
  EXPECT_FALSE(Fits("/Run20[12][0-9][!A-C]/*", "/Run2018B/f"));
  EXPECT_TRUE(Fits("/[]]", "/]"));
  EXPECT_TRUE(Fits("/[a-]", "/-"));
  EXPECT_TRUE(Fits("/[\\]-a]", "/^"));
  EXPECT_TRUE(Fits("/\\*", "/*"));
  EXPECT_FALSE(Fits("/\\*", "/a"));
  EXPECT_TRUE(Fits("*a?c*", "/xxabaacx"));
}

TEST(Pattern, AnyBytes) {
  EXPECT_TRUE(Fits("/\xff*", std::string_view("/\xff\x00x", 4)));
  EXPECT_TRUE(Fits("/[\x80-\xff]", "/\xe9"));
  EXPECT_FALSE(Fits("/a*", ""));
}

TEST(Pattern, WhatIsNoneSaysTheRule) {
  for (const char* bad : {"", "store/*", "?a", "/[a", "/[", "/[!", "/[z-a]", "/a\\", "/[\\"})
    EXPECT_THROW(Pattern{bad}, std::invalid_argument) << bad;
  EXPECT_THROW(Pattern("/" + std::string(256, 'a')), std::invalid_argument);
  EXPECT_NO_THROW(Pattern("/" + std::string(255, 'a')));
}

// The plain definition, which takes exponential time on bad luck: the oracle for short texts.
bool Oracle(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') return Oracle(pattern.substr(1), text) || (!text.empty() && Oracle(pattern, text.substr(1)));
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) && Oracle(pattern.substr(1), text.substr(1));
}

TEST(Pattern, FitsWhatTheDefinitionFits) {
  std::mt19937 random(1);
  int fitted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string pattern = "/", text = "/";
    for (auto n = random() % 7; n > 0; --n) pattern += "ab*?"[random() % 4];
    for (auto n = random() % 9; n > 0; --n) text += "ab"[random() % 2];
    if (pattern.find_first_of("*?") == std::string::npos) continue;
    ASSERT_EQ(Fits(pattern.c_str(), text), Oracle(pattern, text)) << pattern << " " << text;
    fitted += Oracle(pattern, text);
  }
  EXPECT_GT(fitted, 1000);
}

// A client names the LFN: none may cost much. A matcher that comes back to its stars would not end.
TEST(Pattern, NoLfnIsSlow) {
  const std::string lfn = "/" + std::string(4096, 'a');
  std::string stars, sets = "*";
  while (stars.size() < 250) stars += "*a";
  for (int i = 0; i < 80; ++i) sets += "?";
  const std::clock_t start = std::clock();
  EXPECT_FALSE(Fits((stars + "*b").c_str(), lfn));
  EXPECT_FALSE(Fits((sets + "b*").c_str(), lfn));
  EXPECT_FALSE(Fits(("*" + std::string(200, 'a') + "b*").c_str(), lfn));
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 0.5);  // of the processor
}

}  // namespace
}  // namespace smartcache
