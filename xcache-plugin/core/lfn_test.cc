#include "smartcache/lfn.hh"

#include <gtest/gtest.h>

namespace smartcache {
namespace {

ParsedLfn Parsed(const LfnParser& parser, std::string_view lfn) {
  ParsedLfn parsed{};
  parser.Parse(lfn, &parsed);
  return parsed;
}

TEST(Lfn, DatasetIsTheFirstLevelsOrThoseOfTheFirstRuleThatFits) {
  const LfnParser parser({3, {{"/a/b/", 2}, {"/a/", 1}}}, 8);
  EXPECT_EQ(parser.DatasetOf("/x/y/z/w/f"), "/x/y/z");
  EXPECT_EQ(parser.DatasetOf("/x/f"), "/x");
  EXPECT_EQ(parser.DatasetOf("/f"), "/");
  EXPECT_EQ(parser.DatasetOf(""), "/");
  EXPECT_EQ(parser.DatasetOf("/a/b/c/f"), "/a/b");
  EXPECT_EQ(parser.DatasetOf("/a/c/d/f"), "/a");
}

TEST(Lfn, HashesFollowTheNames) {
  const LfnParser parser({2, {}}, 8);
  const ParsedLfn a = Parsed(parser, "/x/y/z/f"), b = Parsed(parser, "/x/y/w/g"), c = Parsed(parser, "/x/v/z/f");
  EXPECT_EQ(a.dataset, b.dataset);
  EXPECT_NE(a.dataset, c.dataset);
  EXPECT_NE(a.file, b.file);
  EXPECT_EQ(a.file, Parsed(parser, "//x/y///z/f").file);
  EXPECT_NE(Parsed(parser, "/ab/c").file, Parsed(parser, "/a/bc").file);
  // A dataset and a file of the same name are two things.
  EXPECT_NE(Parsed(parser, "/x/y").file, a.dataset);
}

TEST(Lfn, TokensAreDirectoriesWithoutTheirNumbers) {
  const LfnParser parser({2, {}}, 64);
  const ParsedLfn a = Parsed(parser, "/Run2017B/f1"), b = Parsed(parser, "/Run18B/g"), c = Parsed(parser, "/RunB/g");
  double sum = 0;
  bool same_c = true;
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(a.tokens[i], b.tokens[i]);
    same_c = same_c && a.tokens[i] == c.tokens[i];
    sum += a.tokens[i] * a.tokens[i];
  }
  EXPECT_FALSE(same_c);
  EXPECT_EQ(sum, 1);
}

TEST(Lfn, AnyBytesWillDo) {
  const LfnParser parser({5, {}}, 0);
  for (const std::string_view lfn : {std::string_view("\xff\x00/\x01", 4), std::string_view("////"), std::string_view("a")})
    Parsed(parser, lfn);
}

}  // namespace
}  // namespace smartcache
