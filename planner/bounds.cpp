#include "planner/bounds.h"

#include <algorithm>

#include "estimators/base/unwrap.h"
#include "estimators/setup/optimizers.h"

namespace memplan {

namespace {

/// The line through two points, beyond them; between them (where a convex curve lies below it) the lower end.
double beyond(const double (&at)[2], const std::int64_t (&batch)[2], std::int64_t b) {
  if (batch[0] == batch[1]) return at[0];
  if (b > batch[0] && b < batch[1]) return std::min(at[0], at[1]);
  const double slope = (at[1] - at[0]) / static_cast<double>(batch[1] - batch[0]);
  return at[0] + slope * static_cast<double>(b - batch[0]);
}

int bytes_per_weight(Precision p) { return p == Precision::bf16 || p == Precision::fp16 ? 2 : 4; }

}  // namespace

double Rehearsal::peak_at(std::int64_t b) const { return std::max(beyond(peak, batch, b), parameters); }
double Rehearsal::forward_peak_at(std::int64_t b) const { return std::max(beyond(forward_peak, batch, b), parameters); }

Result<Rehearsal> rehearse(Tapes& tapes, const TrainingSetup& given, std::int64_t small, std::int64_t large,
                           const Device& device) {
  return catching([&] {
    Rehearsal r;
    Profile p[2];
    r.batch[0] = small, r.batch[1] = large;
    for (int i = 0; i < 2; ++i) {
      TrainingSetup setup = given;
      if (small != large)
        setup.batch = r.batch[i];
      else if (i == 1)
        p[1] = p[0];
      if (i == 0 || small != large) p[i] = unwrap(profile(*tapes.of(setup), setup, device));
      r.peak[i] = static_cast<double>(p[i].peak.count);
      r.forward_peak[i] = static_cast<double>(p[i].forward_peak.count);
    }
    r.parameters = static_cast<double>(p[0].parameters.count);
    r.gradients = static_cast<double>(p[0].gradients.count);
    r.work = work_line(p[0], small, p[1], large);
    return r;
  });
}

OptimizerNeeds optimizer_needs(const OptimizerSetup& o, double trained_bytes, std::int64_t elements) {
  const OptimizerModel& model = optimizer_model(o.kind);
  const bool foreach = o.impl == OptimizerImpl::automatic || o.impl == OptimizerImpl::foreach;
  return {states_of(o) * trained_bytes + model.bytes_per_element * static_cast<double>(elements),
          foreach && model.roots ? trained_bytes : 0};
}

namespace {

OptimizerNeeds needs_of(const Rehearsal& r, const TrainingSetup& setup) {
  if (setup.offload.optimizer) return {};
  return optimizer_needs(setup.optimizer, r.gradients, r.work.trained_elements);
}

}  // namespace

Bytes least_kept(const Rehearsal& r, const TrainingSetup& setup, const Device& device) {
  double bytes = r.parameters;
  if (setup.mode == Mode::training) bytes += r.gradients + needs_of(r, setup).state;
  return Bytes(static_cast<std::int64_t>(bytes)) + device.context;
}

Bytes least(const Rehearsal& r, const TrainingSetup& setup, std::int64_t batch, const Device& device) {
  double bytes = r.peak_at(batch);
  if (setup.mode == Mode::training) {
    const OptimizerNeeds optimizer = needs_of(r, setup);
    // From the second step on the state is there all the time; from the second micro-batch on the gradients are.
    bytes += optimizer.state;
    const bool gradients_stay =
        setup.accumulate > 1 || setup.zero_grad == ZeroGrad::begin_keep || setup.zero_grad == ZeroGrad::before_backward;
    if (gradients_stay) bytes = std::max(bytes, r.forward_peak_at(batch) + optimizer.state + r.gradients);
    bytes = std::max(bytes, r.parameters + r.gradients + optimizer.state + optimizer.temporary);
  }
  return Bytes(static_cast<std::int64_t>(bytes)) + device.context;
}

StepTime step_time(const Rehearsal& r, const TrainingSetup& setup, std::int64_t batch, const DeviceRates& rates,
                   const TimeAssumptions& a) {
  StepTime t = micro_batch_time(r.work, batch, Share{}, rates, a);
  if (setup.mode == Mode::inference) {
    t.backward = t.again = 0;
    return t;
  }
  const double times = static_cast<double>(setup.accumulate);
  t.forward *= times, t.backward *= times, t.again *= times;
  const int bytes = bytes_per_weight(setup.precision);
  t.optimizer = optimizer_time(setup.optimizer, r.work.trained_elements, r.work.trained_tensors, bytes, rates, a) +
                gradient_time(setup, setup.accumulate, r.work.trained_elements, bytes, rates, a);
  if (setup.offload.optimizer) {
    // Gradients go down, weights come up, and the host's memory takes what the device's would: 28 bytes per parameter.
    const double trained = static_cast<double>(r.work.trained_elements);
    t.optimizer = 0;
    t.offload = 2 * trained * bytes / std::max(1.0, rates.pcie * a.link) + 28 * trained / a.host_memory;
  }
  return t;
}

}  // namespace memplan
