#include <algorithm>

#include "tests/fuzz/targets.h"

namespace memplan::fuzz {

const Target* find_target(std::string_view name) {
  const auto it = std::find_if(targets().begin(), targets().end(), [&](const Target& t) { return t.name == name; });
  return it == targets().end() ? nullptr : &*it;
}

void expect_told(const Error& error) {
  if (error.kind == ErrorKind::internal) throw Finding("internal error: " + error.what + " (" + error.where + ")");
  if (error.what.empty()) throw Finding("an error without a word");
}

}  // namespace memplan::fuzz
