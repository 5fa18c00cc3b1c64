// What the evictor and the scan cost: the look at a .cinfo that an open of a file on disk pays for, ranking a million files, learning them.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "smartcache/cinfo.hh"
#include "smartcache/decider.hh"
#include "smartcache/disk.hh"
#include "smartcache/scan.hh"
#include "smartcache/watermark.hh"
#include "testing/cinfo_sample.hh"
#include "testing/fixtures.hh"

namespace smartcache {
namespace {

constexpr int64_t kT0 = INT64_C(1760000000000000), kGigabyte = 1000000000;

testing::CinfoSample Sample() {
  testing::CinfoSample sample;
  sample.file_bytes = 2 * kGigabyte;
  sample.bits.assign(static_cast<size_t>((sample.file_bytes / sample.block_bytes + 8) / 8), 0xff);
  for (int i = 0; i < 20; ++i)
    sample.records.push_back({kT0 / 1000000 - 100000 + 1000 * i, kT0 / 1000000 - 99000 + 1000 * i, 1, 900, 0, kGigabyte, 0, 0});
  return sample;
}

// As plugin/cache_state does it, through the system's own calls: open, one or two reads, close.
void LookAtACachedFile(benchmark::State& state) {
  testing::TempFolder folder;
  const std::string path = folder / "f.cinfo";
  testing::WriteFile(path, Sample().Bytes());
  for (auto _ : state) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const CinfoHead head = ReadCinfoHead(
        [file](void* buffer, int64_t offset, size_t size) { return ::pread(file, buffer, size, static_cast<off_t>(offset)); });
    ::close(file);
    if (head.file_bytes != 2 * kGigabyte || head.read_share != 0.5f) state.SkipWithError("not what was written");
  }
}
BENCHMARK(LookAtACachedFile);

void ParseAWholeCinfo(benchmark::State& state) {
  const std::string bytes = Sample().Bytes();
  Cinfo cinfo;
  std::string why;
  for (auto _ : state) {
    if (!ParseCinfo(bytes, &cinfo, &why)) state.SkipWithError(why.c_str());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes.size()));
}
BENCHMARK(ParseAWholeCinfo);

// A cache of so many files of 1 GB, 95 % full. The disk itself costs nothing here.
class ManyFiles : public Disk {
 public:
  explicit ManyFiles(int64_t n) : n_(n), cinfo_(Sample().Bytes()) {}
  bool FileSystem(DiskUsage* out) override {
    *out = {n_ * kGigabyte, n_ * kGigabyte / 95 * 100};
    return true;
  }
  bool Walk(const std::function<bool(const DiskFile&)>& each) override {
    for (int64_t i = 0; i < n_; ++i) {
      const std::string lfn = "/store/mc/Run3Summer22/DYto2L_Bin-" + std::to_string(i % 3000) + "/NANOAODSIM/130X_v2/2520000/" +
                              std::to_string(i * 7919) + "-aaaa-bbbb.root";
      if (!each({lfn, kGigabyte, kT0 - (i * 104729) % 100000000000})) return false;
    }
    return true;
  }
  bool ReadCinfo(const std::string&, std::string* out) override {
    *out = cinfo_;
    return true;
  }

 private:
  const int64_t n_;
  const std::string cinfo_;
};

double PeakMegabytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// Learns a million files from their .cinfo, then ranks them in a dry run: by their age, the dearest way to a value being the same two looks
// at the history.
void LearnAndRankAMillionFiles(benchmark::State& state) {
  for (auto _ : state) {
    testing::TempFolder folder;
    testing::Server server;
    Config config = ParseConfig("[decision_log]\nport = 0\n[evictor]\ndry_run = true\nhigh = 0.9\nlow = 0.88\n", "bench");
    config.model.bundle_dir = folder.path().string();
    config.model.endpoint_url = server.url();
    testing::Install(folder.path(), "reuse_v1", testing::BundleJson("reuse_v1", MakeSchema(config).hash));
    Decider decider(config, "host:1094", 5, 1, [](const std::string&) {});
    if (!testing::WaitUntil([&] { return !decider.model_name().empty(); })) return state.SkipWithError("no model");
    ManyFiles disk(1000000);
    const std::atomic<bool> stop{false};
    const auto began = std::chrono::steady_clock::now();
    const ScanResult scanned = SeedFromDisk(&disk, &decider, kT0, stop);
    const auto learnt = std::chrono::steady_clock::now();
    if (scanned.seeded != 1000000) return state.SkipWithError("not all were learnt");
    const double before = PeakMegabytes();
    const auto start = std::chrono::steady_clock::now();
    Watermark watermark(
        config.evictor, false, &disk, &decider, {}, [] { return kT0; }, [](const std::string&) {}, {});
    if (!testing::WaitUntil([&] { return decider.counters()->runs(RunResult::kDryRun) > 0; }, 120)) return state.SkipWithError("no run");
    state.counters["learn_s"] = std::chrono::duration<double>(learnt - began).count();
    state.counters["rank_s"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    state.counters["rank_MB"] = PeakMegabytes() - before;
  }
}
BENCHMARK(LearnAndRankAMillionFiles)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace smartcache
