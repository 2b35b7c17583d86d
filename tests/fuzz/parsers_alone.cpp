// The targets of memplan_fuzz_parsers.
#include "tests/fuzz/targets.h"

namespace memplan::fuzz {

std::span<const Target> targets() { return parser_targets(); }

}  // namespace memplan::fuzz
