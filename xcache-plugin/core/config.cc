#include "smartcache/config.hh"

// toml++ 3.3 asserts, and lets clang assume, what a malformed text breaks: that a table's name begins as a name does. It checks the same
// thing afterwards, so the assertion can go; with it, "[~]" would end the server.
#undef NDEBUG
#define TOML_ASSERT(expr) static_assert(true)
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 1
#include <arpa/inet.h>
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "smartcache/pattern.hh"
#include "smartcache/trace.hh"

namespace smartcache {
namespace {

std::string Show(const toml::node& node) {
  std::ostringstream out;
  node.visit([&out](const auto& value) { out << value; });
  return out.str();
}

const char* TypeName(toml::node_type type) {
  switch (type) {
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "true or false";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::table:
      return "a table";
    default:
      return "another type";
  }
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

// What the user probably meant, else all that would have been right.
std::string Suggestion(std::string_view wrong, const toml::table& known) {
  std::string nearest, all;
  size_t distance = std::max<size_t>(2, wrong.size() / 3) + 1;
  for (const auto& [key, value] : known) {
    const size_t d = EditDistance(wrong, key.str());
    if (d < distance) {
      distance = d;
      nearest = key.str();
    }
    all += (all.empty() ? "" : ", ") + std::string(key.str());
  }
  return nearest.empty() ? "; known are " + all : "; did you mean \"" + nearest + "\"?";
}

bool IsPort(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 1 && port <= 65535;
}

// http(s)://HOST[:PORT][/PATH], and no more: a user or a query would go into every request, and into every log.
bool IsEndpointUrl(std::string_view url) {
  const size_t scheme = url.rfind("http://", 0) == 0 ? 7 : url.rfind("https://", 0) == 0 ? 8 : 0;
  if (scheme == 0 || url.find_first_of("?#@\\\"<>^`{|}") != std::string_view::npos) return false;
  if (std::any_of(url.begin(), url.end(), [](char c) { return c <= ' ' || c == 0x7f; })) return false;
  const std::string_view authority = url.substr(scheme, std::min(url.find('/', scheme), url.size()) - scheme);
  if (authority.empty()) return false;
  const size_t bracket = authority.find(']');
  if (authority[0] == '[' && bracket == std::string_view::npos) return false;
  const size_t host_end = authority[0] == '[' ? bracket + 1 : std::min(authority.find(':'), authority.size());
  return host_end > 0 && (host_end == authority.size() || (authority[host_end] == ':' && IsPort(authority.substr(host_end + 1))));
}

// Reads the merged tables; every complaint has the same shape.
class Reader {
 public:
  Reader(const toml::table& merged, std::string source) : merged_(merged), source_(std::move(source)) {}

  [[noreturn]] void Refuse(const char* section, const std::string& field, const std::string& rule, const std::string& value,
                           const std::string& fix) const {
    throw ConfigError(source_ + ": [" + section + "] " + field + " must be " + rule + ", but is " + value + "; " + fix);
  }

  const toml::node& Node(const char* section, const char* field) const { return *merged_[section].as_table()->get(field); }

  std::string Shown(const char* section, const char* field) const { return Show(Node(section, field)); }

  std::string String(const char* section, const char* field) const { return **Node(section, field).as_string(); }

  bool Bool(const char* section, const char* field) const { return **Node(section, field).as_boolean(); }

  double Number(const char* section, const char* field, double low, double high, bool low_included) const {
    const toml::node& node = Node(section, field);
    const double value = *node.value<double>();
    if (!(value <= high && (low_included ? value >= low : value > low))) {
      std::ostringstream rule;
      rule << (low_included ? "at least " : "more than ") << low;
      if (std::isfinite(high)) rule << " and at most " << high;
      Refuse(section, field, rule.str(), Show(node), "choose a value in that range, or leave the line out for the default");
    }
    return value;
  }

  int64_t Integer(const char* section, const char* field, int64_t low, int64_t high) const {
    const toml::node& node = Node(section, field);
    const int64_t value = **node.as_integer();
    if (value < low || value > high) {
      const std::string rule = "at least " + std::to_string(low) + (high == INT64_MAX ? "" : " and at most " + std::to_string(high));
      Refuse(section, field, rule, Show(node), "choose a value in that range, or leave the line out for the default");
    }
    return value;
  }

  std::string Path(const char* section, const char* field) const {
    std::string path = String(section, field);
    if (!path.empty() && path[0] != '/') Refuse(section, field, "an absolute path or empty", '"' + path + '"', "begin it with /");
    return path;
  }

  std::vector<std::string> Patterns(const char* section, const char* field) const {
    static const char* const kFix = "write it as \"/store/user/\" (all that begins so) or as \"/store/*/GEN-SIM/*\"";
    std::vector<std::string> patterns;
    for (const toml::node& each : *Node(section, field).as_array()) {
      if (!each.is_string()) Refuse(section, field, "an array of LFN prefixes and patterns", Show(each), kFix);
      try {
        const Pattern checked(**each.as_string());
      } catch (const std::invalid_argument& error) {
        Refuse(section, field, error.what(), Show(each), kFix);
      }
      patterns.emplace_back(**each.as_string());
    }
    return patterns;
  }

  std::vector<PressurePoint> Pressure(const char* section, const char* field) const {
    const toml::node& node = Node(section, field);
    std::vector<PressurePoint> points;
    for (const toml::node& each : *node.as_array()) {
      const toml::array* pair = each.as_array();
      const bool two = pair && pair->size() == 2;
      const double fill = two ? (*pair)[0].value_or(std::nan("")) : std::nan("");
      const double factor = two ? (*pair)[1].value_or(std::nan("")) : std::nan("");
      const double before = points.empty() ? -1.0 : points.back().fill;
      if (!(fill >= 0 && fill <= 1 && fill > before && factor > 0 && std::isfinite(factor)))
        Refuse(section, field, "pairs of a fill from 0 to 1, which rises, and a positive factor", Show(node),
               "write it as [[0.9, 1.0], [0.98, 2.0]], or [] for none");
      points.push_back({fill, factor});
    }
    return points;
  }

  unsigned Concerns(const char* section, const char* field) const {
    const std::string text = String(section, field);
    const auto concerns = ParseConcerns(text);
    if (!concerns)
      Refuse(section, field, "off, all, or some of decisions, model, evictor", '"' + text + '"',
             "write level = \"off\", or \"decisions evictor\"");
    return *concerns;
  }

  std::vector<DatasetRule> Rules(const char* section, const char* field) const {
    static const char* const kShape = "write it as { prefix = \"/store/user/\", levels = 4 }";
    std::vector<DatasetRule> rules;
    for (const toml::node& each : *Node(section, field).as_array()) {
      const toml::table* rule = each.as_table();
      const toml::node* prefix = rule ? rule->get("prefix") : nullptr;
      const toml::node* levels = rule ? rule->get("levels") : nullptr;
      if (!prefix || !levels || rule->size() != 2 || !prefix->is_string() || !levels->is_integer())
        Refuse(section, field, "an array of tables with a prefix and a number of levels", Show(each), kShape);
      if ((**prefix->as_string()).empty() || (**prefix->as_string())[0] != '/')
        Refuse(section, std::string(field) + ".prefix", "an LFN prefix that begins with /", Show(*prefix), kShape);
      const int64_t n = **levels->as_integer();
      if (n < 1 || n > 64) Refuse(section, std::string(field) + ".levels", "at least 1 and at most 64", Show(*levels), kShape);
      rules.push_back({**prefix->as_string(), static_cast<int>(n)});
    }
    return rules;
  }

  std::vector<double> HalfLives(const char* section, const char* field) const {
    const toml::node& node = Node(section, field);
    std::vector<double> values;
    for (const toml::node& each : *node.as_array()) {
      const auto value = each.value<double>();
      const double before = values.empty() ? 0.0 : values.back();
      if (!value || !std::isfinite(*value) || *value <= before)
        Refuse(section, field, "positive numbers of seconds that rise", Show(node), "write it as [3600.0, 86400.0]");
      values.push_back(*value);
    }
    if (values.empty() || values.size() > 8) Refuse(section, field, "1 to 8 numbers", Show(node), "write it as [3600.0, 86400.0]");
    return values;
  }

 private:
  const toml::table& merged_;
  std::string source_;
};

// Overlays `user` on `merged` key by key; both errors of name and errors of type end here.
void Overlay(const toml::table& user, toml::table& merged, const std::string& source) {
  for (const auto& [section_key, section_node] : user) {
    const std::string section(section_key.str());
    toml::node* known = merged.get(section);
    if (!known) throw ConfigError(source + ": unknown section [" + section + "]" + Suggestion(section, merged));
    const toml::table* values = section_node.as_table();
    if (!values)
      throw ConfigError(source + ": [" + section + "] must be a table, but is " + Show(section_node) + "; write [" + section +
                        "] on a line of its own");
    toml::table& defaults = *known->as_table();
    for (const auto& [key, value] : *values) {
      const std::string where = source + ": [" + section + "] ";
      const toml::node* reference = defaults.get(key.str());
      if (!reference) throw ConfigError(where + "unknown key \"" + std::string(key.str()) + "\"" + Suggestion(key.str(), defaults));
      const bool widens = reference->is_floating_point() && value.is_integer();
      if (value.type() != reference->type() && !widens) {
        throw ConfigError(where + std::string(key.str()) + " must be " + TypeName(reference->type()) + ", but is " + Show(value) +
                          "; the default is " + Show(*reference));
      }
      defaults.insert_or_assign(key, value);
    }
  }
}

constexpr uintmax_t kLargestFile = 1 << 20;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

EvictorConfig ReadEvictor(const Reader& read) {
  EvictorConfig config;
  config.enabled = read.Bool("evictor", "enabled");
  config.dry_run = read.Bool("evictor", "dry_run");
  const std::string through = read.String("evictor", "through");
  if (through != "auto" && through != "process" && through != "client")
    read.Refuse("evictor", "through", "\"auto\", \"process\" or \"client\"", '"' + through + '"',
                "choose \"auto\": the first of the two others that this server has");
  config.through = through == "auto" ? EvictThrough::kAuto : through == "process" ? EvictThrough::kProcess : EvictThrough::kClient;
  config.high = read.Number("evictor", "high", 0, 1, true);
  config.low = read.Number("evictor", "low", 0, 1, true);
  if (config.low >= config.high)
    read.Refuse("evictor", "low", "less than high", read.Shown("evictor", "low") + " where high is " + read.Shown("evictor", "high"),
                "choose a lower one, or a higher `high`");
  const std::string benefit = read.String("evictor", "benefit");
  if (benefit != "open" && benefit != "byte")
    read.Refuse("evictor", "benefit", "\"open\" or \"byte\"", '"' + benefit + '"',
                "write benefit = \"byte\" to save bytes over the WAN first");
  config.benefit_per_open = benefit == "open";
  config.capacity_bytes = read.Integer("evictor", "capacity_bytes", 0, INT64_C(1) << 60);
  config.scan_s = read.Number("evictor", "scan_s", 0, kNoLimit, false);
  config.files_per_minute = static_cast<int>(read.Integer("evictor", "files_per_minute", 1, 1000000000));
  config.answers_per_minute = static_cast<int>(read.Integer("evictor", "answers_per_minute", 1, 1000000000));
  return config;
}

}  // namespace

Config ParseConfig(std::string_view text, const std::string& source) {
  toml::table merged = toml::parse(std::string_view(ReferenceToml()));
  try {
    Overlay(toml::parse(text), merged, source);
  } catch (const toml::parse_error& error) {
    std::ostringstream message;
    message << source << ": not TOML: " << error.description() << " at line " << error.source().begin.line
            << "; mend the line (strings need quotes, sections [brackets])";
    throw ConfigError(message.str());
  }

  const Reader read(merged, source);
  Config config;
  config.source = source;
  config.dataset.levels = static_cast<int>(read.Integer("dataset", "levels", 1, 64));
  config.dataset.rules = read.Rules("dataset", "rules");
  config.history.memory_bytes = read.Integer("history", "memory_bytes", 65536, INT64_C(1) << 40);
  config.history.file = read.Path("history", "file");
  config.history.save_s = read.Number("history", "save_s", 0, kNoLimit, false);
  config.history.scan = read.Bool("history", "scan");
  config.features.half_lives_s = read.HalfLives("features", "half_lives_s");
  config.features.token_buckets = static_cast<int>(read.Integer("features", "token_buckets", 0, 64));

  config.model.bundle_dir = read.Path("model", "bundle_dir");
  const std::string use = read.String("model", "use");
  if (use != "endpoint+embedded" && use != "endpoint" && use != "embedded")
    read.Refuse("model", "use", "\"endpoint+embedded\", \"endpoint\" or \"embedded\"", '"' + use + '"',
                "leave the line out to ask the endpoint and, where it does not answer, the plugin's own copy of the model");
  config.model.use = use == "endpoint" ? ModelUse::kEndpoint : use == "embedded" ? ModelUse::kEmbedded : ModelUse::kEndpointThenEmbedded;
  config.model.endpoint_url = read.String("model", "endpoint_url");
  const std::string& url = config.model.endpoint_url;
  if (!url.empty() && !IsEndpointUrl(url))
    read.Refuse("model", "endpoint_url", "http:// or https://, a host, and at most a port and a path, or empty", '"' + url + '"',
                "write it as \"http://127.0.0.1:8083\"; a token goes into token_file");
  config.model.deadline_ms = read.Number("model", "deadline_ms", 0, 1000, false);
  config.model.poll_s = read.Number("model", "poll_s", 0, kNoLimit, false);
  config.model.breaker_failures = static_cast<int>(read.Integer("model", "breaker_failures", 1, 1000000));
  config.model.breaker_open_s = read.Number("model", "breaker_open_s", 0, kNoLimit, false);
  config.model.connections = static_cast<int>(read.Integer("model", "connections", 1, 1024));
  config.model.token_file = read.Path("model", "token_file");
  config.model.ca_file = read.Path("model", "ca_file");

  config.challenger.canary_share = read.Number("challenger", "canary_share", 0, 1, true);
  config.challenger.shadow = read.Bool("challenger", "shadow");

  config.policy.off_file = read.Path("policy", "off_file");
  const std::string fallback = read.String("policy", "fallback");
  if (fallback != "admit" && fallback != "bypass")
    read.Refuse("policy", "fallback", "\"admit\" or \"bypass\"", '"' + fallback + '"',
                "write fallback = \"admit\" to leave XCache as it is without us");
  config.policy.fallback_admit = fallback == "admit";
  config.policy.always_admit = read.Patterns("policy", "always_admit");
  config.policy.never_admit = read.Patterns("policy", "never_admit");
  config.policy.pressure = read.Pressure("policy", "pressure");
  config.policy.explore = read.Number("policy", "explore", 0, 1, true);
  config.evictor = ReadEvictor(read);

  config.budget.write_bytes_per_s = read.Integer("budget", "write_bytes_per_s", 0, INT64_C(1) << 50);
  config.budget.burst_s = read.Number("budget", "burst_s", 0, 86400, false);
  config.budget.objects = read.Integer("budget", "objects", 0, INT64_MAX);
  config.budget.unknown_size_bytes = read.Integer("budget", "unknown_size_bytes", 1, INT64_C(1) << 50);

  config.portfolio.enabled = read.Bool("portfolio", "enabled");
  config.portfolio.memory_bytes = read.Integer("portfolio", "memory_bytes", 1 << 20, INT64_C(1) << 40);
  config.portfolio.file = read.Path("portfolio", "file");

  config.decision_log.host = read.String("decision_log", "host");
  config.decision_log.port = static_cast<int>(read.Integer("decision_log", "port", 0, 65535));
  config.decision_log.features = read.Bool("decision_log", "features");
  config.plugin_metrics.textfile = read.Path("plugin_metrics", "textfile");
  config.plugin_metrics.interval_s = read.Number("plugin_metrics", "interval_s", 0, kNoLimit, false);
  config.plugin_metrics.bind = read.String("plugin_metrics", "bind");
  in_addr ipv4;
  in6_addr ipv6;
  if (::inet_pton(AF_INET, config.plugin_metrics.bind.c_str(), &ipv4) != 1 &&
      ::inet_pton(AF_INET6, config.plugin_metrics.bind.c_str(), &ipv6) != 1)
    read.Refuse("plugin_metrics", "bind", "an IP address", '"' + config.plugin_metrics.bind + '"', "write it as \"127.0.0.1\"");
  config.plugin_metrics.port = static_cast<int>(read.Integer("plugin_metrics", "port", 0, 65535));
  config.trace.concerns = read.Concerns("trace", "level");
  config.side_table.file = read.Path("side_table", "file");
  config.side_table.poll_s = read.Number("side_table", "poll_s", 0, kNoLimit, false);
  return config;
}

Config LoadConfig(const std::string& path) {
  // A pipe would hold up the server's start until somebody writes, a device never end.
  std::error_code error;
  const bool plain = std::filesystem::is_regular_file(path, error);
  std::ifstream file;
  if (plain && std::filesystem::file_size(path, error) <= kLargestFile) file.open(path, std::ios::binary);
  std::ostringstream text;
  if (!file.is_open())
    throw ConfigError(
        path + ": cannot be read; name an existing file of at most 1 MiB, that the server's user may read, on the pfc.decisionlib line");
  // Copying an empty file fails, and is none.
  if (!(text << file.rdbuf()) && (file.bad() || std::filesystem::file_size(path, error) != 0))
    throw ConfigError(path + ": cannot be read to its end; is its disk well?");
  return ParseConfig(text.str(), path);
}

}  // namespace smartcache
