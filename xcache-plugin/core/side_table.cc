#include "smartcache/side_table.hh"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "smartcache/descriptor.hh"
#include "smartcache/features.hh"
#include "smartcache/sha256.hh"

namespace smartcache {
namespace {

using json = nlohmann::json;

constexpr int64_t kFormat = 1;
constexpr const char* kKind = "smartcache-datasets";
constexpr size_t kMaxName = 1024, kMaxWindows = 8, kShown = 200;
constexpr int64_t kMost = INT64_C(1000000000000000000);
constexpr const char* kFix = "; publish it anew (smartcache side-table), or bring the file here whole, by a rename";
constexpr int kKeyBits = 64;

// What is nested deep costs stack where it is walked through: it is not shown.
std::string Shown(const json& value) {
  if (std::any_of(value.begin(), value.end(), [](const json& each) { return each.is_structured(); })) return value.type_name();
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() <= kShown ? text : text.substr(0, kShown) + "... (" + std::to_string(text.size()) + " characters)";
}

}  // namespace

// Takes the text in pieces of any size. A line is known to be the last one only at the end, so one is always held back.
class SideTable::Reader {
 public:
  Reader(SideTable* table, std::string source) : table_(table), source_(std::move(source)) {}

  void Add(std::string_view piece) {
    total_ += piece.size();
    if (total_ > kMaxSideTableBytes) Refuse("it", "at most " + std::to_string(kMaxSideTableBytes) + " bytes", "more");
    while (!piece.empty()) {
      const size_t feed = piece.find('\n');
      const size_t length = std::min(feed, piece.size());
      if (line_.size() + length >= kMaxSideTableLine)
        RefuseHere("it", "shorter than " + std::to_string(kMaxSideTableLine) + " bytes", "longer", lines_ + 1);
      line_.append(piece.substr(0, length));
      if (feed == std::string_view::npos) return;
      piece.remove_prefix(feed + 1);
      if (lines_ > 0) Take();
      held_.swap(line_);
      line_.clear();
      ++lines_;
    }
  }

  void End() {
    if (!line_.empty() || lines_ < 2) Refuse("it", "a head and a foot at least, each line ended by a line feed", "cut short");
    const json foot = Parsed();
    const json& sha256 = Get(foot, "sha256");
    Integer(foot, "rows", static_cast<int64_t>(rows()), static_cast<int64_t>(rows()));
    const std::string hex = hash_.Hex();
    if (sha256 != hex) Refuse("sha256", "that of the lines before it, " + hex, Shown(sha256));
    table_->MakeIndex();
  }

 private:
  [[noreturn]] void Refuse(const std::string& field, const std::string& rule, const std::string& value) const {
    throw SideTableError(source_ + ": " + field + " must be " + rule + ", but is " + value + kFix);
  }
  [[noreturn]] void RefuseHere(const std::string& field, const std::string& rule, const std::string& value, size_t line) const {
    throw SideTableError(source_ + ": line " + std::to_string(line) + ": " + field + " must be " + rule + ", but is " + value + kFix);
  }
  [[noreturn]] void RefuseValue(const std::string& field, const std::string& rule, const json& value) const {
    RefuseHere(field, rule, Shown(value), lines_);
  }

  size_t rows() const { return lines_ - 2; }  // while the foot is held

  json Parsed() const {
    json value = json::parse(held_, nullptr, false);
    if (!value.is_object()) RefuseHere("it", "a JSON object", "not one: the file may be incomplete", lines_);
    return value;
  }

  const json& Get(const json& object, const char* field) const {
    const auto it = object.find(field);
    if (it == object.end()) RefuseHere(field, "there", "missing", lines_);
    return *it;
  }

  int64_t Checked(const json& value, const std::string& field, int64_t low, int64_t high) const {
    const bool fits = value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
    if (!fits || value.get<int64_t>() < low || value.get<int64_t>() > high)
      RefuseValue(field, low == high ? std::to_string(low) : "an integer from " + std::to_string(low) + " to " + std::to_string(high),
                  value);
    return value.get<int64_t>();
  }
  int64_t Integer(const json& object, const char* field, int64_t low, int64_t high) const {
    return Checked(Get(object, field), field, low, high);
  }

  double Share(const json& value, const char* field) const {
    const double share = value.is_number() ? value.get<double>() : -1.0;
    if (!(share >= 0 && share <= 1)) RefuseValue(field, "from 0 to 1", value);
    return share;
  }

  const json& List(const json& object, const char* field) const {
    const json& list = Get(object, field);
    if (!list.is_array() || list.size() != windows_) RefuseValue(field, "a list of " + std::to_string(windows_) + " numbers", list);
    return list;
  }

  // The line that is held back is none but the last: head or dataset.
  void Take() {
    hash_.Add(held_);
    hash_.Add("\n");
    if (lines_ == 1)
      Head();
    else
      Dataset();
  }

