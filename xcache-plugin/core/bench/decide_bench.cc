// What an open costs in the core, step by step and as a whole. (Memory: history_bench.cc.)
//   core_bench --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true --benchmark_format=json
// `p50_ns`, `p99_ns` and `p999_ns` are of single calls, of all threads together, the clock's own cost (BM_Clock) included.
#include <benchmark/benchmark.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cmath>
#include <functional>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "smartcache/decider.hh"
#include "smartcache/file_portfolio.hh"
#include "smartcache/hash.hh"
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

// Times each call of `work` on all threads of the benchmark and shows the percentiles of all of them.
template <typename Work>
void Measure(benchmark::State& state, Work work) {
  static std::mutex mutex;
  static std::vector<double> all;
  static int finished = 0;
  std::vector<double> samples;
  samples.reserve(1u << 20);
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const auto end = std::chrono::steady_clock::now();
    samples.push_back(std::chrono::duration<double, std::nano>(end - start).count());
  }
  const std::lock_guard<std::mutex> lock(mutex);
  all.insert(all.end(), samples.begin(), samples.end());
  if (++finished < state.threads()) return;
  std::sort(all.begin(), all.end());
  for (const auto& [name, part] : {std::pair("p50_ns", 0.5), std::pair("p99_ns", 0.99), std::pair("p999_ns", 0.999)})
    state.counters[name] = all[static_cast<size_t>(static_cast<double>(all.size() - 1) * part)];
  all.clear();
  finished = 0;
}

void BM_Clock(benchmark::State& state) {
  Measure(state, [] {});
}
BENCHMARK(BM_Clock);

// On one thread, on several, and on as many as there are cores.
template <typename Benchmark>
void OnThreads(Benchmark* bench) {
  for (const int threads : std::set<int>{1, 8, static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))})
    bench->Threads(threads);
  bench->UseRealTime();
}

// Of what the next one measures: the names, and file and dataset found or made and become the newest.
void BM_History(benchmark::State& state) {
  const Config config = ParseConfig("", "bench");
  const LfnParser parser(config.dataset, config.features.token_buckets);
  History history(config.history, config.features.half_lives_s);
  Stream stream(static_cast<size_t>(state.range(0)));
  ParsedLfn parsed;
  const auto touch = [&](uint64_t key, History::Kind kind, int64_t t_us) {
    if (History::Entry* const entry = history.Find(key, kind))
      history.Touch(entry);
    else
      benchmark::DoNotOptimize(history.Insert(key, kind, t_us));
  };
  Measure(state, [&] {
    const Open open = stream.NextOpen();
    parser.Parse(open.lfn, &parsed);
    touch(parsed.file, History::Kind::kFile, open.t_us);
    touch(parsed.dataset, History::Kind::kDataset, open.t_us);
  });
}
BENCHMARK(BM_History)->Arg(1000)->Arg(100000)->Arg(1000000);

void BM_HistoryAndFeatures(benchmark::State& state) {
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
BENCHMARK(BM_HistoryAndFeatures)->Arg(1000)->Arg(100000)->Arg(1000000);

void BM_SideTable(benchmark::State& state) {
  std::vector<std::string> names, rows;
  for (int64_t i = 0; i < state.range(0); ++i) names.push_back("/store/mc/Run3/D" + std::to_string(i) + "/NANOAODSIM/v1");
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) rows.push_back(testing::SideTableRow(name, 7, kT0 - 1000));
  const SideTable table(testing::SideTableText(1, kT0, rows), "bench");
  std::vector<uint64_t> keys;
  std::mt19937_64 random(4);
  for (size_t i = 0; i < (1u << 20); ++i) keys.push_back(LfnParser::DatasetKey(names[random() % names.size()]) + i % 2);
  size_t at = 0;
  Measure(state, [&] { benchmark::DoNotOptimize(table.Find(keys[at++ & (keys.size() - 1)])); });
  state.counters["memory_bytes"] = static_cast<double>(table.memory_bytes());
}
BENCHMARK(BM_SideTable)->Arg(1000)->Arg(100000)->Arg(1000000);

constexpr size_t kHidden[] = {64, 32}, kOutputs = 3;  // as [training] hidden; BundleJson has three buckets

std::string Weights(const Config& config) {
  return testing::RandomWeights({MakeSchema(config).names.size(), kHidden[0], kHidden[1], kOutputs});
}

