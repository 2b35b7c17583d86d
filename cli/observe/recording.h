// What `memplan observe --record` keeps of a script's runs: one file of the processes' own, then the recording.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace memplan::cli {

/// What the process of one run wrote into `folder` (job.py), moved to `to`. Failure(input) where there are several
/// processes that used a GPU, or none that could be recorded.
void keep_record(const std::filesystem::path& folder, const std::filesystem::path& to);

/// The recording that the process of the last run made of all runs, moved to `path`; the line that says what it holds.
std::string keep_recording(const std::filesystem::path& folder, const std::string& path);

}  // namespace memplan::cli
