// What a million files cost: memory, the copy that is saved, the time to save and to restore it, and the first touch of new memory.
//   core_bench --benchmark_filter=History
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "smartcache/features.hh"
#include "smartcache/history_file.hh"
#include "smartcache/periodic.hh"

namespace smartcache {
namespace {

constexpr int64_t kT0 = INT64_C(1760000000000000);
constexpr int kFiles = 1000000, kDatasets = 3000;
using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from, Clock::time_point to) { return std::chrono::duration<double>(to - from).count(); }

double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  double total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

void OpenFile(FeatureCore* core, int i, std::vector<float>* row) {
  const std::string lfn = "/store/mc/Run3/D" + std::to_string(i % kDatasets) + "/NANOAODSIM/v1/" + std::to_string(i) + ".root";
  ParsedLfn parsed;
  core->Parse(lfn, &parsed);
  core->Observe({kT0 + i * INT64_C(100000), lfn, false, -1, 0.5f, 0.5f}, parsed, row->data());
}

double resident_bytes_of_million = 0;

// A core that has seen each of a million files. One for all benchmarks, whichever comes first.
FeatureCore& Million() {
  static const auto core = [] {
    const double before = ResidentBytes();
    auto made = std::make_unique<FeatureCore>(ParseConfig("", "bench"));
    std::vector<float> row(made->schema().names.size());
    for (int i = 0; i < kFiles; ++i) OpenFile(made.get(), i, &row);
    resident_bytes_of_million = ResidentBytes() - before;
    return made;
  }();
  return *core;
}

void BM_HistoryMemory(benchmark::State& state) {
  const History& history = Million().history();
  for (auto _ : state) benchmark::DoNotOptimize(history.memory_bytes());
  state.counters["files"] = static_cast<double>(history.files());
  state.counters["datasets"] = static_cast<double>(history.datasets());
  state.counters["history_MB"] = static_cast<double>(history.memory_bytes()) / 1e6;
  state.counters["resident_MB"] = resident_bytes_of_million / 1e6;
}
BENCHMARK(BM_HistoryMemory)->Iterations(1);

// For how long an open may have to wait for one step of the copy.
void BM_HistorySnapshotStep(benchmark::State& state) {
  History& history = Million().history();
  std::vector<double> steps;
  for (auto _ : state) {
    history.BeginSnapshot();
    std::vector<std::byte> copied;
    for (History::Step step = History::Step::kMore; step == History::Step::kMore;) {
      copied.clear();
      const auto start = Clock::now();
      step = history.CopySome(512, &copied);
      steps.push_back(Seconds(start, Clock::now()) * 1e6);
    }
    history.EndSnapshot();
  }
  std::sort(steps.begin(), steps.end());
  state.counters["p50_us"] = steps[steps.size() / 2];
  state.counters["p99_us"] = steps[steps.size() * 99 / 100];
  state.counters["max_us"] = steps.back();
}
BENCHMARK(BM_HistorySnapshotStep)->Unit(benchmark::kMillisecond);

std::string Saved() {
  const Config config = ParseConfig("", "bench");
  std::string bytes, why;
  std::mutex mutex;
  const auto sink = [&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return true;
  };
  WriteHistory(
      config, &Million().history(), &mutex, [] { return HistoryState{}; }, sink, &why);
  return bytes;
}

void BM_HistorySave(benchmark::State& state) {
  Million();
  size_t size = 0;
  for (auto _ : state) size = Saved().size();
  state.counters["file_MB"] = static_cast<double>(size) / 1e6;
}
BENCHMARK(BM_HistorySave)->Unit(benchmark::kMillisecond);

void BM_HistoryRestore(benchmark::State& state) {
  const Config config = ParseConfig("", "bench");
  const std::string bytes = Saved();
  for (auto _ : state) {
    FeatureCore core(config);
    HistoryState restored;
    std::string why;
    if (!RestoreHistory(bytes, config, &core.history(), &restored, &why)) state.SkipWithError(why.c_str());
  }
}
BENCHMARK(BM_HistoryRestore)->Unit(benchmark::kMillisecond);

// Microseconds of CPU that this thread has had, the system's for it included: who else wants the CPU does not count.
double ThreadCpuUs() {
  timespec now;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// Opens of new files, with memory backed ahead in the background (1) or when it is touched (0), at a rate of 50000 a second.
void BM_HistoryFirstTouch(benchmark::State& state) {
  std::vector<double> opens;
  for (auto _ : state) {
    FeatureCore core(ParseConfig("", "bench"));
    std::unique_ptr<Periodic> ahead;
    if (state.range(0) != 0) {
      core.history().Back();
      ahead = std::make_unique<Periodic>(1.0, [&] { core.history().Back(); });
    }
    std::vector<float> row(core.schema().names.size());
    auto next = Clock::now();
    for (int i = 0; i < 300000; ++i) {
      next += std::chrono::microseconds(20);
      while (Clock::now() < next) continue;
      const double start = ThreadCpuUs();
      OpenFile(&core, i, &row);
      opens.push_back(ThreadCpuUs() - start);
    }
  }
  std::sort(opens.begin(), opens.end());
  state.counters["p50_us"] = opens[opens.size() / 2];
  state.counters["p999_us"] = opens[opens.size() * 999 / 1000];
  state.counters["p9999_us"] = opens[opens.size() * 9999 / 10000];
  state.counters["max_us"] = opens.back();
}
BENCHMARK(BM_HistoryFirstTouch)->Arg(0)->Arg(1)->Iterations(1)->Unit(benchmark::kMillisecond);

// New files where the history is full: each has the least useful of eight go.
void BM_HistoryForgetting(benchmark::State& state) {
  FeatureCore core(ParseConfig("[history]\nmemory_bytes = 67108864", "bench"));
  std::vector<float> row(core.schema().names.size());
  int i = 0;
  // Half of what is remembered was opened more than once.
  for (; core.history().files() + core.history().datasets() < core.history().capacity(); ++i) {
    OpenFile(&core, i, &row);
    if (i % 2) OpenFile(&core, i, &row);
  }
  std::vector<double> opens;
  for (auto _ : state) {
    const auto start = Clock::now();
    OpenFile(&core, i++, &row);
    opens.push_back(Seconds(start, Clock::now()) * 1e9);
  }
  std::sort(opens.begin(), opens.end());
  state.counters["p50_ns"] = opens[opens.size() / 2];
  state.counters["p99_ns"] = opens[opens.size() * 99 / 100];
}
BENCHMARK(BM_HistoryForgetting)->Iterations(1000000);

}  // namespace
}  // namespace smartcache
