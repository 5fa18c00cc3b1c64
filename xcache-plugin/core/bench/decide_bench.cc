// What an open costs in the core: parse the LFN, compute the features, record the open; and the whole of Decide without a model.
//   core_bench --benchmark_repetitions=5
// `p50_ns` and `p99_ns` are of single calls, the clock's own cost (about 25 ns) included.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "smartcache/decider.hh"
#include "testing/fixtures.hh"

namespace smartcache {
namespace {

constexpr int64_t kT0 = INT64_C(1760000000000000);

// Files of a few thousand datasets, drawn by a power law: some hot, most cold.
std::vector<std::string> Lfns(size_t files) {
  std::mt19937_64 random(1);
  std::vector<std::string> lfns;
  for (size_t i = 0; i < files; ++i) {
    const auto d = random() % 3000;
    lfns.push_back("/store/mc/Run3Summer" + std::to_string(d % 20) + "/DYto2L_Bin-" + std::to_string(d) + "/NANOAODSIM/130X_mcRun3_v" +
                   std::to_string(d % 3) + "/2520000/" + std::to_string(random()) + "-aaaa-bbbb.root");
  }
  return lfns;
}

class Stream {
 public:
  explicit Stream(size_t files) : lfns_(Lfns(files)) {
    std::mt19937_64 random(2);
    std::uniform_real_distribution<double> uniform;
    for (size_t i = 0; i < (1u << 20); ++i)
      picks_.push_back(static_cast<uint32_t>(std::pow(uniform(random), 3.0) * static_cast<double>(files)));
  }
  const std::string& Next() { return lfns_[picks_[at_++ & ((1u << 20) - 1)]]; }
  Open NextOpen() { return Open{t_us_ += 100000, Next(), false, -1, 0.5f}; }

 private:
  std::vector<std::string> lfns_;
  std::vector<uint32_t> picks_;
  size_t at_ = 0;
  int64_t t_us_ = kT0;
};

template <typename Work>
void Measure(benchmark::State& state, Work work) {
  std::vector<double> samples;
  samples.reserve(1u << 22);
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const auto end = std::chrono::steady_clock::now();
    samples.push_back(std::chrono::duration<double, std::nano>(end - start).count());
  }
  std::sort(samples.begin(), samples.end());
  state.counters["p50_ns"] = samples[samples.size() / 2];
  state.counters["p99_ns"] = samples[samples.size() * 99 / 100];
  state.counters["max_us"] = samples.back() / 1000;
}

void BM_Features(benchmark::State& state) {
  FeatureCore core(ParseConfig("", "bench"));
  Stream stream(static_cast<size_t>(state.range(0)));
  std::vector<float> row(core.schema().names.size());
  ParsedLfn parsed;
  Measure(state, [&] {
    const Open open = stream.NextOpen();
    core.Parse(open.lfn, &parsed);
    core.Observe(open, parsed, row.data());
    benchmark::DoNotOptimize(row.data());
  });
}
BENCHMARK(BM_Features)->Arg(1000)->Arg(100000)->Arg(1000000);

void BM_Decide(benchmark::State& state) {
  Config config = ParseConfig("", "bench");
  config.decision_log.port = 0;
  Decider decider(config, "host:1094", 0, 1, [](const std::string&) {});
  Stream stream(100000);
  int64_t t_us = kT0;
  Measure(state, [&] { benchmark::DoNotOptimize(decider.Decide(t_us += 100000, stream.Next(), false, -1, 0.5f)); });
}
BENCHMARK(BM_Decide);

// With the model asked: what HTTP costs when the server answers at once.
void BM_DecideWithEndpoint(benchmark::State& state) {
  testing::Server server;
  server.RespondJson("[0.7,0.2,0.1]");
  const testing::TempFolder folder;
  Config config = ParseConfig("", "bench");
  config.decision_log.port = 0;
  config.model.endpoint_url = server.url();
  config.model.bundle_dir = folder.path().string();
  testing::Install(folder.path(), "reuse_v1", testing::BundleJson("reuse_v1", MakeSchema(config).hash));
  Decider decider(config, "host:1094", 0, 1, [](const std::string&) {});
  if (!testing::WaitUntil([&] { return decider.model_name() == "reuse_v1"; })) state.SkipWithError("no model");
  Stream stream(100000);
  int64_t t_us = kT0;
  Measure(state, [&] { benchmark::DoNotOptimize(decider.Decide(t_us += 100000, stream.Next(), false, -1, 0.5f)); });
  state.counters["answered"] = static_cast<double>(decider.counters()->asked(Reason::kModel)) / static_cast<double>(state.iterations());
}
BENCHMARK(BM_DecideWithEndpoint)->UseRealTime();

void BM_DecideContended(benchmark::State& state) {
  static std::unique_ptr<Decider> decider;
  if (state.thread_index() == 0) {
    Config config = ParseConfig("", "bench");
    config.decision_log.port = 0;
    decider = std::make_unique<Decider>(config, "host:1094", 0, 1, [](const std::string&) {});
  }
  Stream stream(10000);
  int64_t t_us = kT0;
  for (auto _ : state) benchmark::DoNotOptimize(decider->Decide(t_us += 100000, stream.Next(), false, -1, 0.5f));
}
BENCHMARK(BM_DecideContended)->Threads(2)->Threads(8)->UseRealTime();

}  // namespace
}  // namespace smartcache

BENCHMARK_MAIN();
