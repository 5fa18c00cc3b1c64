#include "smartcache/decision_log.hh"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

#include "smartcache/utf8.hh"

namespace smartcache {
namespace {

constexpr size_t kMaxDatagram = 60000;
constexpr double kResolveAgainS = 1;

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

bool IsLiteral(const std::string& host) {
  in6_addr scratch;
  return ::inet_pton(AF_INET, host.c_str(), &scratch) == 1 || ::inet_pton(AF_INET6, host.c_str(), &scratch) == 1;
}

std::string AddressOf(const addrinfo& found) { return {reinterpret_cast<const char*>(found.ai_addr), found.ai_addrlen}; }

}  // namespace

void WriteRecord(const DecisionRecord& record, std::string* out) {
  *out += R"({"v":1,"cache":)";
  AppendQuoted(record.cache, out);
  *out += R"(,"boot_us":)";
  AppendInteger(out, record.boot_us);
  *out += R"(,"seq":)";
  AppendInteger(out, record.seq);
  *out += R"(,"t_us":)";
  AppendInteger(out, record.t_us);
  *out += R"(,"lfn":)";
  AppendQuoted(record.lfn, out);
  *out += R"(,"answer":")";
  *out += Text(record.answer);
  *out += R"(","reason":")";
  *out += Text(record.reason);
  *out += R"(","score":)";
  if (record.has_score) {
    AppendNumber(out, record.score);
    *out += R"(,"threshold":)";
    AppendNumber(out, record.threshold);
  } else {
    *out += R"(null,"threshold":null)";
  }
  *out += R"(,"probability":)";
  AppendNumber(out, record.probability);
  *out += R"(,"model":)";
  AppendQuoted(record.model, out);
  *out += R"(,"latency_us":)";
  AppendInteger(out, record.latency_us);
  *out += record.on_disk ? R"(,"on_disk":true,"size":)" : R"(,"on_disk":false,"size":)";
  AppendInteger(out, record.size);
  *out += R"(,"fill":)";
  AppendNumber(out, record.fill);
  *out += R"(,"read_share":)";
  AppendNumber(out, record.read_share);
  *out += R"(,"history_boot_us":)";
  if (record.has_history) {
    AppendInteger(out, record.history_boot_us);
    *out += R"(,"history_seq":)";
    AppendInteger(out, record.history_seq);
  } else {
    *out += R"(null,"history_seq":null)";
  }
  *out += record.history_scanned ? R"(,"history_scanned":true)" : R"(,"history_scanned":false)";
  if (record.side_table != 0) {
    *out += R"(,"side_table":)";
    AppendInteger(out, record.side_table);
  }
  if (!record.challenger_model.empty()) {
    *out += R"(,"challenger_model":)";
    AppendQuoted(record.challenger_model, out);
    *out += R"(,"challenger_answer":")";
    *out += Text(record.challenger_answer);
    *out += R"(","challenger_score":)";
    AppendNumber(out, record.challenger_score);
  }
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
  if (IsLiteral(config.host)) Connect();
  if (socket_ >= 0) return;
  resolve_every_ = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(resolve_every_s));
  thread_ = std::make_unique<Periodic>(std::min(resolve_every_s, kResolveAgainS), [this] {
    try {
      if (socket_ >= 0 && Clock::now() < resolve_at_) return;
      Connect();
      resolve_at_ = Clock::now() + resolve_every_;
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

void DecisionLog::Lost() noexcept {
  if (config_.port != 0) counters_->LogDropped();
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
  bool lost_before = false;
  if (datagram.size() <= kMaxDatagram) {
    sent = ::send(socket, datagram.data(), datagram.size(), MSG_NOSIGNAL);
    // "Refused" reports the datagram before this one: nobody listened. It was counted as sent, so this one, which is sent only now, is
    // counted as lost for it.
    if (sent < 0 && errno == ECONNREFUSED) {
      lost_before = true;
      sent = ::send(socket, datagram.data(), datagram.size(), MSG_NOSIGNAL);
    }
  }
  if (sent == static_cast<ssize_t>(datagram.size()) && !lost_before)
    counters_->LogSent();
  else
    counters_->LogDropped();
}

}  // namespace smartcache
