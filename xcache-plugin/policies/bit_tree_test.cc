#include "policies/bit_tree.hh"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace smartcache {
namespace {

TEST(BitTree, AgreesWithASet) {
  std::mt19937_64 random(3);
  for (const size_t bound : {1, 2, 63, 64, 65, 4096, 4097, 300000}) {
    BitTree tree(bound);
    std::set<size_t> set;
    for (int i = 0; i < 3000; ++i) {
      const size_t n = random() % bound;
      if (random() % 2) {
        tree.Insert(n);
        set.insert(n);
      } else {
        tree.Erase(n);
        set.erase(n);
      }
      ASSERT_EQ(tree.empty(), set.empty());
      if (!set.empty()) {
        ASSERT_EQ(tree.Greatest(), *set.rbegin());
      }
    }
  }
}

TEST(BitTree, OfNothing) { EXPECT_TRUE(BitTree(0).empty()); }

}  // namespace
}  // namespace smartcache
