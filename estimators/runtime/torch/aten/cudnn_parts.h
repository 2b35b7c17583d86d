// The text of data/cudnn, cut by card; the program carries it packed (cmake/cudnn_parts.cmake), except for the table
// that nearly every run with convolutions wants.
#pragma once

#include <string_view>
#include <vector>

namespace memplan::cudnn_parts {

/// The compute capabilities that a file has a part for ("workspaces", "differences-9.24", "rules" …), the oldest first.
const std::vector<int>& cards_of(std::string_view file);

/// The lines of one compute capability, 75, or "kinds" of the rules. Unpacked when it is first asked for, and then
/// kept.
std::string_view part(std::string_view file, std::string_view which);
std::string_view part(std::string_view file, int sm);

}  // namespace memplan::cudnn_parts
