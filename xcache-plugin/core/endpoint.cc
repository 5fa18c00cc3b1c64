#include "smartcache/endpoint.hh"

#include <curl/curl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>
#include <stdexcept>

#include "endpoint_connection.hh"
#include "smartcache/distribution.hh"

namespace smartcache {
namespace {

constexpr size_t kMaxReply = 8192;  // for a row: 64 numbers need 2 kB
constexpr size_t kMaxRows = 64;     // at once
constexpr auto kWarmDeadline = std::chrono::seconds(2);
constexpr auto kPatience = std::chrono::seconds(1);  // for a connection, where no open waits
constexpr double kGoldenTolerance = 1e-3;
constexpr double kMaintenanceS = 0.1;
constexpr int kProbes = 3;
constexpr auto kResolveEvery = std::chrono::seconds(30);
constexpr auto kReadFilesEvery = std::chrono::seconds(1);
constexpr auto kResolveAgain = std::chrono::seconds(1);
constexpr auto kRefreshAgain = std::chrono::seconds(1);

void AppendFloat(std::string* out, float value) {
  char buffer[32];
  out->append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::general, 9).ptr);
}

bool Readable(const std::string& path) { return std::ifstream(path).get() != std::ifstream::traits_type::eof(); }

// Another text for each state of a file that has something in it; else none.
std::string StateOf(const std::string& path) {
  struct stat status;
  if (!Readable(path) || ::stat(path.c_str(), &status) != 0) return "";
  std::string state;
  for (const int64_t each : {static_cast<int64_t>(status.st_dev), static_cast<int64_t>(status.st_ino), static_cast<int64_t>(status.st_size),
                             static_cast<int64_t>(status.st_mtim.tv_sec), static_cast<int64_t>(status.st_mtim.tv_nsec)})
    state += std::to_string(each) + " ";
  return state;
}

}  // namespace

EndpointModel::EndpointModel(const ModelConfig& config, size_t features, Log log, EndpointOptions options)
    : config_(config),
      features_(features),
      log_(std::move(log)),
      refresh_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.refresh_s))),
      breaker_(config.breaker_failures,
               std::chrono::duration_cast<Breaker::Duration>(std::chrono::duration<double>(std::min(config.breaker_open_s, 1e6)))) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (ready != CURLE_OK) throw std::runtime_error("libcurl cannot be initialised");
  std::string base = config.endpoint_url;
  while (!base.empty() && base.back() == '/') base.pop_back();
  base += "/json";
  address_ = std::make_unique<const EndpointAddress>(AddressOf(base));
  if (address_->secure) ca_path_ = CaFile(config_);
  pool_ = std::make_unique<EndpointPool>(config_, base, *address_);
  ReadFiles();
  if (address_->literal) std::atomic_store(&route_, std::make_shared<const EndpointRoute>(EndpointRoute{"", token_}));
  maintenance_ = std::make_unique<Periodic>(kMaintenanceS, [this] { Maintain(); });
}

EndpointModel::~EndpointModel() { maintenance_.reset(); }

EndpointModel::Clock::time_point EndpointModel::DeadlineFrom(Clock::time_point began) const {
  return began + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(config_.deadline_ms));
}

void EndpointModel::Predict(const Bundle& bundle, const float* features, Clock::time_point began, Prediction* out) noexcept {
  PredictOnce(bundle, {&features, out, 1}, began);
}

size_t EndpointModel::rows_at_once() const noexcept { return takes_rows_.load(std::memory_order_relaxed) ? kMaxRows : 1; }

void EndpointModel::PredictRows(const Bundle& bundle, const std::vector<const float*>& rows, Prediction* out) noexcept {
  for (size_t first = 0; first < rows.size();) {
    const size_t count = std::min(rows_at_once(), rows.size() - first);
    PredictOnce(bundle, {rows.data() + first, out + first, count}, Clock::now());
    if (count > 1 && out[first].result(Source::kEndpoint) == Reason::kInvalidReply) takes_rows_.store(false, std::memory_order_relaxed);
    first += count;
  }
}

