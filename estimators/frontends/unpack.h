// Models that were compressed as a whole.
#pragma once

#include <cstddef>
#include <string>

namespace memplan::frontends {

/// What is inside of a gzip file, at most `most` bytes of it. Failure(input) where there is more (a graph without its
/// weights is small; a small file can hold very much) and where the file is damaged or cut off.
std::string unpack_gzip(const std::string& path, std::size_t most);

}  // namespace memplan::frontends
