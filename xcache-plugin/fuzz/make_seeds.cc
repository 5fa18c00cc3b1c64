// Writes the seeds of the fuzz targets: one folder each, of texts that are right, for the fuzzer to spoil.
//   make_seeds FOLDER
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "smartcache/config.hh"
#include "smartcache/features.hh"
#include "smartcache/file_portfolio.hh"
#include "smartcache/history_file.hh"
#include "testing/cinfo_sample.hh"
#include "testing/fixtures.hh"

namespace smartcache {
namespace {

std::string Rows(size_t rows, size_t width, const std::string& value) {
  std::string text = "[";
  for (size_t r = 0; r < rows; ++r) {
    text += r == 0 ? "[" : ",[";
    for (size_t i = 0; i < width; ++i) text += (i == 0 ? "" : ",") + value;
    text += "]";
  }
  return text + "]";
}

void MakeSeeds(const std::filesystem::path& folder) {
  const auto write = [&](const char* target, const char* name, const std::string& bytes) {
    testing::WriteFile(folder / target / name, bytes);
  };
  const std::string reference = ReferenceToml();
  const Schema schema = MakeSchema(ParseConfig("", "seeds"));

  write("config", "reference", reference);
  for (size_t at = reference.find("\n["), next = 0, n = 0; at != std::string::npos; at = next, ++n) {
    next = reference.find("\n[", at + 1);
    write("config", ("section_" + std::to_string(n)).c_str(), reference.substr(at, next - at));
  }
  write("config", "rules",
        "[policy]\nalways_admit = [\"/a/\", \"*/[a-z]?\\\\*/*\"]\n[dataset]\nrules = [{ prefix = \"/store/\", levels = 4 }]\n");

  const std::string head(1, '\x0c');  // the pattern has 12 bytes
  write("lfn", "plain", head + "/store/*/[a]/store/mc/Run3Summer22/DYto2L/NANOAODSIM/130X/2520000/aaaa-bbbb.root");
  write("lfn", "odd", head + "/store/user///a//\xc3\xa9/\xff\"\\\n\x01");

  const std::string bundle = testing::BundleJson("reuse_v1", schema.hash);
  write("bundle", "alone", bundle);
  write("bundle", "golden",
        bundle + '\0' + R"({"inputs":)" + Rows(2, schema.names.size(), "0.5") + R"(,"outputs":)" + Rows(2, 3, "0.25") + "}");

  write("network", "one_layer", testing::ConstantWeights(2, {0.7, 0.2, 0.1}));
  write("network", "two_layers", testing::RandomWeights({3, 17, 2}));

  write("reply", "three", std::string("\x02\0", 2) + "[0.5,0.25,0.25]");
  write("reply", "one", std::string(2, '\0') + " [ 1e0 ]\n");
  write("reply", "rows", "\x02\x02[[0.5,0.25,0.25],[0,0,1]]");

  for (const char mend : {'\0', '\1'}) {
    const std::string rows[] = {testing::SideTableRow("/store/a", 2, 5), testing::SideTableRow("/store/b", 1000, 7)};
    write("side_table", ("rows_" + std::to_string(mend)).c_str(), mend + testing::SideTableText(1, 7, {rows[0], rows[1]}));
  }
  write("side_table", "none", '\0' + testing::SideTableText(1, 0, {}));

  for (const size_t opens : {0, 3}) {
    const Config config = ParseConfig("", "seeds");
    FeatureCore core(config);
    std::vector<float> features(schema.names.size());
    for (size_t i = 0; i < opens; ++i) {
      const std::string lfn = "/store/set/" + std::to_string(i);
      ParsedLfn parsed;
      core.Parse(lfn, &parsed);
      core.Observe(Sanitised(Open{static_cast<int64_t>(i) * 1000000, lfn, false, -1, -1}), parsed, features.data());
    }
    std::string bytes(1, '\1'), why;
    std::mutex mutex;
    const auto sink = [&](const void* data, size_t size) {
      bytes.append(static_cast<const char*>(data), size);
      return true;
    };
    if (!WriteHistory(
            config, &core.history(), &mutex,
            [] {
              return HistoryState{1, 3, 2000000, false};
            },
            sink, &why))
      throw std::runtime_error(why);
    write("history", std::to_string(opens).c_str(), bytes);
  }

  for (const bool model : {false, true}) {
    FilePortfolio portfolio({true, 1 << 20, ""}, 1000, true, model);
    portfolio.Room(10000);
    portfolio.Tidy();
    for (uint64_t i = 0; i < 200; ++i) portfolio.Opened({i % 40, 1, static_cast<int64_t>(i), 300, 1.0, 0.5}, nullptr);
    write("portfolio", model ? "with_model" : "without", (model ? '\1' : '\3') + portfolio.Write());
  }

  testing::CinfoSample sample;
  for (const char mend : {'\0', '\1', '\3'}) {
    sample.records = {{100, 200, 1, 100, 0, 4096, 8192, 0}, {300, 0, 2, 0, 3, 0, 0, 1 << 20}};
    write("cinfo", ("two_records_" + std::to_string(mend)).c_str(), mend + sample.Bytes());
    sample.records.clear();
    write("cinfo", ("none_" + std::to_string(mend)).c_str(), mend + sample.Bytes());
  }
  // Of XRootD 4: the sizes, a byte of blocks, its checksum (mended by the target), created, accesses, a record.
  for (const char version : {'\2', '\3'}) {
    const auto word = [](int64_t value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); };
    std::string bytes = {'\1', version, '\0', '\0', '\0'};
    bytes +=
        word(131072) + word(1 << 20) + '\x0f' + std::string(16, '\0') + word(1600000000) + word(1) + word(1600000000) + word(1600000009);
    bytes += version == 2 ? word(1) + word(2) + word(3) : word(1) + word(0) + word(1) + word(2) + word(3);
    write("cinfo", ("version_" + std::to_string(version)).c_str(), bytes);
  }
}

}  // namespace
}  // namespace smartcache

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: make_seeds FOLDER\n", stderr);
    return 2;
  }
  try {
    smartcache::MakeSeeds(argv[1]);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "make_seeds: %s\n", problem.what());
    return 1;
  }
  return 0;
}