void EndpointModel::Rows::Say(Reason reason) const {
  for (size_t i = 0; i < count; ++i) {
    out[i].answered = reason == Reason::kModel;
    out[i].result(Source::kEndpoint) = reason;
  }
}

void EndpointModel::PredictOnce(const Bundle& bundle, const Rows& rows, Clock::time_point began) noexcept {
  const auto deadline = DeadlineFrom(began);
  if (!breaker_.Allow()) return rows.Say(Reason::kBreakerOpen);
  // Nothing is sent that cannot be waited for: it would cost the connection its warmth and the endpoint its name.
  if (Clock::now() >= deadline) return rows.Say(Reason::kDeadline);
  {
    const EndpointPool::Lease lease = pool_->Take(deadline);
    // Either none could connect so far. Or all wait for replies: the endpoint is too slow for this load, and the requests that wait report
    // that themselves.
    if (!lease) return rows.Say(pool_->loaded() ? Reason::kDeadline : Reason::kUnreachable);
    try {
      Ask(lease.get(), bundle, rows, deadline);
    } catch (...) {
      rows.Say(Reason::kError);
    }
  }
  if (rows.out->answered)
    breaker_.Succeeded();
  else
    breaker_.Failed(Clock::now());
}

void EndpointModel::AskPatiently(EndpointConnection* connection, const Bundle& bundle, const Rows& rows) {
  const unsigned ca = ca_;
  connection->Renew(ca);
  Ask(connection, bundle, rows, Clock::now() + kWarmDeadline);
  const bool is_none = connection->bad_bundle() && Readable(ca_path_);  // else it is gone, for now
  if (is_none && said_bad_ca_.exchange(ca) != ca && log_)
    log_("[model] ca_file must be a file of certificates (PEM), but \"" + ca_path_ +
         "\" is none that can be loaded; what was loaded before, if anything, stays in use until the file changes");
  if (!connection->Settle(is_none)) Ask(connection, bundle, rows, Clock::now() + kWarmDeadline);
}

void EndpointModel::Ask(EndpointConnection* connection, const Bundle& bundle, const Rows& rows, Clock::time_point deadline) {
  const auto route = std::atomic_load(&route_);
  if (!route) return rows.Say(Reason::kUnreachable);  // the name has no address (yet)
  connection->Use(route);
  std::string& body = connection->body();
  body = bundle.request_head;
  body += rows.count == 1 ? "\"values\":[" : "\"rows\":[[";
  for (size_t row = 0; row < rows.count; ++row) {
    if (row > 0) body += "],[";
    for (size_t i = 0; i < features_; ++i) {
      if (i > 0) body += ',';
      AppendFloat(&body, rows.features[row][i]);
    }
  }
  body += rows.count == 1 ? "]}" : "]]}";

  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  long status = 0;
  const Reason sent = connection->Perform(std::max<long>(1, left), kMaxReply * rows.count, &status);
  if (sent != Reason::kModel) return rows.Say(sent);
  double* outputs[kMaxRows];
  for (size_t row = 0; row < rows.count; ++row) {
    outputs[row] = rows.out[row].outputs;
    rows.out[row].buckets = bundle.buckets;
  }
  const bool good = status == 200 && (rows.count == 1 ? ParseDistribution(connection->reply(), bundle.buckets, outputs[0])
                                                      : ParseDistributions(connection->reply(), rows.count, bundle.buckets, outputs));
  rows.Say(good ? Reason::kModel : Reason::kInvalidReply);
}

Model::Warmth EndpointModel::Warm(const Bundle& bundle, Finding* finding) {
  const Warmth warmth = AskGoldenRows(bundle, finding);
  if (warmth == Warmth::kReady) takes_rows_.store(AnswersRows(bundle), std::memory_order_relaxed);
  // A probe asks for what is in use: never for a bundle that was refused.
  if (warmth == Warmth::kReady || (warmth == Warmth::kLater && !std::atomic_load(&probe_bundle_)))
    std::atomic_store(&probe_bundle_, std::make_shared<const Bundle>(bundle));
  return warmth;
}

