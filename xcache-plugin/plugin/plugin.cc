// libXrdPfcSmartCache: pfc asks it at each open whether the file is to be stored.
//
//   pfc.decisionlib libXrdPfcSmartCache.so /etc/xrootd/smartcache.toml
//
// It adds to the core what only the server knows: the file on disk, the cache's disk, the id of the cache; and what only it can do:
// removing a cached file. Failure: whatever happens here, an open goes on. A configuration that cannot be used is said in the log once, and
// every open is admitted, as by an XCache without us. No exception leaves Decide: it would end the server. pfc never destroys its decision
// plugins, so nothing here is destroyed while a thread may still run.
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <string>

#include "XrdOuc/XrdOucGatherConf.hh"
#include "XrdPfc/XrdPfcDecision.hh"
#include "XrdSys/XrdSysError.hh"
#include "XrdVersion.hh"
#include "cache_state.hh"
#include "oss_disk.hh"
#include "recent_looks.hh"
#include "removal.hh"
#include "smartcache/config.hh"
#include "smartcache/decider.hh"
#include "smartcache/evictor.hh"
#include "smartcache/scan.hh"
#include "smartcache/trace.hh"
#include "smartcache/utf8.hh"
#include "smartcache/watermark.hh"

namespace smartcache {
namespace {

constexpr double kDefaultPurgeMark = 0.95;  // XrdPfc's, high

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

// What the server's configuration says after `name`, the words with a space between them; none where it does not. The last one counts, as
// it does for the server.
std::optional<std::string> ServerDirective(const char* name) {
  const std::string file = Environment("XRDCONFIGFN");
  XrdOucGatherConf directives(name, nullptr);
  std::optional<std::string> last;
  if (file.empty() || directives.Gather(file.c_str(), XrdOucGatherConf::only_body) <= 0) return last;
  while (directives.GetLine()) {
    last.emplace();
    while (const char* word = directives.GetToken()) *last += (last->empty() ? "" : " ") + std::string(word);
  }
  return last;
}

// The space of XRootD's disks in which pfc stores what it caches; beside it stands that of the .cinfo files.
std::string DataSpace() {
  const std::string spaces = ServerDirective("pfc.spaces").value_or("");
  return spaces.empty() ? "public" : spaces.substr(0, spaces.find(' '));
}

std::string Share(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", share);
  return text;
}

// The share of the disk at which pfc's own purge begins, as configured or by its default; none where it is given in bytes.
std::optional<double> PurgeMark() {
  const auto words = ServerDirective("pfc.diskusage");
  if (!words) return kDefaultPurgeMark;
  const std::string high = words->substr(std::min(words->size(), words->find(' ')));
  char* end = nullptr;
  const double mark = std::strtod(high.c_str(), &end);
  const bool share = end != high.c_str() && (*end == '\0' || *end == ' ') && mark > 0 && mark <= 1;
  return share ? std::optional(mark) : std::nullopt;
}

// Whether pfc checks the checksums of what comes over the network: it does unless it is told otherwise.
bool ChecksNetwork() {
  std::istringstream words(ServerDirective("pfc.cschk").value_or(""));
  bool checks = true;
  for (std::string word; words >> word;) {
    if (word == "off" || word == "nonet") checks = false;
    if (word == "net") checks = true;
  }
  return checks;
}

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
      if (disk_.Use(&oss)) {
        watermark_->Wake();
        if (scan_) scan_->Wake();
      }
      const FileState file = Look(lfn, oss);
      const int64_t now_us = NowUs();
      const float fill = watermark_->fill();
      // What is on disk is read from there whatever is answered: that open waits for nobody.
      if (file.on_disk && decider_->DecideLater(now_us, lfn, file.size, fill, file.read_share)) return true;
      const smartcache::Decision decision = decider_->Decide(now_us, lfn, file.on_disk, file.size, fill, file.read_share);
      Follow(lfn, decision.answer);
      return decision.answer != Answer::kBypass;
    } catch (...) {
      return true;
    }
  }

 private:
  FileState Look(const std::string& lfn, XrdOss& oss) const {
    const int64_t now_us =
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
    if (const auto recent = looks_.Find(lfn, now_us)) return *recent;
    const FileState found = LookAt(lfn, oss);
    looks_.Put(lfn, now_us, found);
    return found;
  }

  void Configure(const std::string& path) const noexcept {
    try {
      const Config config = path.empty() ? ParseConfig("", "defaults") : LoadConfig(path);
      std::random_device device;
      const uint64_t seed = (uint64_t{device()} << 32) | device();
      const Trace trace = MakeTrace(config);
      disk_.Measure(DataSpace(), [this](const std::string& text) { Say(text); });
      auto decider = std::make_unique<Decider>(
          config, CacheId(), NowUs(), seed, [this](const std::string& text) { Say(text); }, trace,
          [this](const std::string& lfn, const smartcache::Decision& decision) { Follow(lfn, decision.answer); });
      const auto unlink = config.evictor.enabled && !config.evictor.dry_run ? FindUnlink(config, trace, decider.get()) : Evictor::Unlink();
      // Into our own members only once all of them are there: what fails on the way takes what it uses with it.
      std::unique_ptr<Evictor> evictor;
      if (unlink) {
        EvictorOptions options;
        options.limit = config.evictor.answers_per_minute;
        evictor = std::make_unique<Evictor>(unlink, decider->counters(), options);
      }
      auto watermark = std::make_unique<Watermark>(
          config.evictor, config.budget.objects > 0, &disk_, decider.get(), unlink, NowUs, [this](const std::string& text) { Say(text); },
          trace);
      if (decider->scan_due())
        scan_ = std::make_unique<Scanner>(
            &disk_, decider.get(), [this] { return disk_.known(); }, NowUs, [this](const std::string& text) { Say(text); });
      watermark_ = std::move(watermark);
      evictor_ = std::move(evictor);
      decider_ = std::move(decider);
      if (config.evictor.enabled && config.evictor.capacity_bytes == 0) ComparePurgeMark(config);
      if (XrdMajorVNUM(XrdVNUMBER) == 5 && ChecksNetwork())
        Say("pfc.cschk checks what comes over the network, which is its default: with XRootD 5.5.3 a read past the end of a file that is "
            "not stored then fails, whichever decision plugin there is; add `pfc.cschk nonet` to the server's configuration");
      Say("ready: " + CacheId() + ", configuration " + (path.empty() ? "defaults" : path));
    } catch (const std::exception& problem) {
      Refuse(problem.what());
    } catch (...) {
      Refuse("unknown failure");
    }
  }

  void ComparePurgeMark(const Config& config) const {
    const auto mark = PurgeMark();
    if (mark && config.evictor.high >= *mark)
      Say(config.source + ": [evictor] high must be below the high mark of pfc.diskusage (" + Share(*mark) + "), but is " +
          Share(config.evictor.high) + ": XCache's own purge comes first, by age; lower it, or raise that");
  }

  // What an answer asks of the evictor. For whom an open has called: then all members are there.
  void Follow(const std::string& lfn, Answer answer) const {
    if (!evictor_) return;
    if (answer == Answer::kEvict)
      evictor_->Add(lfn);
    else
      evictor_->Cancel(lfn);
  }

  // What `smartcache.trace` in the server's configuration says, else [trace] level.
  Trace MakeTrace(const Config& config) const {
    unsigned concerns = config.trace.concerns;
    if (const auto words = ServerDirective("smartcache.trace")) {
      if (const auto parsed = ParseConcerns(*words))
        concerns = *parsed;
      else
        Say("smartcache.trace must be off, all, or some of decisions, model, evictor, but is \"" + *words + "\"; [trace] level holds");
    }
    return {concerns, [this](Concern concern, const std::string& text) { error_.Emsg(NameOf(concern), text.c_str()); }};
  }

  // How files are removed here; empty where they cannot be.
  Evictor::Unlink FindUnlink(const Config& config, const Trace& trace, Decider* decider) const {
    const Removal way = FindRemoval(config.evictor.through, Environment("XRDPORT"));
    if (!way.remove) {
      Say(config.source + ": [evictor] enabled = true cannot be carried out: " + way.how + "; nothing is removed, `evict` is logged only");
      return {};
    }
    Say("evictor: removes files through " + way.how);
    return [remove = way.remove, trace, decider, looks = &looks_](const std::string& lfn) {
      if (decider->off()) return -EBUSY;  // later, if ever
      const int result = remove(lfn);
      looks->Forget(lfn);
      if (result == 0) decider->budget()->Removed();
      if (trace.On(Concern::kEvictor)) {
        std::string text;
        AppendQuoted(lfn, &text);
        trace(Concern::kEvictor, text + (result == 0 ? " removed" : " not removed, result " + std::to_string(result)));
      }
      return result;
    };
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
  mutable OssDisk disk_;
  mutable RecentLooks looks_;
  mutable std::unique_ptr<Evictor> evictor_;  // null: evictions are logged only
  mutable std::unique_ptr<Watermark> watermark_;
  mutable std::unique_ptr<Scanner> scan_;  // null: nothing to learn from a scan
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
