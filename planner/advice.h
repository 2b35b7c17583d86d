// The well-known tricks against running out of memory, each with the bytes that it saves in this very setup.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/search.h"
#include "planner/tapes.h"

namespace memplan {

struct Advice {
  std::string id;             ///< stable: "accumulation"
  std::string title;          ///< "smaller micro-batches, accumulated"
  std::string flags;          ///< to add to the command; empty where nothing can be estimated
  std::string snippet;        ///< what to write in the program
  std::string note;           ///< what it costs, or when it helps; one sentence
  std::optional<Bytes> peak;  ///< process bytes with it, estimated by replay
  Bytes saves;                ///< against the present setup; negative: it costs
  Verdict verdict = Verdict::unknown;
};

/// Every trick that applies to the setup, each estimated; `known` is the estimate of the setup itself. In the order in
/// which people try them. `tapes` are those of the model.
std::vector<Advice> advice(const Model& model, Tapes& tapes, const TrainingSetup& setup, const Device& device,
                           const MarginOf& margin, const Estimate& known);

}  // namespace memplan
