// The flags of memory strategies, turned into a setup.
#pragma once

#include "cli/flags/options.h"

namespace memplan::cli {

// Parsers of their flags. Each is Failure(usage) for values that make no sense, and for a strategy of training in
// inference or the other way round.
void parse_checkpoint(const Given& given, Options& options);
void parse_checkpoint_save(const Given& given, Options& options);
void parse_offload(const Given& given, Options& options);
/// Of --lora and --qlora.
void parse_lora(const Given& given, Options& options);
void parse_kv_cache(const Given& given, Options& options);

/// The strategies of a setup besides checkpointed modules, as short words for reports: "lora r=16", "offload
/// activations".
std::vector<std::string> strategy_words(const TrainingSetup& setup);

}  // namespace memplan::cli
