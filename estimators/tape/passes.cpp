#include "estimators/tape/passes.h"

#include <fmt/format.h>

#include "estimators/base/error.h"

namespace memplan {

bool matches_glob(std::string_view text, std::string_view glob) {
  std::size_t t = 0, g = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (g < glob.size() && (glob[g] == '?' || (glob[g] != '*' && glob[g] == text[t]))) {
      ++t, ++g;
    } else if (g < glob.size() && glob[g] == '*') {
      star = g++;
      mark = t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

void freeze(Tape& tape, const std::vector<std::string>& globs) {
  for (const std::string& glob : globs) {
    bool any = false;
    for (ValueId id : tape.parameters) {
      TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
      if (!matches_glob(v.name, glob)) continue;
      v.requires_grad = false;
      any = true;
    }
    if (!any) {
      const std::string example = tape.parameters.empty() ? "" : tape.values[static_cast<std::size_t>(tape.parameters.front().index)].name;
      fail(ErrorKind::usage, fmt::format("no parameter matches '{}'", glob), "--freeze " + glob,
           example.empty() ? "the model has no parameters" : fmt::format("parameters are named like '{}'; '*' matches any run of characters", example));
    }
  }
}

void recover_inplace(Tape&) {}
void recover_causal_masks(Tape&) {}
void remove_dead_calls(Tape&) {}

}  // namespace memplan
