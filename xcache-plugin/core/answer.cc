#include "smartcache/answer.hh"

namespace smartcache {

const char* Text(Answer answer) {
  static const char* const texts[kAnswers] = {"admit", "bypass", "evict"};
  return texts[static_cast<size_t>(answer)];
}

const char* Text(Reason reason) {
  static const char* const texts[kReasons] = {"rule",     "cached",   "model",        "explore",     "budget",        "guard",
                                              "no_model", "deadline", "breaker_open", "unreachable", "invalid_reply", "error"};
  return texts[static_cast<size_t>(reason)];
}

}  // namespace smartcache
