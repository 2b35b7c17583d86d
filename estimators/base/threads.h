// Work that falls into parts which know nothing of each other.
#pragma once

#include <cstddef>
#include <functional>

namespace memplan {

/// Calls part(0) … part(count - 1), spread over the cores of the machine, and returns when all have ended. Parts that
/// are themselves spread run one after another on their thread. What a part throws is thrown here, the first by number.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& part);

}  // namespace memplan