void BM_EmbeddedModel(benchmark::State& state) {
  static std::unique_ptr<const Network> network;  // one for all threads, as in the plugin
  if (state.thread_index() == 0)
    network = std::make_unique<const Network>(Weights(ParseConfig("", "bench")), "bench", static_cast<Network::Code>(state.range(0)));
  std::vector<float> row, outputs;
  Measure(state, [&] {
    if (row.empty()) {  // the network is there once the measuring begins
      row.assign(network->inputs(), 0.3f);
      outputs.resize(network->outputs());
    }
    network->Evaluate(row.data(), outputs.data());
    benchmark::DoNotOptimize(outputs.data());
    row[0] = outputs[0];
  });
}
// Each code that this CPU can run: portable, AVX2, AVX-512.
BENCHMARK(BM_EmbeddedModel)->Apply([](auto* bench) {
  for (const Network::Code code : Network::Runnable()) bench->Arg(static_cast<int64_t>(code));
  OnThreads(bench);
});

// What the portfolio adds to an open, for files of which it knows 100 000 and a model that speaks of each; the cache holds a tenth of them.
void BM_Portfolio(benchmark::State& state) {
  constexpr size_t kFiles = 100000;
  constexpr int64_t kBytes = 1000;
  constexpr double kEdges[] = {3600, 86400}, kSays[] = {0.3, 0.3, 0.4};
  FilePortfolio portfolio({true, INT64_C(256) << 20, ""}, kBytes, true, true);
  portfolio.Room(kBytes * kFiles / 10);
  portfolio.Tidy();
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> uniform;
  int64_t t_us = kT0;
  const auto open = [&] {
    const auto file = static_cast<uint64_t>(std::pow(uniform(random), 3.0) * kFiles);
    const Forecast forecast{kEdges, 2, 1, 3600, kSays, true};
    return portfolio.Opened({Mix(file), file % 3000, t_us += 100000, kBytes, 1.0, 0.3}, &forecast).stores;
  };
  for (size_t i = 0; i < 10 * kFiles; ++i) {
    if (i % 1024 == 0) portfolio.Tidy();
    open();
  }
  Measure(state, [&] { benchmark::DoNotOptimize(open()); });
}
BENCHMARK(BM_Portfolio);

void BM_Policy(benchmark::State& state) {
  Config config = ParseConfig("[policy]\nalways_admit = [\"/store/keep/\"]\nnever_admit = [\"/store/*/temp/*\"]\n", "bench");
  const Policy policy(config.policy);
  Stream stream(1000);
  double uniform = 0;
  Measure(state, [&] {
    const auto rule = policy.ByRule(stream.Next(), false);
    uniform = uniform < 0.9 ? uniform + 0.01 : 0;
    const Scored scored{uniform, policy.UnderPressure(0.5, 0.93f), 0.1, Reason::kModel};
    benchmark::DoNotOptimize(rule ? *rule : policy.ByScore(scored, false, uniform));
  });
}
BENCHMARK(BM_Policy)->Apply([](auto* bench) { OnThreads(bench); });

Config WithoutLog() {
  Config config = ParseConfig("", "bench");
  config.decision_log.port = 0;
  return config;
}

// The whole of Decide: each thread opens files of its own, as clients do, at a time that all share.
void DecideOnAllThreads(benchmark::State& state, const std::function<std::unique_ptr<Decider>()>& make) {
  static std::unique_ptr<Decider> decider;
  static std::atomic<int64_t> t_us;
  if (state.thread_index() == 0) {
    decider = make();
    t_us = kT0;
  }
  Stream stream(100000);
  Measure(state, [&] { benchmark::DoNotOptimize(decider->Decide(t_us += 1000, stream.Next(), false, -1, 0.5f)); });
}

void BM_DecideWithoutModel(benchmark::State& state) {
  DecideOnAllThreads(state, [] { return std::make_unique<Decider>(WithoutLog(), "host:1094", 0, 1, [](const std::string&) {}); });
}
BENCHMARK(BM_DecideWithoutModel)->Apply([](auto* bench) { OnThreads(bench); });

void BM_DecideEmbedded(benchmark::State& state) {
  static const testing::TempFolder folder;
  DecideOnAllThreads(state, [] {
    Config config = WithoutLog();
    config.model.use = ModelUse::kEmbedded;
    config.model.bundle_dir = folder.path().string();
    testing::Install(folder.path(), "reuse_v1", testing::BundleJson("reuse_v1", MakeSchema(config).hash), "", Weights(config));
    auto decider = std::make_unique<Decider>(config, "host:1094", 0, 1, [](const std::string&) {});
    if (!testing::WaitUntil([&] { return decider->model_name() == "reuse_v1"; })) throw std::runtime_error("no model");
    return decider;
  });
}
BENCHMARK(BM_DecideEmbedded)->Apply([](auto* bench) { OnThreads(bench); });

