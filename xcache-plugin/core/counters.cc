#include "smartcache/counters.hh"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <initializer_list>

namespace smartcache {
namespace {

std::string Number(double value) {
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

class Page {
 public:
  void Family(const char* name, const char* type, const char* help) {
    name_ = name;
    text_ += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  }
  void Sample(const std::string& labels, const std::string& value, const char* suffix = "") {
    text_ += name_ + suffix + (labels.empty() ? "" : "{" + labels + "}") + " " + value + "\n";
  }
  void Sample(const std::string& labels, uint64_t value, const char* suffix = "") { Sample(labels, std::to_string(value), suffix); }
  std::string Take() { return std::move(text_); }

 private:
  std::string name_, text_;
};

std::string Label(const char* name, const std::string& value) { return std::string(name) + "=\"" + value + "\""; }

}  // namespace

void Counters::Answered(Answer answer, Reason reason, double seconds) {
  Add(&answers_[static_cast<size_t>(answer)][static_cast<size_t>(reason)]);
  Add(&latency_[static_cast<size_t>(std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin())]);
  latency_ns_.fetch_add(static_cast<uint64_t>(seconds * 1e9), std::memory_order_relaxed);
}

uint64_t Counters::answers(Answer answer, Reason reason) const {
  return answers_[static_cast<size_t>(answer)][static_cast<size_t>(reason)];
}

std::string Counters::Text(const Gauges& gauges) const {
  Page page;
  page.Family("smartcache_answers_total", "counter", "Opens answered, by answer and reason.");
  for (size_t a = 0; a < kAnswers; ++a) {
    for (size_t r = 0; r < kReasons; ++r) {
      const uint64_t count = answers_[a][r];
      if (count != 0)
        page.Sample(
            Label("answer", smartcache::Text(static_cast<Answer>(a))) + "," + Label("reason", smartcache::Text(static_cast<Reason>(r))),
            count);
    }
  }
  page.Family("smartcache_decide_seconds", "histogram", "Time that answering took, the model included.");
  uint64_t below = 0;
  for (size_t i = 0; i < kBounds.size(); ++i) {
    below += latency_[i];
    page.Sample(Label("le", Number(kBounds[i])), below, "_bucket");
  }
  below += latency_.back();
  page.Sample(Label("le", "+Inf"), below, "_bucket");
  page.Sample("", Number(static_cast<double>(latency_ns_) * 1e-9), "_sum");
  page.Sample("", below, "_count");

  page.Family("smartcache_model_requests_total", "counter", "Times a source of a model was asked, by result: answered, or why not.");
  const auto requests = [&](Role role, Source source, std::initializer_list<Reason> results) {
    for (const Reason result : results)
      page.Sample(Label("role", smartcache::Text(role)) + "," + Label("source", smartcache::Text(source)) + "," +
                      Label("result", result == Reason::kModel ? "answered" : smartcache::Text(result)),
                  asked(role, source, result));
  };
  for (const Role role : {Role::kChampion, Role::kChallenger}) {
    requests(role, Source::kEndpoint,
             {Reason::kModel, Reason::kDeadline, Reason::kBreakerOpen, Reason::kUnreachable, Reason::kInvalidReply, Reason::kError});
    requests(role, Source::kEmbedded, {Reason::kModel, Reason::kInvalidReply});
  }
  page.Family("smartcache_decision_log_datagrams_total", "counter", "Datagrams of the decision log, by result.");
  page.Sample(Label("result", "sent"), log_sent_);
  page.Sample(Label("result", "dropped"), log_dropped_);
  page.Family("smartcache_evictions_total", "counter", "Attempts to remove a file that was answered evict, by what became of it.");
  static const char* const results[kEvictionResults] = {"done", "absent", "busy", "gave_up", "dropped", "cancelled", "limited"};
  for (size_t i = 0; i < kEvictionResults; ++i) page.Sample(Label("result", results[i]), evictions_[i]);

  page.Family("smartcache_evictor_runs_total", "counter", "Times that the cache was found over its high mark, by what became of it.");
  static const char* const runs[kRunResults] = {"reached", "short", "dry_run", "no_model", "others", "failed"};
  for (size_t i = 0; i < kRunResults; ++i) page.Sample(Label("result", runs[i]), runs_[i]);
  page.Family("smartcache_evictor_files_total", "counter", "Files chosen in those runs, by what became of them.");
  static const char* const chosen[kFileResults] = {"removed", "busy", "absent", "opened_again", "failed"};
  for (size_t i = 0; i < kFileResults; ++i) page.Sample(Label("result", chosen[i]), run_files_[i]);
  page.Family("smartcache_evictor_removed_bytes_total", "counter", "Bytes on disk of the files removed in those runs.");
  page.Sample("", removed_bytes_);
  page.Family("smartcache_cache_used_bytes", "gauge", "Bytes in use, as the evictor measures them; no sample as long as it does not know.");
  if (cache_used_ >= 0) page.Sample("", static_cast<uint64_t>(cache_used_));
  page.Family("smartcache_cache_size_bytes", "gauge", "Of so many.");
  if (cache_total_ >= 0) page.Sample("", static_cast<uint64_t>(cache_total_));
  page.Family("smartcache_scanned_files_total", "counter", "Files on disk that the scan for an empty history has looked at.");
  page.Sample("", scanned_);

  page.Family("smartcache_decisions_waiting", "gauge", "Opens of files on disk that have gone on and are still being decided.");
  page.Sample("", gauges.waiting);
  page.Family("smartcache_history_files", "gauge", "Files remembered.");
  page.Sample("", gauges.files);
  page.Family("smartcache_history_datasets", "gauge", "Datasets remembered.");
  page.Sample("", gauges.datasets);
  page.Family("smartcache_history_bytes", "gauge", "Memory in use by the history.");
  page.Sample("", gauges.history_bytes);
  page.Family("smartcache_history_forgotten_total", "counter", "Entries of the history that others had to make room for, since the start.");
  page.Sample(Label("kind", "file"), gauges.forgotten_files);
  page.Sample(Label("kind", "dataset"), gauges.forgotten_datasets);
  page.Family("smartcache_breaker_open", "gauge",
              "1: the endpoint is left alone until a probe is answered; no sample where no endpoint is asked.");
  for (const Role role : {Role::kChampion, Role::kChallenger})
    if (const auto open = gauges.breaker_open[static_cast<size_t>(role)])
      page.Sample(Label("role", smartcache::Text(role)), uint64_t{*open});
  page.Family("smartcache_budget_charged_bytes_total", "counter", "Bytes that files cost which were admitted, where a budget is set.");
  page.Sample("", gauges.budget.charged_bytes);
  page.Family("smartcache_budget_level_bytes", "gauge",
              "What may be stored at once under write_bytes_per_s; below 0 while a debt is paid.");
  page.Sample("", Number(gauges.budget.level_bytes));
  page.Family("smartcache_objects", "gauge", "Files on disk; no sample as long as nobody has counted them.");
  if (gauges.budget.objects >= 0) page.Sample("", static_cast<uint64_t>(gauges.budget.objects));
  page.Family("smartcache_history_saves_total", "counter", "Times that the history was written to its file, by result.");
  page.Sample(Label("result", "done"), history_saves(true));
  page.Sample(Label("result", "failed"), history_saves(false));
  page.Family("smartcache_history_saved_timestamp_seconds", "gauge",
              "When the file of the history was written; no sample where there is none.");
  if (history_saved_s_ != 0) page.Sample("", static_cast<uint64_t>(history_saved_s_));
  page.Family("smartcache_side_table_loads_total", "counter", "Times that another side table was found, by what became of it.");
  page.Sample(Label("result", "done"), side_table_loads(true));
  page.Sample(Label("result", "failed"), side_table_loads(false));
  page.Family("smartcache_side_table_timestamp_seconds", "gauge",
              "Up to when the side table in use has opens; no sample where there is none.");
  if (gauges.side_table_until_us >= 0) page.Sample("", static_cast<uint64_t>(gauges.side_table_until_us / 1000000));
  page.Family("smartcache_side_table_datasets", "gauge", "Datasets in it.");
  page.Sample("", gauges.side_table_datasets);
  page.Family("smartcache_model_info", "gauge", "1 for the model in use; no sample where there is none.");
  if (!gauges.model.empty()) page.Sample(Label("model", gauges.model), uint64_t{1});
  page.Family("smartcache_challenger_info", "gauge", "1 for the challenger that is tried beside it; no sample where there is none.");
  if (!gauges.challenger.empty()) page.Sample(Label("model", gauges.challenger), uint64_t{1});
  if (!gauges.portfolio) return page.Take();

  const FilePortfolio::State& portfolio = *gauges.portfolio;
  page.Family("smartcache_portfolio_ready", "gauge",
              "1: the portfolio votes; 0: the size of the cache is not known yet, or it is being made anew.");
  page.Sample("", uint64_t{portfolio.ready});
  page.Family("smartcache_portfolio_guarded", "gauge", "1: it has lost more than it may against LRU, which decides.");
  page.Sample("", uint64_t{portfolio.guarded});
  page.Family("smartcache_portfolio_weight", "gauge", "How much each of its caches has to say, of 1.");
  for (const auto& [name, weight] : portfolio.weights) page.Sample(Label("cache", name), Number(weight));
  page.Family("smartcache_portfolio_files", "gauge", "Files that it knows.");
  page.Sample("", portfolio.files);
  page.Family("smartcache_portfolio_room_bytes", "gauge", "The capacity that its caches have.");
  page.Sample("", portfolio.capacity_bytes);
  page.Family("smartcache_portfolio_forgotten_files_total", "counter", "Files that it has forgotten for want of memory.");
  page.Sample("", portfolio.forgotten);
  page.Family("smartcache_portfolio_unsaid_opens_total", "counter", "Opens of which it had nothing to say, as it was not ready or busy.");
  page.Sample("", portfolio.unsaid);
  page.Family("smartcache_portfolio_lost_opens_total", "counter", "Opens of these that it was not told of later either.");
  page.Sample("", portfolio.lost);
  return page.Take();
}

bool WriteTextfile(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    if (!(file << text) || !file.flush()) return false;
  }
  ::chmod(temporary.c_str(), 0644);  // node_exporter is another user
  return std::rename(temporary.c_str(), path.c_str()) == 0;
}

}  // namespace smartcache