  void Head() {
    const json head = Parsed();
    if (Get(head, "kind") != kKind) RefuseValue("kind", std::string("\"") + kKind + '"', head["kind"]);
    Integer(head, "format", kFormat, kFormat);
    table_->version_ = Integer(head, "version", 1, INT64_MAX);
    table_->until_us_ = Integer(head, "until_us", 0, kLastMicrosecond);
    Integer(head, "left_out", 0, kMost);
    const json& windows = Get(head, "windows_s");
    double before = 0;
    const auto rises = [&](const json& each) {
      const double last = std::exchange(before, each.is_number() ? each.get<double>() : -1.0);
      return before > last;
    };
    if (!windows.is_array() || windows.empty() || windows.size() > kMaxWindows || !std::all_of(windows.begin(), windows.end(), rises))
      RefuseValue("windows_s", "1 to " + std::to_string(kMaxWindows) + " positive numbers that rise", windows);
    windows_ = windows.size();
  }

  void Dataset() {
    if (lines_ - 1 > kMaxSideTableRows) RefuseHere("datasets", "at most " + std::to_string(kMaxSideTableRows), "more", lines_);
    const json row = Parsed();
    const json& dataset = Get(row, "dataset");
    const auto* name = dataset.get_ptr<const std::string*>();
    if (!name || name->empty() || name->size() > kMaxName)
      RefuseValue("dataset", "a text of 1 to " + std::to_string(kMaxName) + " bytes", dataset);
    if (*name <= name_) RefuseValue("dataset", "after the one before it", dataset);
    const json& opens = List(row, "opens");
    int64_t most = 0;
    for (const json& each : opens) most = Checked(each, "opens", most, kMost);
    for (const json& each : List(row, "read_bytes")) {
      if (!each.is_number() || !(each.get<double>() >= 0)) RefuseValue("read_bytes", "numbers of at least 0", each);
    }
    const int64_t files = Integer(row, "files", 0, most), caches = Integer(row, "caches", 0, most);
    const double reopened = Share(Get(row, "reopened"), "reopened");
    const json& part_read = Get(row, "part_read");

    Row made{};
    made.key = LfnParser::DatasetKey(*name);
    made.last_open_us = Integer(row, "last_open_us", 0, table_->until_us_);
    made.opens_shortest = LogCount(opens.front().get<double>());
    made.opens = LogCount(static_cast<double>(most));
    made.files = LogCount(static_cast<double>(files));
    made.caches = LogCount(static_cast<double>(caches));
    made.reopen_share = ShrunkShare(reopened * static_cast<double>(most), static_cast<double>(most));
    made.part_read = part_read.is_null() ? -1.0f : static_cast<float>(Share(part_read, "part_read"));
    table_->rows_.push_back(made);
    name_ = *name;
  }

  SideTable* const table_;
  const std::string source_;
  Sha256 hash_;
  std::string line_, held_, name_;
  size_t total_ = 0, lines_ = 0, windows_ = 0;
};

SideTable::SideTable(std::string_view text, const std::string& source) {
  Reader reader(this, source);
  reader.Add(text);
  reader.End();
}

SideTable SideTable::Read(const std::string& path) {
  const auto cannot = [&](const std::string& why) {
    throw SideTableError(path + ": must be a file that can be read, but is not (" + why + ")" + kFix);
  };
  // A pipe would hold its reader up.
  const Descriptor file(path.c_str(), O_RDONLY | O_NONBLOCK);
  struct stat status;
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) cannot(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) cannot("not a regular file");
  if (status.st_size > static_cast<off_t>(kMaxSideTableBytes))
    throw SideTableError(path + ": must be at most " + std::to_string(kMaxSideTableBytes) + " bytes, but is " +
                         std::to_string(status.st_size) + "; publish fewer of the datasets ([side_table] datasets)");
  SideTable table;
  Reader reader(&table, path);
  std::vector<char> buffer(1 << 18);
  ssize_t got = 0;
  while ((got = ::read(file.get(), buffer.data(), buffer.size())) > 0) reader.Add({buffer.data(), static_cast<size_t>(got)});
  if (got < 0) cannot(std::strerror(errno));
  reader.End();
  return table;
}

// About two rows for each entry of the index. Of two names with one key, which only who looks for them finds, the first counts.
void SideTable::MakeIndex() {
  const auto less = [](const Row& a, const Row& b) { return a.key < b.key; };
  std::stable_sort(rows_.begin(), rows_.end(), less);
  rows_.erase(std::unique(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) { return a.key == b.key; }), rows_.end());
  rows_.shrink_to_fit();
  int bits = 1;
  while ((size_t{2} << bits) < rows_.size()) ++bits;
  shift_ = kKeyBits - bits;
  starts_.assign((size_t{1} << bits) + 1, 0);
  for (const Row& row : rows_) ++starts_[(row.key >> shift_) + 1];
  for (size_t i = 1; i < starts_.size(); ++i) starts_[i] += starts_[i - 1];
}

Federation SideTable::Find(uint64_t dataset) const {
  Federation found;
  found.until_us = until_us_;
  const auto bucket = static_cast<size_t>(dataset >> shift_);
  const Row* const end = rows_.data() + starts_[bucket + 1];
  const auto less = [](const Row& each, uint64_t key) { return each.key < key; };
  const Row* const row = std::lower_bound(rows_.data() + starts_[bucket], end, dataset, less);
  if (row == end || row->key != dataset) return found;
  found.known = true;
  found.last_open_us = row->last_open_us;
  found.opens_shortest = row->opens_shortest;
  found.opens = row->opens;
  found.files = row->files;
  found.caches = row->caches;
  found.reopen_share = row->reopen_share;
  found.part_read = row->part_read;
  return found;
}

}  // namespace smartcache
