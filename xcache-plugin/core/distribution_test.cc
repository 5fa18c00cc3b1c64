#include "smartcache/distribution.hh"

#include <gtest/gtest.h>

#include <string>

namespace smartcache {
namespace {

bool Parses(std::string_view text) {
  double out[3];
  return ParseDistribution(text, 3, out);
}

TEST(Distribution, AnArrayOfThatManyNumbersThatSumToOne) {
  double out[3];
  ASSERT_TRUE(ParseDistribution(" [ 0.5,\t2.5e-1 ,0.25\n] ", 3, out));
  EXPECT_EQ(out[0], 0.5);
  EXPECT_EQ(out[1], 0.25);
  EXPECT_TRUE(Parses("[1,0,0]"));
  EXPECT_TRUE(Parses("[0.3333333,0.3333333,0.3333333]"));
}

TEST(Distribution, NothingElse) {
  for (const char* bad : {"",          "[",           "[]",          "{}",
                          "null",      "[1,0]",       "[1,0,0,0]",   "[1,0,0",
                          "[1,0,0]]",  "[1,0,0],",    "[0.5,0.5,]",  "[0.5,0.25,0.2]",
                          "[nan,1,0]", "[inf,0,0]",   "[-0,1,0]",    "[-0.5,1,0.5]",
                          "[2,0,0]",   "[1e400,0,0]", "[\"1\",0,0]", "[1 0 0]",
                          "[0x1,0,0]", "[+1,0,0]",    "[[1,0,0]]"})
    EXPECT_FALSE(Parses(bad)) << bad;
  EXPECT_FALSE(Parses(std::string("[1,0,0]\0", 8)));
}

TEST(Distribution, SeveralOfThem) {
  double first[3], second[3];
  double* const out[] = {first, second};
  ASSERT_TRUE(ParseDistributions(" [ [0.5, 0.25, 0.25],\n[0,0,1] ]\n", 2, 3, out));
  EXPECT_EQ(first[0], 0.5);
  EXPECT_EQ(second[2], 1.0);
  for (const char* bad :
       {"", "[]", "[1,0,0]", "[[1,0,0]]", "[[1,0,0],]", "[[1,0,0],[1,0,0],[1,0,0]]", "[[1,0,0][1,0,0]]", "[[1,0,0],[1,0]]",
        "[[1,0,0],[0.5,0,0]]", "[[1,0,0],[1,0,0]", "[[1,0,0],[1,0,0]]]", "[[1,0,0],null]", "[[[1,0,0],[1,0,0]]]"})
    EXPECT_FALSE(ParseDistributions(bad, 2, 3, out)) << bad;
}

}  // namespace
}  // namespace smartcache
