#include "planner/shared_ranges.h"

#include "estimators/base/unwrap.h"

namespace memplan {

Estimate SharedRanges::to_compare(const TrainingSetup& setup, const Place& place) {
  Open& open = open_[place.ops];
  if (place.batch <= open.batch) {
    Estimate e = unwrap(tapes_.estimate_to_judge(setup, device_, margin_, open.sources));
    if (judge(e, device_, margin_).verdict == Verdict::fits) return e;
  }
  Estimate e = unwrap(tapes_.estimate_to_judge(setup, device_, margin_));
  if (!e.sources.empty()) {
    open = {place.batch, e.sources};
    own_[place.flags] = e.sources;
  }
  return e;
}

Estimate SharedRanges::to_answer(const TrainingSetup& setup, const std::string& flags) {
  const auto own = own_.find(flags);
  if (own != own_.end()) return unwrap(tapes_.estimate_to_judge(setup, device_, margin_, own->second));
  Estimate e = unwrap(tapes_.estimate_to_judge(setup, device_, margin_));
  if (!e.sources.empty()) own_[flags] = e.sources;
  return e;
}

}  // namespace memplan
