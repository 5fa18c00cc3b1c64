#include "smartcache/periodic.hh"

#include <signal.h>

#include <atomic>
#include <system_error>

#include "testing/fixtures.hh"
#include "testing/system.hh"

namespace smartcache {
namespace {

using testing::WaitUntil;

TEST(Periodic, RunsAtOnceAndAgainAndWhenWoken) {
  std::atomic<int> runs{0};
  Periodic often(0.005, [&] { ++runs; });
  EXPECT_TRUE(WaitUntil([&] { return runs >= 3; }));
  std::atomic<int> seldom_runs{0};
  Periodic seldom(1e6, [&] { ++seldom_runs; });
  EXPECT_TRUE(WaitUntil([&] { return seldom_runs == 1; }));
  seldom.Wake();
  EXPECT_TRUE(WaitUntil([&] { return seldom_runs == 2; }));
}

// A wait for a time of day that was taken before the clock went back by an hour lasts an hour.
TEST(Periodic, AClockThatIsSetBackStopsNothing) {
  testing::clock_offset_s = 3600;
  std::atomic<int> runs{0};
  const Periodic periodic(0.005, [&] { ++runs; });
  EXPECT_TRUE(WaitUntil([&] { return runs >= 5; }));
  testing::clock_offset_s = 0;
}

TEST(Periodic, WithoutAThreadTheSignalsAreAsTheyWere) {
  testing::no_threads = true;
  EXPECT_THROW(Periodic(1, [] {}), std::system_error);
  testing::no_threads = false;
  sigset_t blocked;
  sigemptyset(&blocked);
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGTERM), 0);
}

}  // namespace
}  // namespace smartcache
