// --timeout: an answer that takes too long ends memplan with a line of its own and exit code 5.
#pragma once

#include <cstdint>
#include <string>

#include "estimators/base/error.h"

namespace memplan::cli {

inline constexpr int timeout_exit_code = 5;

/// What is said when the seconds are over.
Error timeout_error(std::int64_t seconds);

/// From now on memplan may run for so many seconds; then `message` goes to `file`, which is STDOUT_FILENO for a
/// document and STDERR_FILENO for people.
void start_timeout(std::int64_t seconds, std::string message, int file);

/// The answer is there: it is written to its end.
void stop_timeout();

}  // namespace memplan::cli
