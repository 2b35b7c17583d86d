// Names chosen by pattern.
#pragma once

#include <string_view>

namespace memplan {

/// Shell globs over whole names: '*' any run of characters, '?' one of them.
bool matches_glob(std::string_view text, std::string_view glob);

}  // namespace memplan
