// What differs between versions of bitsandbytes, which runs layers on 4-bit weights.
#pragma once

#include <optional>
#include <string_view>

namespace memplan {

/// Whether that version of bitsandbytes keeps the input of every 4-bit layer until the graph of the step goes: those
/// before 0.43.2 do (pull request 1270 of bitsandbytes). None where the text is no version.
std::optional<bool> bitsandbytes_keeps_inputs(std::string_view version);

}  // namespace memplan
