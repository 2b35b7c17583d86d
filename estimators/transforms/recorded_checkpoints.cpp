#include "estimators/transforms/recorded_checkpoints.h"

#include <algorithm>
#include <map>

namespace memplan {

void keep_recorded_checkpoints(Tape& tape) {
  std::map<std::int32_t, CheckpointRegion> found;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    const Call& call = tape.calls[i];
    if (call.checkpoint < 0) continue;
    const auto at = static_cast<std::int32_t>(i);
    found.try_emplace(call.checkpoint, CheckpointRegion{at, at, call.scope, {}}).first->second.last = at;
  }
  if (found.empty()) return;
  const std::vector<CheckpointRegion> asked = tape.checkpoints;
  for (const auto& [number, own] : found) {
    const bool fits = std::all_of(asked.begin(), asked.end(), [&, r = own](const CheckpointRegion& a) {
      const bool apart = a.last < r.first || r.last < a.first;
      const bool inside = (a.first <= r.first && r.last < a.last) || (a.first < r.first && r.last <= a.last);
      return apart || inside || (r.first < a.first && a.last <= r.last);
    });
    if (fits) tape.checkpoints.push_back(own);
  }
  std::stable_sort(tape.checkpoints.begin(), tape.checkpoints.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.last > b.last;
  });
}

}  // namespace memplan
