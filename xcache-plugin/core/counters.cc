#include "smartcache/counters.hh"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>

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

  page.Family("smartcache_model_requests_total", "counter", "Times the model was asked, by result: answered, or why not.");
  for (const Reason reason :
       {Reason::kModel, Reason::kDeadline, Reason::kBreakerOpen, Reason::kUnreachable, Reason::kInvalidReply, Reason::kError})
    page.Sample(Label("result", reason == Reason::kModel ? "answered" : smartcache::Text(reason)), asked(reason));
  page.Family("smartcache_decision_log_datagrams_total", "counter", "Datagrams of the decision log, by result.");
  page.Sample(Label("result", "sent"), log_sent_);
  page.Sample(Label("result", "dropped"), log_dropped_);
  page.Family("smartcache_evictions_total", "counter", "Attempts to remove a file that was answered evict, by what became of it.");
  static const char* const results[kEvictionResults] = {"done", "absent", "busy", "gave_up", "dropped", "cancelled", "limited"};
  for (size_t i = 0; i < kEvictionResults; ++i) page.Sample(Label("result", results[i]), evictions_[i]);

  page.Family("smartcache_history_files", "gauge", "Files remembered.");
  page.Sample("", gauges.files);
  page.Family("smartcache_history_datasets", "gauge", "Datasets remembered.");
  page.Sample("", gauges.datasets);
  page.Family("smartcache_history_bytes", "gauge", "Memory in use by the history.");
  page.Sample("", gauges.history_bytes);
  page.Family("smartcache_model_info", "gauge", "1 for the model in use; no sample where there is none.");
  if (!gauges.model.empty()) page.Sample(Label("model", gauges.model), uint64_t{1});
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
