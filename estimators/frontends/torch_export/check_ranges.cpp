#include <fmt/format.h>

#include <string>

#include "estimators/base/error.h"
#include "estimators/frontends/torch_export/lower.h"
#include "estimators/setup/field.h"

namespace memplan::torch_export {

void check_ranges(const Program& program, const Symbols& symbols) {
  for (const auto& [symbol, range] : program.ranges) {
    const auto it = symbols.find(symbol);
    if (it == symbols.end()) continue;
    const std::int64_t low = range.first.value_or(0) <= 2 ? 1 : *range.first;
    if (it->second >= low && (!range.second || it->second <= *range.second)) continue;
    fail(ErrorKind::usage,
         fmt::format("dimension '{}' cannot be {}: the file allows {} to {}", symbol, it->second, low,
                     range.second ? std::to_string(*range.second) : "any size"),
         setting(Field::dims, fmt::format("{}={}", symbol, it->second)),
         "choose a size in that range, or export with another torch.export.Dim");
  }
}

}  // namespace memplan::torch_export
