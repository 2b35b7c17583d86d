#include "planner/cost/step_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "estimators/base/error.h"
#include "estimators/setup/optimizers.h"

namespace memplan {

namespace {

double on_line(const double (&at)[2], const std::int64_t (&batch)[2], std::int64_t b) {
  if (batch[0] == batch[1]) return at[0];
  const double slope = (at[1] - at[0]) / static_cast<double>(batch[1] - batch[0]);
  return std::max(0.0, at[0] + slope * static_cast<double>(b - batch[0]));
}

double rate_of(Unit unit, const DeviceRates& r) {
  // Cards without units for a type convert it: the plain units do the work.
  switch (unit) {
    case Unit::fp32:
      return r.fp32;
    case Unit::tf32:
      return r.tf32 > 0 ? r.tf32 : r.fp32;
    case Unit::half:
      return r.half > 0 ? r.half : r.fp32;
    case Unit::bf16:
      return r.bf16 > 0 ? r.bf16 : r.fp32;
    case Unit::fp8:
      return r.fp8 > 0 ? r.fp8 : rate_of(Unit::bf16, r);
  }
  return r.fp32;
}

double kernel_time(double flops, double bytes, Unit unit, const DeviceRates& r, const TimeAssumptions& a) {
  const double rate = rate_of(unit, r);
  double seconds = a.issue;
  if (rate > 0) seconds = std::max(seconds, flops / (rate * a.matrix));
  if (r.memory > 0) seconds = std::max(seconds, bytes / (r.memory * a.memory));
  return seconds;
}

}  // namespace

std::vector<std::string> sentences(const TimeAssumptions& a) {
  return {fmt::format("step times are modelled, not measured: per op the slowest of arithmetic at {:.0f} % of the "
                      "card's published peak, memory traffic at {:.0f} % "
                      "of its bandwidth, and {:.0f} us to issue a kernel",
                      a.matrix * 100, a.memory * 100, a.issue * 1e6),
          fmt::format("links between GPUs reach {:.0f} % of their published rate; {} GPUs share a node, and each has "
                      "{:.0f} GB/s to other nodes",
                      a.link * 100, a.per_node, a.network / 1e9)};
}

namespace {

/// The work of one call at another batch, where all of it goes with the batch.
CallWork in_proportion(CallWork work, double share) {
  for (double* const figure : {&work.forward_flops, &work.backward_flops, &work.forward_bytes, &work.backward_bytes})
    *figure *= share;
  return work;
}

}  // namespace

WorkLine work_line(const Profile& a, std::int64_t batch_a, const Profile& b, std::int64_t batch_b) {
  // A file may hold calls for one batch that it does not need for another (an expand that does nothing). Which call is
  // which is not known then.
  const bool same = a.calls.size() == b.calls.size();
  const double share = static_cast<double>(batch_a) / static_cast<double>(batch_b);
  WorkLine line;
  line.batch[0] = batch_a;
  line.batch[1] = batch_b;
  line.trained_elements = a.trained_elements;
  line.trained_tensors = a.trained_tensors;
  line.forward_flops[0] = a.forward_flops, line.forward_flops[1] = b.forward_flops;
  line.backward_flops[0] = a.backward_flops, line.backward_flops[1] = b.backward_flops;
  using Key = std::tuple<Unit, double, double, double, double, double, double, double, double, double>;
  std::map<Key, std::size_t> seen;
  for (std::size_t i = 0; i < b.calls.size(); ++i) {
    const CallWork& y = b.calls[i];
    const CallWork x = same ? a.calls[i] : in_proportion(y, share);
    if (!x.kernel && !y.kernel) continue;
    const Key key{x.unit,          x.forward_flops,  x.backward_flops, x.forward_bytes,  x.backward_bytes,
                  y.forward_flops, y.backward_flops, y.forward_bytes,  y.backward_bytes, x.again};
    const auto [it, fresh] = seen.emplace(key, line.items.size());
    if (fresh)
      line.items.push_back({x.unit,
                            0,
                            x.again,
                            {x.forward_flops, y.forward_flops},
                            {x.backward_flops, y.backward_flops},
                            {x.forward_bytes, y.forward_bytes},
                            {x.backward_bytes, y.backward_bytes}});
    line.items[it->second].count += 1;
  }
  return line;
}

StepTime micro_batch_time(const WorkLine& work, std::int64_t batch, const Share& share, const DeviceRates& rates,
                          const TimeAssumptions& a) {
  StepTime t;
  for (const WorkItem& w : work.items) {
    const double ff = on_line(w.forward_flops, work.batch, batch), fb = on_line(w.forward_bytes, work.batch, batch);
    const double bf = on_line(w.backward_flops, work.batch, batch), bb = on_line(w.backward_bytes, work.batch, batch);
    const double part = ff > 0 ? share.products : share.rest;
    const double forward = kernel_time(ff * part, fb * part, w.unit, rates, a) * w.count;
    t.forward += forward;
    t.again += forward * w.again;
    // Gradients of two operands come from two products: the issue time counts for each.
    if (bf > 0 || bb > 0)
      t.backward +=
          std::max(kernel_time(bf * part, bb * part, w.unit, rates, a), ff > 0 && bf > ff ? 2 * a.issue : 0.0) *
          w.count;
  }
  return t;
}

double optimizer_time(const OptimizerSetup& o, std::int64_t elements, std::int64_t tensors, int element_bytes,
                      const DeviceRates& rates, const TimeAssumptions& a) {
  const Passes passes = passes_of(o);
  // Adafactor's usual implementation is a loop as well, and its launches are not counted unless it is asked for.
  const bool by_tensor = o.impl == OptimizerImpl::loop || optimizer_model(o.kind).one_by_one;
  const double each = o.impl == OptimizerImpl::fused ? passes.fused : passes.foreach;
  double seconds =
      rates.memory > 0 ? each * static_cast<double>(elements) * element_bytes / (rates.memory * a.memory) : 0;
  if (by_tensor) seconds = std::max(seconds, passes.kernels * static_cast<double>(tensors) * a.issue);
  return seconds;
}

double gradient_time(const TrainingSetup& s, std::int64_t micro_batches, std::int64_t elements, int element_bytes,
                     const DeviceRates& rates, const TimeAssumptions& a) {
  double passes = 3.0 * static_cast<double>(std::max<std::int64_t>(
                            0, micro_batches - 1));     // the sum is read and written, the new one read
  if (s.clip_grad_norm) passes += 3;                    // read for the norm, scaled in place
  if (s.precision == Precision::amp_fp16) passes += 2;  // unscaled in place
  if (s.zero_grad == ZeroGrad::begin_keep) passes += 1;
  return rates.memory > 0 ? passes * static_cast<double>(elements) * element_bytes / (rates.memory * a.memory) : 0;
}

}  // namespace memplan
