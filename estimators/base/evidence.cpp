#include "estimators/base/evidence.h"

#include <algorithm>
#include <utility>

namespace memplan {

void note(Notes& notes, Fact fact) {
  const auto same = std::find_if(notes.begin(), notes.end(), [&](const Fact& f) {
    return f.about == fact.about && f.evidence == fact.evidence && f.off.has_value() == fact.off.has_value() &&
           f.op == fact.op && f.text == fact.text && f.code == fact.code;
  });
  if (same == notes.end()) {
    notes.push_back(std::move(fact));
    return;
  }
  same->count += fact.count;
  if (!fact.off) return;
  same->off->below = std::max(same->off->below, fact.off->below);
  same->off->above = std::max(same->off->above, fact.off->above);
}

}  // namespace memplan
