#include "smartcache/side_table.hh"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "smartcache/features.hh"
#include "smartcache/sha256.hh"
#include "testing/fixtures.hh"

namespace smartcache {
namespace {

using nlohmann::json;
using testing::SideTableRow;
using testing::SideTableText;

constexpr int64_t kUntilUs = INT64_C(1760000000000000);

std::string Refusal(const std::string& text) {
  try {
    const SideTable table(text, "table");
  } catch (const SideTableError& error) {
    return error.what();
  }
  return "";
}

// The row with other fields; null: without that field.
std::string Changed(const std::map<std::string, json>& fields) {
  json row = json::parse(SideTableRow("/store/a", 8, kUntilUs - 1));
  for (const auto& [name, value] : fields) {
    if (value.is_discarded())
      row.erase(name);
    else
      row[name] = value;
  }
  return row.dump();
}

TEST(Sha256, OfTheStandard) {
  Sha256 hash;
  hash.Add("a");
  hash.Add("bc");
  EXPECT_EQ(hash.Hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(SideTable, SaysWhatItsRowsSay) {
  const SideTable table(SideTableText(7, kUntilUs, {SideTableRow("/", 1, 3), SideTableRow("/store/a", 8, kUntilUs - 1)}), "table");
  EXPECT_EQ(table.version(), 7);
  EXPECT_EQ(table.until_us(), kUntilUs);
  EXPECT_EQ(table.datasets(), 2u);
  // The key is that of the files of the dataset.
  ParsedLfn parsed;
  LfnParser(DatasetConfig{2, {}}, 0).Parse("//store/a/b/f.root", &parsed);
  const Federation found = table.Find(parsed.dataset);
  EXPECT_TRUE(found.known);
  EXPECT_EQ(found.until_us, kUntilUs);
  EXPECT_EQ(found.last_open_us, kUntilUs - 1);
  EXPECT_NEAR(found.opens_shortest, std::log1p(4), 1e-6);
  EXPECT_NEAR(found.opens, std::log1p(8), 1e-6);
  EXPECT_NEAR(found.files, std::log1p(2), 1e-6);
  EXPECT_NEAR(found.caches, std::log1p(2), 1e-6);
  EXPECT_NEAR(found.reopen_share, 5.0 / 12, 1e-6);
  EXPECT_EQ(found.part_read, 0.25f);
  LfnParser(DatasetConfig{2, {}}, 0).Parse("f.root", &parsed);
  EXPECT_EQ(table.Find(parsed.dataset).last_open_us, 3);
  EXPECT_FALSE(table.Find(LfnParser::DatasetKey("/store/b")).known);
  EXPECT_EQ(table.Find(LfnParser::DatasetKey("/store/b")).until_us, kUntilUs);
}

TEST(SideTable, FindsEachOfMany) {
  for (const int count : {0, 1, 2, 3, 1000}) {
    std::vector<std::string> rows;
    std::map<std::string, int> at;
    for (int i = 0; i < count; ++i) at["/d/" + std::to_string(i)] = i;
    for (const auto& [name, i] : at) rows.push_back(SideTableRow(name, 2 * i + 2, i));
    const SideTable table(SideTableText(1, kUntilUs, rows), "table");
    for (const auto& [name, i] : at) EXPECT_EQ(table.Find(LfnParser::DatasetKey(name)).last_open_us, i) << name;
    for (int i = 0; i < 1000; ++i) EXPECT_FALSE(table.Find(LfnParser::DatasetKey("/e/" + std::to_string(i))).known);
    EXPECT_FALSE(table.Find(0).known);
    EXPECT_FALSE(table.Find(UINT64_MAX).known);
    EXPECT_LE(table.memory_bytes(), 64u * static_cast<size_t>(count) + 64);
  }
}

TEST(SideTable, EveryCutAndEveryChangedByteIsRefused) {
  const std::string whole = SideTableText(7, kUntilUs, {SideTableRow("/a", 8, 1), SideTableRow("/b", 8, 1)});
  EXPECT_EQ(Refusal(whole), "");
  for (size_t length = 0; length < whole.size(); ++length) EXPECT_NE(Refusal(whole.substr(0, length)), "") << length;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_NE(Refusal(changed), "") << at;
  }
  EXPECT_NE(Refusal(whole + "x"), "");
  EXPECT_NE(Refusal(whole + whole), "");
}

TEST(SideTable, AFieldThatCannotBeIsRefusedByItsName) {
  const json missing = json(json::value_t::discarded);
  const std::map<std::string, std::vector<json>> wrong = {
      {"dataset", {missing, "", 7, std::string(1025, 'x')}},
      {"opens",
       {missing, 8, json::array({8}), json::array({9, 8}), json::array({-1, 8}), json::array({0.5, 8}), json::array({8, "8"}),
        json::array({8, INT64_C(1000000000000000001)}), json::array({0, UINT64_MAX})}},
      {"read_bytes", {missing, json::array({1}), json::array({-1, 1}), json::array({1, nullptr})}},
      {"files", {missing, -1, 9, 1.5}},
      {"caches", {missing, -1, 9}},
      {"reopened", {missing, -0.1, 1.1, nullptr}},
      {"part_read", {missing, -0.1, 1.1, "1", json::parse(std::string(7000, '[') + std::string(7000, ']'))}},
      {"last_open_us", {missing, -1, kUntilUs + 1}}};
  EXPECT_EQ(Refusal(SideTableText(1, kUntilUs, {Changed({{"part_read", nullptr}, {"more", 1}, {"read_bytes", {1, 1e30}}})})), "");
  for (const auto& [field, values] : wrong) {
    for (const json& value : values) {
      const std::string refusal = Refusal(SideTableText(1, kUntilUs, {Changed({{field, value}})}));
      EXPECT_EQ(refusal.rfind("table: line 2: " + field + " must be ", 0), 0u) << refusal;
      EXPECT_LT(refusal.size(), 500u);
    }
  }
  EXPECT_NE(Refusal(SideTableText(1, kUntilUs, {"[1]"})).find("line 2: it must be a JSON object"), std::string::npos);
  const std::string row = SideTableRow("/b", 1, 1);
  for (const std::string& next : {row, SideTableRow("/a", 1, 1)})
    EXPECT_NE(Refusal(SideTableText(1, kUntilUs, {row, next})).find("line 3: dataset must be after"), std::string::npos);
  EXPECT_NE(Refusal(SideTableText(1, kUntilUs, {std::string(20000, ' ')})).find("shorter than 16384"), std::string::npos);
  EXPECT_NE(Refusal(SideTableText(0, kUntilUs, {})).find("line 1: version must be"), std::string::npos);
  EXPECT_NE(Refusal(SideTableText(1, -5, {})).find("line 1: until_us must be"), std::string::npos);
}

TEST(SideTable, AHeadOfAnotherKindIsRefused) {
  const auto with_head = [](const std::string& field, const json& value) {
    const std::string text = SideTableText(1, kUntilUs, {});
    json head = json::parse(text.substr(0, text.find('\n')));
    head[field] = value;
    const std::string line = head.dump() + "\n";
    Sha256 hash;
    hash.Add(line);
    return Refusal(line + R"({"rows":0,"sha256":")" + hash.Hex() + "\"}\n");
  };
  EXPECT_EQ(with_head("more", 1), "");
  EXPECT_NE(with_head("format", 2).find("format must be 1, but is 2"), std::string::npos);
  EXPECT_NE(with_head("kind", "else").find("kind must be \"smartcache-datasets\", but is \"else\""), std::string::npos);
  for (const json& windows : {json::array(), json::array({2, 1}), json::array({0, 1}), json::array({1, 1}), json::array({"1"}), json(1),
                              json(std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9})})
    EXPECT_NE(with_head("windows_s", windows).find("windows_s must be"), std::string::npos) << windows;
  EXPECT_NE(with_head("left_out", -1).find("left_out must be"), std::string::npos);
}

TEST(SideTable, OnlyARegularFileOfSomeSizeIsRead) {
  const testing::TempFolder folder;
  const auto refusal = [](const std::string& path) -> std::string {
    try {
      SideTable::Read(path);
    } catch (const SideTableError& error) {
      return error.what();
    }
    return "";
  };
  testing::WriteFile(folder / "good", SideTableText(1, kUntilUs, {SideTableRow("/a", 1, 1)}));
  EXPECT_EQ(SideTable::Read(folder / "good").datasets(), 1u);
  EXPECT_NE(refusal(folder / "none").find("No such file"), std::string::npos);
  EXPECT_NE(refusal(folder / "").find("not a regular file"), std::string::npos);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_NE(refusal(folder / "pipe").find("not a regular file"), std::string::npos);
  testing::WriteFile(folder / "big", "");
  std::filesystem::resize_file(folder / "big", UINT64_C(1) << 30);
  EXPECT_NE(refusal(folder / "big").find("at most 536870912 bytes, but is 1073741824"), std::string::npos);
}

}  // namespace
}  // namespace smartcache
