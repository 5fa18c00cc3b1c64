// The model behind an HTTP endpoint that speaks the TFaaS API: POST URL/json {"model":NAME,"keys":[...],"values":[...]} -> [p1,...,pB].
//
// A server may answer several rows at once ("rows": [[...],...] in place of "values"; a stock TFaaS does not). Whether it does is found out
// with the golden rows, and forgotten at the first such reply that is none: then each row is a request.
//
// Before anything is sent an open may find the breaker open (kBreakerOpen), the address unknown or no server there (kUnreachable). Once
// sent: no reply in time is kDeadline, a connection that broke without one is kUnreachable, anything but status 200 with exactly B finite
// numbers in [0, 1] that sum to 1 (within 1e-3) is kInvalidReply. A prediction has no effect, so trying again is always safe; the path
// never does, it has no time.
// The deadline covers waiting for a free connection, connecting, TLS and the reply; libcurl counts in whole milliseconds, so what is left
// is rounded down (at least 1). Names are resolved by the background thread alone; it also re-reads the token, probes for the breaker, and
// asks with patience on connections that have long been idle, so that TCP and TLS are seldom on an open's path: where the endpoint has
// dropped its connections, in a restart say, the next opens connect, within the deadline. The CA bundle never is loaded there: with https
// an open is given only a connection that has loaded it in the background (as long as there is none: kUnreachable), and when the file has
// changed each is made anew there. The breaker closes only where a probe on a connection that is warm already was answered within the
// deadline, as an open needs it.
// A token_file or ca_file that cannot be read is said once, until it can be; what was read last stays in use.
// Thread-safe. Nothing throws but the constructor (ConfigError, std::runtime_error, std::system_error).
#pragma once

#include <atomic>
#include <chrono>
#include <climits>
#include <memory>
#include <string>
#include <vector>

#include "smartcache/breaker.hh"
#include "smartcache/config.hh"
#include "smartcache/log.hh"
#include "smartcache/model.hh"
#include "smartcache/periodic.hh"

namespace smartcache {

struct EndpointAddress;
class EndpointConnection;
class EndpointPool;
struct EndpointRoute;

struct EndpointOptions {
  double refresh_s = 30;  // a connection that was idle for so long is asked again in the background
};

class EndpointModel : public Model {
 public:
  // `log` may be empty.
  EndpointModel(const ModelConfig& config, size_t features, Log log = {}, EndpointOptions options = {});
  ~EndpointModel() override;

  void Predict(const Bundle& bundle, const float* features, Clock::time_point began, Prediction* out) noexcept override;
  // One request, one deadline, and one answer or reason for all.
  void PredictRows(const Bundle& bundle, const std::vector<const float*>& rows, Prediction* out) noexcept override;
  size_t rows_at_once() const noexcept override;
  std::optional<bool> breaker_open() const noexcept override { return !breaker_.Allow(); }
  Warmth Warm(const Bundle& bundle, Finding* finding) override;
  void Forget() noexcept override;

 private:
  Clock::time_point DeadlineFrom(Clock::time_point began) const;
  // Some rows of features, and where their predictions go.
  struct Rows {
    const float* const* features;
    Prediction* out;
    size_t count;

    void Say(Reason reason) const;
  };
  // One request under the deadline, where the breaker and the connections allow one.
  void PredictOnce(const Bundle& bundle, const Rows& rows, Clock::time_point began) noexcept;
  // Sends and checks one request on a connection that the caller holds; for one row as TFaaS knows it.
  // Patiently: where no open waits. A connection may load the CA bundle then.
  void AskPatiently(EndpointConnection* connection, const Bundle& bundle, const Rows& rows);
  void Ask(EndpointConnection* connection, const Bundle& bundle, const Rows& rows, Clock::time_point deadline);
  // Whether the endpoint answers several rows at once as it does each.
  bool AnswersRows(const Bundle& bundle);
  Warmth AskGoldenRows(const Bundle& bundle, Finding* finding);
  // Whether a request is answered as fast as an open needs it.
  bool AnswersInTime(const Bundle& bundle);
  void Maintain() noexcept;
  // Asks on each connection that has been idle for long, or has not loaded the CA bundle as it is now, up to the first that is not
  // answered.
  void Refresh(const Bundle& bundle);
  void ReadFiles();
  void Complain(const char* field, const std::string& path, const char* cure, bool readable, bool* said);

  const ModelConfig config_;
  const size_t features_;
  const Log log_;
  const Clock::duration refresh_;
  std::unique_ptr<const EndpointAddress> address_;
  std::unique_ptr<EndpointPool> pool_;

  Breaker breaker_;
  std::atomic<bool> takes_rows_{false};
  std::shared_ptr<const EndpointRoute> route_;  // address and token in use, swapped as a whole
  std::shared_ptr<const Bundle> probe_bundle_;  // the bundle in use: what a probe asks for
  std::string token_;                           // the constructor's, then the maintenance thread's own, as are those below
  std::string addresses_;
  std::string ca_path_, ca_seen_;                // no path: none is needed
  std::atomic<unsigned> ca_{0};                  // rises when the CA bundle changes
  std::atomic<unsigned> said_bad_ca_{UINT_MAX};  // of which it was said that it is none
  Clock::time_point resolve_at_{}, read_files_at_{}, refresh_at_{};
  bool said_token_ = false, said_ca_ = false, looked_for_ca_ = false;
  std::unique_ptr<Periodic> maintenance_;  // last: it uses all of the above
};

}  // namespace smartcache
