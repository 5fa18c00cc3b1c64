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
  for (const char* name : {"/bundle.json", "/golden.json"}) {
    struct stat status;
    if (::stat((folder + name).c_str(), &status) != 0)
      state += " " + std::to_string(errno);
    else
      state += " " + std::to_string(status.st_ino) + " " + std::to_string(status.st_size) + " " + std::to_string(status.st_ctim.tv_sec) +
               "." + std::to_string(status.st_ctim.tv_nsec);
  }
  return state;
}

}  // namespace

BundleWatcher::BundleWatcher(const ModelConfig& config, const Schema& schema, Model* model, Log log)
    : link_(config.bundle_dir + "/current"), schema_(schema), model_(model), log_(std::move(log)), thread_(config.poll_s, [this] {
        Poll();
      }) {}

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
    bundle = std::make_shared<const Bundle>(ReadBundle(folder, schema_));
  } catch (const BundleError&) {
    refused_ = state;
    throw;
  }
  std::string why;
  const Model::Warmth warmth = model_->Warm(*bundle, &why);
  if (warmth == Model::Warmth::kWrong) {
    refused_ = state;
    throw BundleError(folder + ": refused: " + why + "; the model before stays");
  }
  if (warmth == Model::Warmth::kLater && current()) throw BundleError(folder + ": not in use yet: " + why);
  std::atomic_store(&bundle_, bundle);
  applied_ = state;
  verified_ = warmth == Model::Warmth::kReady;
  refused_.clear();
  last_complaint_.clear();
  log_("model " + bundle->name + " is in use" + (warmth == Model::Warmth::kLater ? ", though " + why : "") +
       (bundle->golden_inputs.empty() ? ", its answers unchecked: it has no golden.json" : ""));
}

// The first bundle went into use before its model could be asked: it is asked until it can.
void BundleWatcher::Verify(const std::string& folder, const std::string& state) {
  std::string why;
  const Model::Warmth warmth = model_->Warm(*current(), &why);
  verified_ = warmth == Model::Warmth::kReady;
  if (warmth != Model::Warmth::kWrong) return;
  std::atomic_store(&bundle_, std::shared_ptr<const Bundle>());
  applied_.clear();
  refused_ = state;
  throw BundleError(folder + ": withdrawn: " + why);
}

}  // namespace smartcache
