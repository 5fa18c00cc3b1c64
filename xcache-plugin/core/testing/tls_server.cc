#include "testing/tls_server.hh"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <tuple>

#include "testing/fixtures.hh"

namespace smartcache::testing {
namespace {

constexpr long kDayS = 86400;

std::string Pem(X509* certificate) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> memory(BIO_new(BIO_s_mem()), &BIO_free);
  PEM_write_bio_X509(memory.get(), certificate);
  char* text = nullptr;
  const long length = BIO_get_mem_data(memory.get(), &text);
  return {text, static_cast<size_t>(length)};
}

void Name(X509_NAME* name, const std::string& common) {
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(common.c_str()), -1, -1, 0);
}

}  // namespace

Authority::Authority(const std::string& name) : name_(name), key_(EVP_EC_gen("P-256"), &EVP_PKEY_free) {
  if (!key_) throw std::runtime_error("OpenSSL gives no key");
}

Authority::Certificate Authority::Signed(const std::string& subject, const char* extension, const char* value) const {
  Certificate certificate(X509_new(), &X509_free);
  X509* const it = certificate.get();
  X509_set_version(it, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(it), 1);
  X509_gmtime_adj(X509_getm_notBefore(it), -kDayS);
  X509_gmtime_adj(X509_getm_notAfter(it), kDayS);
  Name(X509_get_subject_name(it), subject);
  Name(X509_get_issuer_name(it), name_);
  X509_set_pubkey(it, key_.get());
  const std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)> more(
      X509V3_EXT_conf_nid(nullptr, nullptr, OBJ_sn2nid(extension), value), &X509_EXTENSION_free);
  X509_add_ext(it, more.get(), -1);
  if (X509_sign(it, key_.get(), EVP_sha256()) == 0) throw std::runtime_error("OpenSSL signs no certificate");
  return certificate;
}

std::string Authority::pem() const { return Pem(Signed(name_, SN_basic_constraints, "critical,CA:TRUE").get()); }

std::shared_ptr<ssl_ctx_st> Authority::Context() const {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
  const Certificate certificate = Signed("the server", SN_subject_alt_name, "IP:127.0.0.1");
  if (SSL_CTX_use_certificate(context.get(), certificate.get()) != 1 || SSL_CTX_use_PrivateKey(context.get(), key_.get()) != 1)
    throw std::runtime_error("OpenSSL takes no certificate");
  return context;
}

TlsServer::TlsServer(const Authority& authority, const std::string& body)
    : reply_("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body), context_(authority.Context()) {
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to clients that have gone
  std::tie(listener_, port_) = ListenOnLoopback();
  acceptor_ = std::thread(&TlsServer::Accept, this);
}

TlsServer::~TlsServer() {
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  Restart(nullptr);
  for (std::thread& each : threads_) each.join();
  ::close(listener_);
}

void TlsServer::Restart(const Authority* authority) {
  const std::lock_guard<std::mutex> lock(mutex_);
  context_ = authority ? authority->Context() : nullptr;
  for (const int client : clients_) ::shutdown(client, SHUT_RDWR);
}

void TlsServer::RefuseNew() {
  const std::lock_guard<std::mutex> lock(mutex_);
  context_ = nullptr;
}

void TlsServer::Accept() {
  for (int client; (client = ::accept(listener_, nullptr, nullptr)) >= 0;) {
    const std::lock_guard<std::mutex> lock(mutex_);
    clients_.insert(client);
    threads_.emplace_back(&TlsServer::Serve, this, client);
  }
}

void TlsServer::Serve(int client) {
  std::shared_ptr<SSL_CTX> context;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    context = context_;
  }
  if (context) {
    const std::unique_ptr<SSL, decltype(&SSL_free)> talk(SSL_new(context.get()), &SSL_free);
    SSL_set_fd(talk.get(), client);
    bool open = SSL_accept(talk.get()) == 1;
    if (open) ++handshakes_;
    std::string input;
    char buffer[4096];
    while (open) {
      const int got = SSL_read(talk.get(), buffer, sizeof buffer);
      if (got <= 0) break;
      input.append(buffer, static_cast<size_t>(got));
      const size_t head = input.find("\r\n\r\n"), length_at = input.find("Content-Length: ");
      if (head == std::string::npos || length_at > head || input.size() < head + 4 + std::stoul(input.substr(length_at + 16))) continue;
      input.clear();
      open = SSL_write(talk.get(), reply_.data(), static_cast<int>(reply_.size())) > 0;
    }
  }
  if (!context) ++refused_;
  const std::lock_guard<std::mutex> lock(mutex_);
  clients_.erase(client);
  ::close(client);
}

}  // namespace smartcache::testing
