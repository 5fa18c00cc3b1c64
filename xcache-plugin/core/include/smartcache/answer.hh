// The vocabulary of a decision: what is answered and why. The texts are those of the decision log and of the counters.
#pragma once

#include <cstddef>

namespace smartcache {

enum class Answer { kAdmit, kBypass, kEvict };
constexpr size_t kAnswers = 3;

// The first six say how an answer was found; the others why no model gave one, so that the fallback had to.
enum class Reason {
  kRule,          // an LFN prefix of the configuration
  kCached,        // would be bypass, but the file is on disk
  kModel,         // the model's score against its thresholds
  kExplore,       // at random, so that training data shows both answers
  kBudget,        // reserved: a write budget
  kGuard,         // reserved: the LRU guard
  kNoModel,       // no bundle, or no endpoint configured
  kDeadline,      // the endpoint did not answer in time
  kBreakerOpen,   // the endpoint failed too often and is being left alone
  kUnreachable,   // the endpoint could not be reached
  kInvalidReply,  // the endpoint's reply was not a distribution
  kError,         // something failed inside: memory, for example
};
constexpr size_t kReasons = 12;

const char* Text(Answer answer);
const char* Text(Reason reason);

}  // namespace smartcache
