#include "smartcache/sha256.hh"

#include <openssl/evp.h>

#include <stdexcept>

namespace smartcache {
namespace {

void Require(bool done) {
  if (!done) throw std::runtime_error("libcrypto computes no SHA-256; does its configuration leave it out?");
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const { ::EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(::EVP_MD_CTX_new()) { Require(context_ && ::EVP_DigestInit_ex(context_.get(), ::EVP_sha256(), nullptr) == 1); }

void Sha256::Add(std::string_view bytes) { Require(::EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1); }

std::string Sha256::Hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  Require(::EVP_DigestFinal_ex(context_.get(), digest, &size) == 1);
  std::string hex;
  for (unsigned i = 0; i < size; ++i) {
    hex += "0123456789abcdef"[digest[i] >> 4];
    hex += "0123456789abcdef"[digest[i] & 15];
  }
  return hex;
}

}  // namespace smartcache
