// Words of commands that a message tells to type.
#pragma once

#include <string>
#include <string_view>

namespace memplan {

/// `word` as a POSIX shell takes it: as it is, or in single quotes.
std::string shell_word(std::string_view word);

}  // namespace memplan
