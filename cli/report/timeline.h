// The section "timeline" of a document: memory over the run, the allocations with their lives, and where they lie.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>

#include "cli/answer/run.h"

namespace memplan::cli {

// What bounds the size of the section; docs/report.schema.json states the same figures.
inline constexpr std::size_t timeline_points = 4000;  ///< of each curve; peaks and borders of phases are kept exactly
inline constexpr std::size_t timeline_allocations = 100000;  ///< those alive at the peak first, then the largest
inline constexpr std::size_t timeline_ops = 100000;          ///< the first ones
inline constexpr std::size_t timeline_blocks = 200000;       ///< of the arena maps; segments are kept whole or left out

/// Columns instead of rows, and names as indexes into "strings", so that a hundred thousand allocations stay below 10
/// MB.
nlohmann::ordered_json timeline_section(const RunRecord& run);

/// The section of a document. Failure(input) where it was saved without, with what to do.
const nlohmann::ordered_json& timeline_of(const nlohmann::ordered_json& document);

/// Adds the sections "timeline" and "scaling", "devices" of "alternatives", and "suggestions" where there are some.
void add_run(nlohmann::ordered_json& document, const RunRecord& run);

}  // namespace memplan::cli