// With the model asked: what HTTP costs when the server answers at once.
void BM_DecideWithEndpoint(benchmark::State& state) {
  testing::Server server;
  server.RespondJson("[0.7,0.2,0.1]");
  const testing::TempFolder folder;
  Config config = WithoutLog();
  config.model.endpoint_url = server.url();
  config.model.bundle_dir = folder.path().string();
  testing::Install(folder.path(), "reuse_v1", testing::BundleJson("reuse_v1", MakeSchema(config).hash));
  Decider decider(config, "host:1094", 0, 1, [](const std::string&) {});
  if (!testing::WaitUntil([&] { return decider.model_name() == "reuse_v1"; })) state.SkipWithError("no model");
  Stream stream(100000);
  int64_t t_us = kT0;
  Measure(state, [&] { benchmark::DoNotOptimize(decider.Decide(t_us += 100000, stream.Next(), false, -1, 0.5f)); });
  state.counters["answered"] = static_cast<double>(decider.counters()->asked(Role::kChampion, Source::kEndpoint, Reason::kModel)) /
                               static_cast<double>(state.iterations());
}
BENCHMARK(BM_DecideWithEndpoint)->UseRealTime();

// By how much an open is answered after its deadline where the endpoint takes each question and says nothing, with the breaker out of the
// way: a new connection each time, the deadline, the embedded copy. Beside it, in turn, a plain poll of as long: by how much that is late,
// the machine is. `late`: after the deadline; `over_1ms`: the share of calls that were late by more than that.
void BM_SilentEndpoint(benchmark::State& state) {
  static std::unique_ptr<testing::Server> server;
  static std::unique_ptr<const testing::TempFolder> folder;
  static std::unique_ptr<Decider> decider;
  static std::atomic<int64_t> t_us;
  static std::mutex mutex;
  static std::vector<double> late_us, poll_late_us;
  static int finished;
  constexpr int kDeadlineMs = 5;
  if (state.thread_index() == 0) {
    server = std::make_unique<testing::Server>();
    server->RespondJson("[0.7,0.2,0.1]");
    folder = std::make_unique<const testing::TempFolder>();
    Config config = WithoutLog();
    config.model.endpoint_url = server->url();
    config.model.bundle_dir = folder->path().string();
    config.model.deadline_ms = kDeadlineMs;
    config.model.breaker_failures = INT_MAX;
    testing::Install(folder->path(), "reuse_v1", testing::BundleJson("reuse_v1", MakeSchema(config).hash), "", Weights(config));
    decider = std::make_unique<Decider>(config, "host:1094", 0, 1, [](const std::string&) {});
    t_us = kT0;
    const auto asked = [] {
      decider->Decide(t_us += 1000, "/a/file", false, -1, 0.5f);
      return decider->counters()->asked(Role::kChampion, Source::kEndpoint, Reason::kModel) > 0;
    };
    if (!testing::WaitUntil(asked)) throw std::runtime_error("the endpoint is not asked");
    server->Respond("");
    late_us.clear();
    poll_late_us.clear();
    finished = 0;
  }
  Stream stream(1000);
  std::vector<double> late, poll_late;
  const auto after_deadline = [](const auto& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() - 1e3 * kDeadlineMs;
  };
  for (auto _ : state) {
    late.push_back(after_deadline([&] { decider->Decide(t_us += 1000, stream.Next(), false, -1, 0.5f); }));
    poll_late.push_back(after_deadline([&] { ::poll(nullptr, 0, kDeadlineMs); }));
  }
  const std::lock_guard<std::mutex> lock(mutex);
  late_us.insert(late_us.end(), late.begin(), late.end());
  poll_late_us.insert(poll_late_us.end(), poll_late.begin(), poll_late.end());
  if (++finished < state.threads()) return;
  const auto show = [&](const std::string& name, std::vector<double>& all) {
    std::sort(all.begin(), all.end());
    const auto at = [&](double part) { return all[static_cast<size_t>(static_cast<double>(all.size() - 1) * part)]; };
    state.counters[name + "late_p50_us"] = at(0.5);
    state.counters[name + "late_p99_us"] = at(0.99);
    state.counters[name + "late_max_us"] = at(1.0);
    const auto over = all.end() - std::upper_bound(all.begin(), all.end(), 1000.0);
    state.counters[name + "over_1ms"] = static_cast<double>(over) / static_cast<double>(all.size());
  };
  show("", late_us);
  show("poll_", poll_late_us);
  const auto calls = static_cast<double>(late_us.size());
  state.counters["timed_out"] =
      static_cast<double>(decider->counters()->asked(Role::kChampion, Source::kEndpoint, Reason::kDeadline)) / calls;
  decider.reset();
  server.reset();
  folder.reset();
}
BENCHMARK(BM_SilentEndpoint)->Threads(1)->Iterations(500)->UseRealTime();
BENCHMARK(BM_SilentEndpoint)->Threads(16)->Iterations(100)->UseRealTime();

}  // namespace
}  // namespace smartcache

BENCHMARK_MAIN();
