#include "estimators/base/glob.h"

namespace memplan {

bool matches_glob(std::string_view text, std::string_view glob) {
  // Most texts that do not match end otherwise, which takes no search.
  const auto literal = [&] { return !glob.empty() && glob.back() != '*' && glob.back() != '?'; };
  for (; literal(); glob.remove_suffix(1), text.remove_suffix(1))
    if (text.empty() || text.back() != glob.back()) return false;
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

}  // namespace memplan
