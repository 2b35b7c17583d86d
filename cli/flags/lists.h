// Lists of values as memplan sweep takes them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace memplan::cli {

/// "1,2,4..64" -> 1 2 4 8 16 32 64; "512..2048:+512" steps by 512, "1..81:x3" multiplies by 3. Words that are no range
/// are taken as they are. Failure(usage) for a range that ends before it begins, or has more than 10,000 values.
std::vector<std::string> expand_list(std::string_view text, std::string_view flag);

}  // namespace memplan::cli
