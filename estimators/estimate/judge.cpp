#include <fmt/format.h>

#include <algorithm>

#include "estimators/estimate/estimate.h"

namespace memplan {

Bytes default_margin(const Device& device) { return std::max(Bytes(device.total.count / 20), Bytes::mib(512)); }

Bytes margin_of(const TrainingSetup& setup, const Device& device) {
  return setup.margin ? setup.margin->of(device.total) : default_margin(device);
}

Bytes context_above(const Estimate& e) {
  Bytes above;
  for (const RangeSource& s : e.sources)
    if (s.about == About::context) above += s.above.process;
  return above;
}

Judgement judge(const Estimate& estimate, const Device& device, std::optional<Bytes> margin) {
  Judgement j;
  j.usable = device.total;
  j.margin = margin.value_or(default_margin(device));
  j.headroom = j.usable - estimate.peak.process;
  // The margin is there for what lies outside of the model, the context's range among it.
  const Bytes modelled = estimate.high.process - context_above(estimate);
  if (estimate.out_of_memory || estimate.low.process > j.usable) {
    j.verdict = Verdict::no_fit;
    j.why = estimate.out_of_memory_at.empty()
                ? fmt::format("the peak is {} over what the device has", to_human(estimate.peak.process - j.usable))
                : "out of memory at " + estimate.out_of_memory_at;
  } else if (modelled <= j.usable - j.margin && estimate.high.process <= j.usable && estimate.retries == 0) {
    j.verdict = Verdict::fits;
    j.why = fmt::format("{} stay free, more than the margin of {}", to_human(j.usable - modelled), to_human(j.margin));
  } else if (estimate.high.process > j.usable) {
    // The limit lies between low and high.
    j.verdict = Verdict::unknown;
    j.why = j.headroom.count >= 0
                ? fmt::format("what the file and the card do not tell may add up to {}, and {} are free",
                              to_human(estimate.high.process - estimate.peak.process), to_human(j.headroom))
                : fmt::format("the peak is {} over what the device has, but may be up to {} lower",
                              to_human(estimate.peak.process - j.usable),
                              to_human(estimate.peak.process - estimate.low.process));
  } else if (estimate.retries > 0) {
    j.verdict = Verdict::tight;
    j.why = fmt::format("it runs only because the allocator empties its cache and tries again ({} times)",
                        estimate.retries);
  } else {
    j.verdict = Verdict::tight;
    j.why = fmt::format("{} stay free, less than the margin of {}", to_human(j.usable - modelled), to_human(j.margin));
  }
  return j;
}

}  // namespace memplan
