// "What must change so that it fits?" A search over setups: bounds reject, the cost model puts the rest in order, and
// only what was estimated by replay is ever recommended.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/bounds.h"
#include "planner/search.h"
#include "planner/space.h"

namespace memplan {

/// A setup that was estimated by replay.
struct Candidate {
  TrainingSetup setup;
  std::string flags;                  ///< to add to the command; empty for the present setup
  std::vector<std::string> cautions;  ///< what it may change in the training's result
  Bytes peak;                         ///< process bytes of one GPU
  Verdict verdict = Verdict::unknown;
  Bytes headroom;
  StepTime time;
  int changes = 0;           ///< knobs turned
  std::int64_t samples = 1;  ///< per optimizer step, of all GPUs
};

/// A way that was not taken.
struct Rejection {
  std::string flags;
  std::string why;
  std::optional<Bytes> bytes;  ///< what it needs (estimated) or needs at least (bound)
  bool bound = false;          ///< `bytes` is a bound from below
};

struct SearchCount {
  std::int64_t setups = 0;   ///< considered
  std::int64_t bounded = 0;  ///< rejected because even a bound from below is above the limit
  std::int64_t implied = 0;  ///< rejected because the same setup with a smaller micro-batch does not fit either
  std::int64_t slower = 0;   ///< would fit by its bound but is slower than what is recommended
  std::int64_t left =
      0;  ///< may fit by their bounds, but the search had used up its estimates. Above 0 with nothing found: unknown
  std::int64_t replayed = 0;
};

struct Suggestion {
  std::int64_t parameters = 0;
  Estimate estimate;  ///< of the present setup
  Candidate present;
  std::vector<Candidate> fitting;     ///< fastest first
  std::optional<Candidate> smallest;  ///< the smallest change that fits; none when the present setup fits
  std::vector<Candidate> front;       ///< no other estimated setup is both smaller and faster; by memory
  std::vector<Rejection> rejected;
  SearchCount count;
};

struct SuggestOptions {
  Knobs knobs = Knobs::usual();
  bool keep_samples = true;  ///< samples per optimizer step stay; else setups are compared by time per sample
  std::size_t wanted = 3;    ///< fitting setups to list
  std::size_t replays = 30;  ///< estimates at most
  TimeAssumptions time;
  Tapes* tapes = nullptr;  ///< of the model, for callers that go on with what the search has read; none: its own
  /// What of a setup cannot be said where it is to run, in words; a search does not go where that gets longer. Empty:
  /// everything can be said.
  Unsaid unsaid;
  /// Called now and then: replays done, replays at most, what is being looked at.
  std::function<void(std::size_t, std::size_t, const std::string&)> progress;
};

/// `present` may fit or not. Failure as of lower and estimate for the present setup.
Suggestion suggest(const Model& model, const TrainingSetup& present, const Device& device, const MarginOf& margin,
                   const SuggestOptions& options);

}  // namespace memplan
