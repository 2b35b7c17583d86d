// Reading a recording. Nothing in it is trusted: every index and every size is checked here, once.
#pragma once

#include <string>
#include <string_view>

#include "estimators/frontends/recording/recording.h"
#include "estimators/frontends/torch_export/archive.h"

namespace memplan::recording {

/// The member that tells a recording from other zip archives.
constexpr std::string_view index_member = "memplan_recording.json";
/// The format's version that this reader knows.
constexpr std::int64_t format_version = 1;
/// A member longer than this is refused: three steps of a model of 80 layers take about 10 MB.
constexpr std::int64_t max_member_bytes = std::int64_t{256} << 20;
constexpr std::int64_t max_runs = 256;

/// Failure(input) for archives that are damaged, hostile or of a later version. The ATen calls in it are not read.
Model read_recording(const torch_export::Archive& archive, const std::string& path);

}  // namespace memplan::recording
