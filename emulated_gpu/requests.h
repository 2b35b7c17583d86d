// A log of requests for device memory.
#pragma once

#include <cstdint>

namespace emulated {

/// One line, "malloc BYTES ADDRESS", in the file that EMULATED_GPU_REQUESTS names; nothing without it. `size` is what
/// the caller asked for, before rounding; 0 where memory is given back.
void log_request(const char* what, std::uint64_t size, std::uint64_t at);

}  // namespace emulated
