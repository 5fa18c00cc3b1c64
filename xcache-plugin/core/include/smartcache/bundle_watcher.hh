// Follows a link in `bundle_dir` and has the bundle that it names ready: `current`, the promoted version, or `challenger/current`.
//
// The challenger always has its copy for this process, and may be absent: then there is none, and nothing is said.
// A background thread looks every poll_s where the link points and whether bundle.json, golden.json or weights.json there has changed; it
// resolves the link once and reads everything from that folder, warms the model, and only then swaps one pointer: an open sees the old
// bundle or the new one, never a mixture. A folder that changes while it is read is read again. Moving the link back is a change like any
// other. A bundle that cannot be read, or whose model answers wrongly, is refused with one message, and the one before stays.
// A bundle whose embedded copy is good goes into use at once; its endpoint is checked at each poll until it answers. One without a copy
// waits for its endpoint, but for the first bundle of all, so that opens are counted under the true reason (`unreachable`) rather than
// `no_model`; it is withdrawn if its golden rows turn out wrong. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <string>

#include "smartcache/answer.hh"
#include "smartcache/bundle.hh"
#include "smartcache/log.hh"
#include "smartcache/model.hh"
#include "smartcache/periodic.hh"

namespace smartcache {

class BundleWatcher {
 public:
  // `model` and `schema` must outlive it.
  BundleWatcher(const ModelConfig& config, const Schema& schema, Model* model, Log log, Role role = Role::kChampion);

  // Null as long as there was no good bundle.
  std::shared_ptr<const Bundle> current() const { return std::atomic_load(&bundle_); }

 private:
  void Poll() noexcept;
  void Look();
  void Verify(const std::string& folder, const std::string& state);
  void SayOnce(const std::string& text);
  // "model reuse_v1", or "challenger reuse_v2".
  std::string Called(const Bundle& bundle) const;

  const Role role_;
  const std::string link_;
  const Weights weights_;
  const Schema& schema_;
  Model* const model_;
  const Log log_;
  // The poll thread's own:
  std::string applied_, refused_;  // folder and state of its files: what is in use, what was found bad
  bool verified_ = false;          // the bundle in use has had its golden rows checked
  std::set<std::string> said_;     // about that bundle
  std::string last_complaint_;

  std::shared_ptr<const Bundle> bundle_;
  Periodic thread_;  // last: it uses all of the above
};

}  // namespace smartcache
