// --timeout: an answer that takes too long ends memplan with a line of its own and exit code 5.
#pragma once

#include <cstdint>

namespace memplan::cli {

/// From now on memplan may run for so many seconds. `json`: the message is a JSON document on stdout.
void start_timeout(std::int64_t seconds, bool json);

/// The answer is there: it is written to its end.
void stop_timeout();

}  // namespace memplan::cli
