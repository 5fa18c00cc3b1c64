// Follows `bundle_dir/current` and has the bundle of the promoted version ready.
//
// A background thread looks every poll_s where the link points and whether bundle.json or golden.json there has changed; it resolves the
// link once and reads everything from that folder, warms the model, and only then swaps one pointer: an open sees the old bundle or the new
// one, never a mixture. Moving the link back is a change like any other. A bundle that cannot be read, or whose model answers wrongly, is
// refused with one message, and the one before stays. A model that cannot be asked yet is asked again at the next poll; the first bundle of
// all does not wait for that, so that opens are counted under the true reason (`unreachable`) rather than `no_model`; it is withdrawn if
// its golden rows turn out wrong. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "smartcache/bundle.hh"
#include "smartcache/log.hh"
#include "smartcache/model.hh"
#include "smartcache/periodic.hh"

namespace smartcache {

class BundleWatcher {
 public:
  // `model` and `schema` must outlive it.
  BundleWatcher(const ModelConfig& config, const Schema& schema, Model* model, Log log);

  // Null as long as there was no good bundle.
  std::shared_ptr<const Bundle> current() const { return std::atomic_load(&bundle_); }

 private:
  void Poll() noexcept;
  void Look();
  void Verify(const std::string& folder, const std::string& state);

  const std::string link_;
  const Schema& schema_;
  Model* const model_;
  const Log log_;
  // The poll thread's own:
  std::string applied_, refused_;  // folder and state of its files: what is in use, what was found bad
  bool verified_ = false;          // the bundle in use has had its golden rows checked
  std::string last_complaint_;

  std::shared_ptr<const Bundle> bundle_;
  Periodic thread_;  // last: it uses all of the above
};

}  // namespace smartcache
