// JSON as Python writes it, checked before it costs memory.
#pragma once

#include <string>

namespace memplan::torch_export {

/// Failure(input) for text nested deeper than `depth` or with more than ten million values. Python's bare Infinity,
/// -Infinity and NaN become strings.
void tame_json(std::string& text, int depth, const std::string& where);

}  // namespace memplan::torch_export
