// The vocabulary of a decision: what is answered and why. The texts are those of the decision log and of the counters.
#pragma once

#include <cstddef>

namespace smartcache {

enum class Answer { kAdmit, kBypass, kEvict };
constexpr size_t kAnswers = 3;

// The first eight say how an answer was found. The others say why the source that was to be asked first gave none: with a score, the
// embedded copy of the same model answered in its place; without one, the fallback had to.
enum class Reason {
  kRule,          // a prefix or pattern of the configuration
  kCached,        // would be bypass, but the file is on disk
  kModel,         // the model's score against its thresholds
  kVote,          // the portfolio of rules and model
  kExplore,       // at random, so that training data shows both answers
  kBudget,        // over the budget of bytes a second or of files
  kGuard,         // the portfolio has lost more than it may against LRU: LRU decides
  kOff,           // turned off by the admin: admit
  kNoModel,       // no bundle, or neither endpoint nor embedded copy configured
  kDeadline,      // the endpoint did not answer in time
  kBreakerOpen,   // the endpoint failed too often and is being left alone
  kUnreachable,   // the endpoint could not be reached
  kInvalidReply,  // what the endpoint (or the embedded copy) answered was not a distribution
  kError,         // something failed inside: memory, for example
};
constexpr size_t kReasons = 14;

// Who can be asked for a distribution.
enum class Source { kEndpoint, kEmbedded };
constexpr size_t kSources = 2;

// Whose model is asked: the promoted one's, or that of the one which is tried beside it.
enum class Role { kChampion, kChallenger };
constexpr size_t kRoles = 2;

const char* Text(Answer answer);
const char* Text(Reason reason);
const char* Text(Source source);
const char* Text(Role role);

}  // namespace smartcache
