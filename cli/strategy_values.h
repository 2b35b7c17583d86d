// The flags of memory strategies, turned into a setup.
#pragma once

#include "cli/options.h"

namespace memplan::cli {

/// Fills the strategies of `setup` from --checkpoint, --checkpoint-save, --offload, --lora, --qlora, --kv-cache,
/// --channels-last, --loss-history and --empty-cache. The mode must be known. Failure(usage) for values that make no
/// sense, and for a strategy of training in inference or the other way round.
void parse_strategies(const Parsed& parsed, TrainingSetup& setup);

/// The strategies of a setup besides checkpointed modules, as short words for reports: "lora r=16", "offload
/// activations".
std::vector<std::string> strategy_words(const TrainingSetup& setup);

}  // namespace memplan::cli
