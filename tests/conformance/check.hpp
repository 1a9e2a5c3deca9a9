// One guarded call, and how a case says that it failed.
// Must not know: which case runs.
#pragma once
#include <exception>
#include <string>

#include "data.hpp"
#include "subject.hpp"

namespace tessera::conformance {

struct Failed {
  std::string text;
};
inline void require(bool holds, const std::string& text) {
  if (!holds) throw Failed{text};
}

// One call with outputs of its own and, if exact, a guarded workspace of exactly the size asked for; throws Failed on
// stray writes, on inputs that changed and on whatever the subject throws. `which` names the call.
void call(const Subject& subject, const CaseData& data, const Inputs& inputs, const OutputSet& set,
          const Options& options, int threads, Scratch scratch, const std::string& which);

// Runs `body`, which throws Failed or returns the worst share of the allowance.
template <class Body>
Outcome outcome_of(Body body) {
  Outcome outcome;
  try {
    outcome.worst = body();
  } catch (const Failed& failed) {
    outcome.failure = failed.text;
  } catch (const std::exception& error) {
    outcome.failure = std::string("the suite itself: ") + error.what();
  }
  return outcome;
}

}  // namespace tessera::conformance
