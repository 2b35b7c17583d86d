#include "estimators/base/glob.h"

namespace memplan {

bool matches_glob(std::string_view text, std::string_view glob) {
  // Most texts that do not match end otherwise, which takes no search.
  const std::size_t last = glob.find_last_of("*?");
  if (last == std::string_view::npos) return text == glob;
  if (!text.ends_with(glob.substr(last + 1))) return false;
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
