// A JSON file of a bundle, from whoever could write there: read strictly, within bounds, and refused with the field that is wrong.
//
// Only a regular file of at most `limit` bytes is read (a pipe would hold its reader up), the document is an object and at most 32 levels
// deep, and a message shows at most 200 characters of a value.
// Thread-safe: immutable. Failure: BundleError.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "smartcache/bundle_error.hh"

namespace smartcache {

// The bytes of the file at `path`.
std::string ReadText(const std::string& path, size_t limit);

class JsonFile {
 public:
  using json = nlohmann::json;

  // `source` names the text in messages.
  JsonFile(std::string source, std::string_view text);

  const json& root() const { return root_; }

  [[noreturn]] void Refuse(const std::string& field, const std::string& rule, const std::string& value) const;
  [[noreturn]] void Refuse(const std::string& field, const std::string& rule, const json& value) const;

  // The member of `object`, which `where` names in messages ("" for the root).
  const json& Get(const json& object, const char* field, const std::string& where = "") const;
  double Number(const json& object, const char* field) const;
  // `value` as finite numbers that float32 can hold, `width` of them where that is not 0.
  void Floats(const json& value, const std::string& field, size_t width, std::vector<float>* out) const;
  // An array of such rows.
  std::vector<std::vector<float>> Rows(const char* field, size_t width) const;

 private:
  const std::string source_;
  json root_;
};

}  // namespace smartcache
