// Models that were compressed as a whole.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace memplan::frontends {

/// What is inside of a file of gzip or Zstandard, at most `most` bytes of it; nothing where the file is packed in
/// another way, or in Zstandard's and this build has no libzstd. Failure(input) where there is more (a graph without
/// its weights is small; a small file can hold very much) and where the file is damaged or cut off.
std::optional<std::string> unpack(const std::string& path, std::size_t most);

}  // namespace memplan::frontends
