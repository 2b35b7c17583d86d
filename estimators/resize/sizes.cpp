#include "estimators/resize/sizes.h"

#include <deque>

#include "estimators/base/bytes.h"

namespace memplan::resizing {

namespace {

/// `whole` / `part`, where `part` is constant.
std::optional<Size> outer(const Size& whole, std::int64_t part) {
  if (part <= 0 || whole.file % part != 0 || whole.probe % part != 0) return std::nullopt;
  // A wanted size that the view cannot cut is for the view itself to refuse.
  return Size{whole.file / part, whole.probe / part, whole.wanted / part};
}

/// Neighbouring constants are one.
std::deque<Size> merged(const Factors& from) {
  std::deque<Size> out;
  for (const Size& s : from) {
    if (!s.follows() && !out.empty() && !out.back().follows() && s.file != 1 && out.back().file != 1)
      out.back() = out.back() * s;
    else
      out.push_back(s);
  }
  return out;
}

/// Takes what is worth `need` from the front of `rest`.
std::optional<Factors> take_front(std::deque<Size>& rest, std::int64_t need) {
  Factors out;
  if (need == 1) {
    // A dimension of one is the first that is left with one element: one that follows as well as a constant.
    if (!rest.empty() && rest.front().file == 1) out.push_back(rest.front()), rest.pop_front();
    return out;
  }
  while (need != 1) {
    if (rest.empty()) return std::nullopt;
    const Size next = rest.front();
    rest.pop_front();
    if (next.file != 0 && need % next.file == 0) {
      if (next.follows() || next.file != 1) out.push_back(next);
      need /= next.file;
    } else if (next.file % need != 0) {
      return std::nullopt;
    } else if (!next.follows()) {
      out.push_back(fixed(need));
      rest.push_front(fixed(next.file / need));
      need = 1;
    } else {
      // What follows is the outer part: the inner one is as the program's text has it.
      const auto whole = outer(next, next.file / need);
      if (!whole) return std::nullopt;
      out.push_back(*whole);
      rest.push_front(fixed(next.file / need));
      need = 1;
    }
  }
  return out;
}

}  // namespace

Size operator*(const Size& a, const Size& b) {
  return {checked_mul(a.file, b.file), checked_mul(a.probe, b.probe), checked_mul(a.wanted, b.wanted)};
}

Size product(const Factors& factors) {
  Size out;
  for (const Size& s : factors) out = out * s;
  return out;
}

std::optional<std::vector<Factors>> divide(const Factors& from, std::span<const std::int64_t> to,
                                           const std::set<int>& ends) {
  std::deque<Size> rest = merged(from);
  std::vector<Factors> out;
  for (const std::int64_t need : to) {
    if (need < 1) return std::nullopt;
    auto taken = take_front(rest, need);
    if (!taken) return std::nullopt;
    const bool takes_unit = ends.contains(static_cast<int>(out.size()));
    for (; takes_unit && !rest.empty() && rest.front().file == 1 && rest.front().follows(); rest.pop_front())
      taken->push_back(rest.front());
    out.push_back(std::move(*taken));
  }
  for (const Size& s : rest) {
    if (s.file != 1) return std::nullopt;
    if (!s.follows()) continue;
    if (out.empty()) return std::nullopt;
    out.back().push_back(s);
  }
  return out;
}

}  // namespace memplan::resizing
