// A certificate authority, and a server behind TLS whose certificate it has signed.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

struct evp_pkey_st;
struct ssl_ctx_st;
struct x509_st;

namespace smartcache::testing {

class Authority {
 public:
  explicit Authority(const std::string& name);

  // Its own certificate, as a bundle has it.
  std::string pem() const;
  // What a server at 127.0.0.1 needs.
  std::shared_ptr<ssl_ctx_st> Context() const;

 private:
  using Certificate = std::unique_ptr<x509_st, void (*)(x509_st*)>;
  Certificate Signed(const std::string& subject, const char* extension, const char* value) const;

  const std::string name_;
  std::unique_ptr<evp_pkey_st, void (*)(evp_pkey_st*)> key_;  // the servers' too
};

// On loopback; answers every HTTP request with `body`, and keeps the connection.
class TlsServer {
 public:
  TlsServer(const Authority& authority, const std::string& body);
  ~TlsServer();
  std::string url() const { return "https://127.0.0.1:" + std::to_string(port_); }

  // Closes all connections. From then on: a certificate of this authority; null: every connection is closed before a word is said.
  void Restart(const Authority* authority);
  // Closes every new connection before a word is said, and keeps those that there are.
  void RefuseNew();
  size_t handshakes() const { return handshakes_; }
  size_t refused() const { return refused_; }

 private:
  void Accept();
  void Serve(int client);

  const std::string reply_;
  int listener_ = -1, port_ = 0;
  std::atomic<size_t> handshakes_{0}, refused_{0};
  std::mutex mutex_;  // guards the members below
  std::shared_ptr<ssl_ctx_st> context_;
  std::set<int> clients_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace smartcache::testing
