#include "smartcache/decision_log.hh"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <utility>

#include "smartcache/utf8.hh"

namespace smartcache {
namespace {

constexpr size_t kMaxDatagram = 60000;

template <typename T>
void AppendInteger(std::string* out, T value) {
  char buffer[24];
  out->append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

// Nine significant digits: a float32 reads back as the same bits. Not printf: its decimal point depends on the locale.
template <typename T>
void AppendNumber(std::string* out, T value) {
  char buffer[40];
  out->append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::general, 9).ptr);
}

void AppendString(std::string* out, std::string_view text) {
  static const char hex[] = "0123456789abcdef";
  *out += '"';
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const size_t length = Utf8Length(text, at);
    if (length == 0) {
      *out += "\xEF\xBF\xBD";
      ++at;
    } else if (c == '"' || c == '\\') {
      *out += '\\';
      *out += c;
      ++at;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      *out += "\\u00";
      *out += hex[(c >> 4) & 15];
      *out += hex[c & 15];
      ++at;
    } else {
      out->append(text, at, length);
      at += length;
    }
  }
  *out += '"';
}

bool IsLiteral(const std::string& host) {
  in6_addr scratch;
  return ::inet_pton(AF_INET, host.c_str(), &scratch) == 1 || ::inet_pton(AF_INET6, host.c_str(), &scratch) == 1;
}

std::string AddressOf(const addrinfo& found) { return {reinterpret_cast<const char*>(found.ai_addr), found.ai_addrlen}; }

}  // namespace

void WriteRecord(const DecisionRecord& record, std::string* out) {
  *out += R"({"v":1,"cache":)";
  AppendString(out, record.cache);
  *out += R"(,"boot_us":)";
  AppendInteger(out, record.boot_us);
  *out += R"(,"seq":)";
  AppendInteger(out, record.seq);
  *out += R"(,"t_us":)";
  AppendInteger(out, record.t_us);
  *out += R"(,"lfn":)";
  AppendString(out, record.lfn);
  *out += R"(,"answer":")";
  *out += Text(record.answer);
  *out += R"(","reason":")";
  *out += Text(record.reason);
  *out += R"(","score":)";
  if (record.has_score)
    AppendNumber(out, record.score);
  else
    *out += "null";
  *out += R"(,"probability":)";
  AppendNumber(out, record.probability);
  *out += R"(,"model":)";
  AppendString(out, record.model);
  *out += R"(,"latency_us":)";
  AppendInteger(out, record.latency_us);
  *out += record.on_disk ? R"(,"on_disk":true,"size":)" : R"(,"on_disk":false,"size":)";
  AppendInteger(out, record.size);
  *out += R"(,"fill":)";
  AppendNumber(out, record.fill);
  if (record.features) {
    *out += R"(,"features":[)";
    for (size_t i = 0; i < record.feature_count; ++i) {
      if (i > 0) *out += ',';
      AppendNumber(out, record.features[i]);
    }
    *out += ']';
  }
  *out += '}';
}

DecisionLog::DecisionLog(const DecisionLogConfig& config, Counters* counters, Log log, double resolve_every_s)
    : config_(config), counters_(counters), log_(std::move(log)) {
  if (config.port == 0) return;
  Connect();
  if (socket_ < 0 || !IsLiteral(config.host))
    thread_ = std::make_unique<Periodic>(resolve_every_s, [this] {
      try {
        Connect();
      } catch (...) {
        // No memory: the next run tries again.
      }
    });
}

DecisionLog::~DecisionLog() {
  thread_.reset();
  if (socket_ >= 0) ::close(socket_);
}

// Looks the host up, and connects unless the address in use is still one of it.
void DecisionLog::Connect() {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(config_.host.c_str(), std::to_string(config_.port).c_str(), &hints, &list);
  if (error != 0) list = nullptr;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> found(list, &::freeaddrinfo);
  for (const addrinfo* each = list; each; each = each->ai_next) {
    if (socket_ >= 0 && peer_ == AddressOf(*each)) return;
  }
  for (const addrinfo* each = list; each; each = each->ai_next) {
    const int candidate = ::socket(each->ai_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (candidate < 0) continue;
    if (::connect(candidate, each->ai_addr, each->ai_addrlen) != 0) {
      ::close(candidate);
      continue;
    }
    peer_ = AddressOf(*each);
    if (socket_ < 0) {
      socket_ = candidate;
    } else {
      ::dup3(candidate, socket_, O_CLOEXEC);
      ::close(candidate);
    }
    if (said_ && log_) log_("[decision_log] host \"" + config_.host + "\" has an address now: answers are logged");
    said_ = false;
    return;
  }
  if (socket_ >= 0 || said_) return;  // an address that worked is better than none
  said_ = true;
  if (log_)
    log_("[decision_log] host must be a host that can be reached, but is \"" + config_.host + "\" (" +
         (error != 0 ? ::gai_strerror(error) : "no route to it") +
         "); answers are not logged until it is, which is tried again and again; give its address, or port = 0 for no log");
}

void DecisionLog::Send(const DecisionRecord& record) {
  if (config_.port == 0) return;
  const int socket = socket_.load(std::memory_order_acquire);
  if (socket < 0) {
    counters_->LogDropped();
    return;
  }
  thread_local std::string datagram;  // keeps its memory from open to open
  datagram.clear();
  WriteRecord(record, &datagram);
  ssize_t sent = -1;
  if (datagram.size() <= kMaxDatagram) {
    sent = ::send(socket, datagram.data(), datagram.size(), MSG_NOSIGNAL);
    // "Refused" reports the datagram before this one; this one has not been tried yet.
    if (sent < 0 && errno == ECONNREFUSED) sent = ::send(socket, datagram.data(), datagram.size(), MSG_NOSIGNAL);
  }
  if (sent == static_cast<ssize_t>(datagram.size()))
    counters_->LogSent();
  else
    counters_->LogDropped();
}

}  // namespace smartcache
