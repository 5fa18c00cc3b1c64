#include "smartcache/answer.hh"

namespace smartcache {

const char* Text(Answer answer) {
  static const char* const texts[kAnswers] = {"admit", "bypass", "evict"};
  return texts[static_cast<size_t>(answer)];
}

const char* Text(Reason reason) {
  static const char* const texts[kReasons] = {"rule", "cached",   "model",    "vote",         "explore",     "budget",        "guard",
                                              "off",  "no_model", "deadline", "breaker_open", "unreachable", "invalid_reply", "error"};
  return texts[static_cast<size_t>(reason)];
}

const char* Text(Source source) { return source == Source::kEndpoint ? "endpoint" : "embedded"; }

const char* Text(Role role) { return role == Role::kChampion ? "champion" : "challenger"; }

}  // namespace smartcache