void EndpointModel::Forget() noexcept { std::atomic_store(&probe_bundle_, std::shared_ptr<const Bundle>()); }

Model::Warmth EndpointModel::AskGoldenRows(const Bundle& bundle, Finding* finding) {
  const std::vector<float> zeros(features_, 0.0f);
  const size_t rows = std::max<size_t>(1, bundle.golden_inputs.size());
  const size_t requests = std::max(rows, pool_->size());
  // Every connection that is free, so that all are open before the first open needs one; those in use are warm already.
  std::set<const EndpointConnection*> warmed;
  for (size_t i = 0; i < requests; ++i) {
    EndpointPool::Lease lease = pool_->TakeIdle([&](const EndpointConnection& each) { return warmed.count(&each) == 0; });
    if (!lease && i >= rows) break;
    const EndpointPool::Lease waited = lease ? EndpointPool::Lease() : pool_->Take(Clock::now() + kPatience);
    EndpointConnection* const connection = lease ? lease.get() : waited.get();
    if (!connection) {
      finding->why = "all connections to the endpoint are busy";
      return Warmth::kLater;
    }
    warmed.insert(connection);
    Prediction prediction;
    const bool golden = !bundle.golden_inputs.empty();
    const float* input = golden ? bundle.golden_inputs[i % rows].data() : zeros.data();
    AskPatiently(connection, bundle, {&input, &prediction, 1});
    if (!prediction.answered) {
      finding->reason = prediction.reason();
      finding->why = config_.endpoint_url + " does not answer for " + bundle.name + " (" + Text(prediction.reason()) + ")";
      return Warmth::kLater;
    }
    for (size_t k = 0; golden && k < bundle.buckets; ++k) {
      const double expected = static_cast<double>(bundle.golden_outputs[i % rows][k]);
      if (std::fabs(prediction.outputs[k] - expected) <= kGoldenTolerance) continue;
      finding->reason = Reason::kInvalidReply;
      finding->why = config_.endpoint_url + " answers " + bundle.name + "'s golden row " + std::to_string(i % rows) + " with " +
                     std::to_string(prediction.outputs[k]) + " in bucket " + std::to_string(k) + " where " + std::to_string(expected) +
                     " is expected: another model is served under that name";
      return Warmth::kWrong;
    }
  }
  return Warmth::kReady;
}

bool EndpointModel::AnswersRows(const Bundle& bundle) {
  const std::vector<float> zeros(features_, 0.0f);
  const size_t golden = std::min(bundle.golden_inputs.size(), kMaxRows);
  std::vector<const float*> features;
  for (size_t i = 0; i < golden; ++i) features.push_back(bundle.golden_inputs[i].data());
  while (features.size() < 2) features.push_back(zeros.data());
  std::vector<Prediction> predictions(features.size());

  const EndpointPool::Lease lease = pool_->Take(Clock::now() + kPatience);
  if (!lease) return false;
  AskPatiently(lease.get(), bundle, {features.data(), predictions.data(), features.size()});
  if (!predictions[0].answered) return false;
  for (size_t i = 0; i < golden; ++i)
    for (size_t k = 0; k < bundle.buckets; ++k)
      if (std::fabs(predictions[i].outputs[k] - static_cast<double>(bundle.golden_outputs[i][k])) > kGoldenTolerance) return false;
  return true;
}

