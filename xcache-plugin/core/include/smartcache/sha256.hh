// SHA-256 (FIPS 180-4), by libcrypto. Not for use by two threads at once. Failure: std::runtime_error where libcrypto has none to give.
#pragma once

#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace smartcache {

class Sha256 {
 public:
  Sha256();
  void Add(std::string_view bytes);
  // 64 hex digits, of all that was added. Once.
  std::string Hex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace smartcache
