// The Python files that stand before a user's script (emulated_gpu/observer, and of memplan.record what records).
#pragma once

#include <filesystem>

namespace memplan::cli {

/// Writes them below `folder`, which then belongs on PYTHONPATH. Failure(input) where there is no room.
void write_observer(const std::filesystem::path& folder);

}  // namespace memplan::cli