void EndpointModel::Maintain() noexcept {
  try {
    ReadFiles();
    if (!address_->literal && Clock::now() >= resolve_at_) {
      const std::string found = Resolve(*address_);
      if (!found.empty()) addresses_ = found;  // an address that worked is better than none
      resolve_at_ = Clock::now() + (found.empty() ? std::chrono::seconds(kResolveAgain) : std::chrono::seconds(kResolveEvery));
    }
    const std::string resolve = address_->literal || addresses_.empty() ? "" : address_->host_and_port() + ":" + addresses_;
    const auto before = std::atomic_load(&route_);
    if ((address_->literal || !resolve.empty()) && (!before || before->resolve != resolve || before->token != token_))
      std::atomic_store(&route_, std::make_shared<const EndpointRoute>(EndpointRoute{resolve, token_}));
    const auto bundle = std::atomic_load(&probe_bundle_);
    if (bundle && breaker_.Allow()) Refresh(*bundle);
    if (!breaker_.TakeProbe(Clock::now())) return;
    Finding finding;
    const bool success = bundle && AskGoldenRows(*bundle, &finding) == Warmth::kReady && AnswersInTime(*bundle);
    if (success) takes_rows_.store(AnswersRows(*bundle), std::memory_order_relaxed);
    breaker_.Probed(success, Clock::now());
  } catch (...) {
    breaker_.Probed(false, Clock::now());
  }
}

bool EndpointModel::AnswersInTime(const Bundle& bundle) {
  const std::vector<float> zeros(features_, 0.0f);
  for (int i = 0; i < kProbes; ++i) {
    const EndpointPool::Lease lease = pool_->Take(Clock::now() + kPatience);
    if (!lease) continue;
    const float* const input = zeros.data();
    Prediction prediction;
    Ask(lease.get(), bundle, {&input, &prediction, 1}, DeadlineFrom(Clock::now()));
    if (prediction.answered) return true;
  }
  return false;
}

void EndpointModel::Refresh(const Bundle& bundle) {
  if (Clock::now() < refresh_at_) return;
  const std::vector<float> zeros(features_, 0.0f);
  const float* const input = zeros.data();
  const auto before = Clock::now() - refresh_;
  const auto wanted = [this, before](const EndpointConnection& each) {
    return !each.loaded() || each.ca() != ca_ || each.last_used() <= before;
  };
  while (const EndpointPool::Lease lease = pool_->TakeIdle(wanted)) {
    Prediction prediction;
    AskPatiently(lease.get(), bundle, {&input, &prediction, 1});
    if (prediction.answered && lease.get()->ca() == ca_) continue;
    refresh_at_ = Clock::now() + kRefreshAgain;
    return;
  }
}

void EndpointModel::ReadFiles() {
  if (Clock::now() < read_files_at_) return;
  read_files_at_ = Clock::now() + kReadFilesEvery;
  std::string token;
  if (!config_.token_file.empty()) {
    errno = 0;
    const bool readable = static_cast<bool>(std::ifstream(config_.token_file) >> token);
    Complain("token_file", config_.token_file, "put it there, or leave the line out", readable, &said_token_);
    if (readable) token_ = token;
  }
  const std::string& ca_file = config_.ca_file.empty() ? ca_path_ : config_.ca_file;
  if (!ca_file.empty()) {
    errno = 0;
    const char* const cure = config_.ca_file.empty() ? "that is the system's: install its ca-certificates, or name another file"
                                                     : "put it there, or leave the line out";
    Complain("ca_file", ca_file, cure, Readable(ca_file), &said_ca_);
  }
  if (ca_path_.empty()) return;
  // As long as there is none, what was loaded stays.
  if (const std::string state = StateOf(ca_path_); !state.empty() && state != ca_seen_) {
    if (looked_for_ca_) ++ca_;
    ca_seen_ = state;
  }
  looked_for_ca_ = true;
}

void EndpointModel::Complain(const char* field, const std::string& path, const char* cure, bool readable, bool* said) {
  const std::string why = errno == 0 ? "nothing in it" : std::strerror(errno);
  if (!readable && !*said && log_)
    log_(std::string("[model] ") + field + " must be a file that the server's user can read, but is \"" + path + "\" (" + why + "); " +
         cure + ": it is looked for every second");
  *said = !readable;
}

}  // namespace smartcache
