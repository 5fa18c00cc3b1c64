#include "json_file.hh"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "smartcache/descriptor.hh"

namespace smartcache {
namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kShown = 200;

}  // namespace

std::string ReadText(const std::string& path, size_t limit) {
  const auto cannot = [&](const std::string& why) { throw BundleError(path + ": cannot be read (" + why + "); promote the model again"); };
  const Descriptor file(path.c_str(), O_RDONLY | O_NONBLOCK);
  struct stat status;
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) cannot(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) cannot("not a regular file");
  const std::string most = "more than " + std::to_string(limit) + " bytes";
  if (status.st_size > static_cast<off_t>(limit)) cannot(most);
  std::string text;
  char buffer[65536];
  ssize_t got = 0;
  while ((got = ::read(file.get(), buffer, sizeof buffer)) > 0) {
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > limit) cannot(most);  // it grew meanwhile
  }
  if (got < 0) cannot(std::strerror(errno));
  return text;
}

JsonFile::JsonFile(std::string source, std::string_view text) : source_(std::move(source)) {
  // What is nested deep costs stack wherever it is walked through, so it is not even built.
  const auto bound = [this](int depth, json::parse_event_t, json&) {
    if (depth > kMaxDepth) Refuse("", "at most " + std::to_string(kMaxDepth) + " levels deep", std::string("deeper"));
    return true;
  };
  root_ = json::parse(text, bound, false);
  if (!root_.is_object()) Refuse("", "a JSON object", std::string("not one: the file may be incomplete"));
}

void JsonFile::Refuse(const std::string& field, const std::string& rule, const std::string& value) const {
  const bool cut = value.size() > kShown;
  throw BundleError(source_ + ": " + (field.empty() ? "it" : field) + " must be " + rule + ", but is " + value.substr(0, kShown) +
                    (cut ? "... (" + std::to_string(value.size()) + " characters)" : ""));
}

void JsonFile::Refuse(const std::string& field, const std::string& rule, const json& value) const {
  const bool longish = value.is_structured() && value.size() > kShown;
  Refuse(field, rule, longish ? std::string(value.type_name()) + " of " + std::to_string(value.size()) : value.dump());
}

const nlohmann::json& JsonFile::Get(const json& object, const char* field, const std::string& where) const {
  if (!object.is_object()) Refuse(where, "an object", object);
  const auto it = object.find(field);
  if (it == object.end()) Refuse((where.empty() ? "" : where + ".") + field, "there", std::string("missing"));
  return *it;
}

double JsonFile::Number(const json& object, const char* field) const {
  const json& value = Get(object, field);
  if (!value.is_number() || !std::isfinite(value.get<double>())) Refuse(field, "a finite number", value);
  return value.get<double>();
}

void JsonFile::Floats(const json& value, const std::string& field, size_t width, std::vector<float>* out) const {
  const std::string rule =
      (width == 0 ? "an array of" : "an array of " + std::to_string(width)) + std::string(" finite numbers within float32");
  if (!value.is_array()) Refuse(field, rule, value);
  if (width != 0 && value.size() != width) Refuse(field, rule, std::to_string(value.size()) + " long");
  out->reserve(out->size() + value.size());
  for (const json& each : value) {
    const float number = each.is_number() ? static_cast<float>(each.get<double>()) : NAN;
    if (!std::isfinite(number)) Refuse(field, rule, each);
    out->push_back(number);
  }
}

std::vector<std::vector<float>> JsonFile::Rows(const char* field, size_t width) const {
  const json& rows = Get(root_, field);
  std::vector<std::vector<float>> result;
  if (!rows.is_array()) Refuse(field, "an array of rows", rows);
  for (const json& row : rows) Floats(row, std::string(field) + "[" + std::to_string(result.size()) + "]", width, &result.emplace_back());
  return result;
}

}  // namespace smartcache
