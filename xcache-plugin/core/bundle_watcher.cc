#include "smartcache/bundle_watcher.hh"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace smartcache {
namespace {

// What tells one state of a bundle from another: the folder and the identity of the files that are read there. By the time of the last
// change (ctime), which a change of permissions moves too.
std::string StateOf(const std::string& folder) {
  std::string state = folder;
  for (const char* name : {"/bundle.json", "/golden.json", "/weights.json"}) {
    struct stat status;
    if (::stat((folder + name).c_str(), &status) != 0)
      state += " " + std::to_string(errno);
    else
      state += " " + std::to_string(status.st_ino) + " " + std::to_string(status.st_size) + " " + std::to_string(status.st_ctim.tv_sec) +
               "." + std::to_string(status.st_ctim.tv_nsec);
  }
  return state;
}

constexpr size_t kMaxSaid = 8;

Weights WeightsFor(const ModelConfig& config) {
  if (config.use == ModelUse::kEndpoint) return Weights::kIgnored;
  return config.use == ModelUse::kEmbedded || config.endpoint_url.empty() ? Weights::kNeeded : Weights::kIfThere;
}

}  // namespace

BundleWatcher::BundleWatcher(const ModelConfig& config, const Schema& schema, Model* model, Log log, Role role)
    : role_(role),
      link_(config.bundle_dir + (role == Role::kChampion ? "/current" : "/challenger/current")),
      weights_(role == Role::kChampion ? WeightsFor(config) : Weights::kNeeded),
      schema_(schema),
      model_(model),
      log_(std::move(log)),
      thread_(config.poll_s, [this] { Poll(); }) {}

void BundleWatcher::Poll() noexcept {
  try {
    Look();
  } catch (const std::exception& error) {
    try {
      if (last_complaint_ != error.what()) log_(std::string("model bundle: ") + error.what());
      last_complaint_ = error.what();
    } catch (...) {
    }
  } catch (...) {
    // Nothing that is thrown may end the server; the next look comes.
  }
}

void BundleWatcher::Look() {
  const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(link_.c_str(), nullptr), &std::free);
  if (!resolved && role_ == Role::kChallenger && errno == ENOENT) {
    if (const auto before = current()) {
      log_(Called(*before) + " is not tried any more");
      model_->Forget();
    }
    std::atomic_store(&bundle_, std::shared_ptr<const Bundle>());
    applied_.clear();
    refused_.clear();
    return;
  }
  if (!resolved) throw BundleError(link_ + ": " + std::strerror(errno) + "; promote a model, or empty [model] bundle_dir");
  const std::string folder = resolved.get();
  const std::string state = StateOf(folder);
  if (state == applied_) {
    refused_.clear();  // back from a bad bundle: the same bad one again deserves its message again
    last_complaint_.clear();
    if (!verified_) Verify(folder, state);
    return;
  }
  if (state == refused_) return;

  std::shared_ptr<const Bundle> bundle;
  try {
    bundle = std::make_shared<const Bundle>(ReadBundle(folder, schema_, weights_));
  } catch (const BundleError&) {
    refused_ = state;
    throw;
  }
  if (StateOf(folder) != state) return;  // half of it may be old
  Finding finding;
  const Model::Warmth warmth = model_->Warm(*bundle, &finding);
  if (warmth == Model::Warmth::kWrong) {
    refused_ = state;
    throw BundleError(folder + ": refused: " + finding.why + "; the model before stays");
  }
  if (warmth == Model::Warmth::kLater && current()) throw BundleError(folder + ": not in use yet: " + finding.why);
  std::atomic_store(&bundle_, bundle);
  applied_ = state;
  verified_ = warmth == Model::Warmth::kReady;
  refused_.clear();
  last_complaint_.clear();
  said_ = {Called(*bundle) + ": " + finding.why};
  log_(Called(*bundle) + (role_ == Role::kChampion ? " is in use" : " is tried") +
       (warmth == Model::Warmth::kReady ? "" : ", though " + finding.why) +
       (warmth == Model::Warmth::kUsable ? "; its embedded copy answers" : "") +
       (bundle->golden_inputs.empty() ? ", its answers unchecked: it has no golden.json" : "") +
       (weights_ == Weights::kIfThere && !bundle->network ? ", without an embedded copy: it has no weights.json" : ""));
}

// The bundle went into use before its endpoint could be asked: it is asked until it can.
void BundleWatcher::Verify(const std::string& folder, const std::string& state) {
  const auto bundle = current();
  Finding finding;
  const Model::Warmth warmth = model_->Warm(*bundle, &finding);
  verified_ = warmth == Model::Warmth::kReady;
  if (verified_) {
    log_(Called(*bundle) + " is checked: its endpoint answers");
    return;
  }
  if (warmth != Model::Warmth::kWrong) {
    SayOnce(Called(*bundle) + ": " + finding.why);
    return;
  }
  std::atomic_store(&bundle_, std::shared_ptr<const Bundle>());
  applied_.clear();
  refused_ = state;
  throw BundleError(folder + ": withdrawn: " + finding.why);
}

std::string BundleWatcher::Called(const Bundle& bundle) const {
  return (role_ == Role::kChampion ? "model " : "challenger ") + bundle.name;
}

// Reasons may take turns at every poll: each is worth one line, and a few lines are enough.
void BundleWatcher::SayOnce(const std::string& text) {
  if (said_.size() < kMaxSaid && said_.insert(text).second) log_(text);
}

}  // namespace smartcache
