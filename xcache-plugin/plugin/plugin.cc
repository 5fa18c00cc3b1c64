// libXrdPfcSmartCache: pfc asks it at each open whether the file is to be stored.
//
//   pfc.decisionlib libXrdPfcSmartCache.so /etc/xrootd/smartcache.toml
//
// It adds to the core what only the server knows: the file on disk, the fill of the disk, the id of the cache; and carries out `evict`.
// Failure: whatever happens here, an open goes on. A configuration that cannot be used is said in the log once, and every open is admitted,
// as by an XCache without us. No exception leaves Decide: it would end the server.
// pfc never destroys its decision plugins, so nothing here is destroyed while a thread may still run.
#include <sys/time.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <string>

#include "XrdPfc/XrdPfcDecision.hh"
#include "XrdSys/XrdSysError.hh"
#include "XrdVersion.hh"
#include "cache_state.hh"
#include "pfc_unlink.hh"
#include "smartcache/config.hh"
#include "smartcache/decider.hh"
#include "smartcache/evictor.hh"

namespace smartcache {
namespace {

int64_t NowUs() {
  timeval now;
  ::gettimeofday(&now, nullptr);
  return static_cast<int64_t>(now.tv_sec) * 1000000 + now.tv_usec;
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// host:port, as XRootD's monitoring names this server.
std::string CacheId() { return Environment("XRDHOST") + ":" + Environment("XRDPORT"); }

class SmartCacheDecision : public XrdPfc::Decision {
 public:
  explicit SmartCacheDecision(XrdSysLogger* logger) : error_(logger, "SmartCache_") {}

  bool ConfigDecision(const char* parameters) override {
    // pfc hands on the rest of the line and ignores the result.
    std::string path = parameters ? parameters : "";
    path.erase(0, path.find_first_not_of(" \t"));
    path.erase(path.find_last_not_of(" \t\r\n") + 1);
    std::call_once(configured_, [&] { Configure(path); });
    return decider_ != nullptr;
  }

  bool Decide(const std::string& lfn, XrdOss& oss) const override {
    try {
      // Without parameters pfc does not call ConfigDecision: the reference configuration then.
      std::call_once(configured_, [this] { Configure(""); });
      if (!decider_) return true;
      const FileState file = state_->Look(lfn, oss);
      const smartcache::Decision decision = decider_->Decide(NowUs(), lfn, file.on_disk, file.size, state_->fill());
      if (evictor_) {
        if (decision.answer == Answer::kEvict)
          evictor_->Add(lfn);
        else
          evictor_->Cancel(lfn);
      }
      return decision.answer != Answer::kBypass;
    } catch (...) {
      return true;
    }
  }

 private:
  void Configure(const std::string& path) const noexcept {
    try {
      const Config config = path.empty() ? ParseConfig("", "defaults") : LoadConfig(path);
      std::random_device device;
      const uint64_t seed = (uint64_t{device()} << 32) | device();
      auto decider = std::make_unique<Decider>(config, CacheId(), NowUs(), seed, [this](const std::string& text) { Say(text); });
      state_ = std::make_unique<CacheState>();
      if (config.policy.evict) {
        const PfcUnlink unlink;
        if (unlink.problem().empty())
          evictor_ = std::make_unique<Evictor>(unlink, decider->counters());
        else
          Say("[policy] evict = true cannot be carried out: " + unlink.problem() + "; `evict` answers are logged only");
      }
      decider_ = std::move(decider);
      Say("ready: " + CacheId() + ", configuration " + (path.empty() ? "defaults" : path));
    } catch (const std::exception& problem) {
      Refuse(problem.what());
    } catch (...) {
      Refuse("unknown failure");
    }
  }

  void Refuse(const char* why) const noexcept {
    try {
      Say(std::string(why));
      Say("the configuration is not in use: every open is admitted until it is mended and the server restarted");
    } catch (...) {
    }
  }

  void Say(const std::string& text) const { error_.Emsg("Config", text.c_str()); }

  mutable XrdSysError error_;
  // Written once, in call_once; pfc's interface is const.
  mutable std::once_flag configured_;
  mutable std::unique_ptr<Decider> decider_;  // null: admit everything
  mutable std::unique_ptr<CacheState> state_;
  mutable std::unique_ptr<Evictor> evictor_;  // null: evictions are logged only
};

}  // namespace
}  // namespace smartcache

// The loader reads the version that this was built with from here.
#pragma GCC visibility push(default)
XrdVERSIONINFO(XrdPfcGetDecision, smartcache);
#pragma GCC visibility pop

extern "C" __attribute__((visibility("default"))) XrdPfc::Decision* XrdPfcGetDecision(XrdSysError& error) {
  try {
    return new smartcache::SmartCacheDecision(error.logger());
  } catch (...) {
    return nullptr;  // pfc refuses to start, which is right where there is no memory at start
  }
}
