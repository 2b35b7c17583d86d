#include "planner/scaling.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "estimators/graph/dims.h"
#include "planner/checkpointing/plan.h"

namespace memplan {

namespace {

/// The setup with every open dimension of one kind set to `size`.
TrainingSetup resized(TrainingSetup setup, const std::vector<OpenDim>& dims, bool OpenDim::*kind, std::int64_t size) {
  for (const OpenDim& dim : dims)
    if (dim.*kind) setup.dims.erase(dim.name);  // --dim comes before --batch and --seq
  (kind == &OpenDim::batch ? setup.batch : setup.sequence) = size;
  return setup;
}

std::vector<std::int64_t> sizes_around(std::int64_t here, std::size_t count) {
  std::int64_t size = 1;
  // A third of the points lies below the size of the setup.
  while (size * 2 < here) size *= 2;
  for (std::size_t i = 1; i < count / 3 && size > 1; ++i) size /= 2;
  std::vector<std::int64_t> sizes;
  for (; sizes.size() < count && size < (std::int64_t{1} << 40); size *= 2) sizes.push_back(size);
  if (std::find(sizes.begin(), sizes.end(), here) == sizes.end()) sizes.back() = here;
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

/// Plans of checkpoints and some settings of the allocator depend on how large the card is.
bool looks_at_size(const TrainingSetup& s) {
  return s.checkpoint_optimal || s.allocator.memory_fraction < 1.0 || s.allocator.garbage_collection_threshold > 0 ||
         s.ort.memory_limit.has_value();
}

/// An estimate without a context on a card that has this one.
Estimate with_context(Estimate e, const Device& card) {
  for (Counters* c : {&e.low, &e.peak, &e.high}) c->process += card.context;
  return e;
}

}  // namespace

std::vector<ScaleCurve> scale(const Model& model, const std::vector<BoundDim>& bound, const TrainingSetup& setup,
                              const Device& device, Bytes margin, std::size_t count) {
  std::vector<ScaleCurve> curves;
  if (model.graphs.empty() || count == 0) return curves;
  const std::vector<OpenDim> dims = open_dims(model.graphs.front());
  for (const auto& [name, kind] : {std::pair{"batch", &OpenDim::batch}, std::pair{"sequence", &OpenDim::sequence}}) {
    const auto dim = std::find_if(dims.begin(), dims.end(), [kind = kind](const OpenDim& d) { return d.*kind; });
    if (dim == dims.end()) continue;
    const auto here = std::find_if(bound.begin(), bound.end(), [&](const BoundDim& b) { return b.name == dim->shown; });
    if (here == bound.end()) continue;
    ScaleCurve curve{name, here->size, {}};
    for (const std::int64_t size : sizes_around(curve.here, count)) {
      const bool beyond = !curve.points.empty() && curve.points.back().peak.count > 2 * device.total.count;
      if (beyond && size != curve.here) continue;
      const Result<Estimate> e = estimate_to_judge(model, resized(setup, dims, kind, size), device, margin);
      if (e) curve.points.push_back({size, e->peak.process, e->peak.requested, judge(*e, device, margin).verdict});
    }
    if (curve.points.size() > 1) curves.push_back(std::move(curve));
  }
  return curves;
}

std::vector<Card> every_card(const Tape& tape, const TrainingSetup& setup, const MarginOf& margin) {
  std::vector<Device> by_size = devices();
  std::stable_sort(by_size.begin(), by_size.end(), [](const Device& a, const Device& b) { return a.total < b.total; });
  using Kernels = std::tuple<int, int, int, int>;  // what run_steps looks at
  std::map<Kernels, Estimate> replayed;
  std::vector<Card> cards;
  for (const Device& d : by_size) {
    const Kernels kernels{d.sm_major, d.sm_minor, d.multiprocessors, d.threads_per_multiprocessor};
    auto known = replayed.find(kernels);
    if (known == replayed.end()) {
      Device large = d;
      large.total = Bytes::gib(1LL << 30);
      large.context = Bytes();
      const Result<Estimate> e = estimate_planned_tape(tape, setup, large);
      if (!e) continue;
      known = replayed.emplace(kernels, *e).first;
    }
    const Bytes peak = known->second.peak.process + d.context;
    if (known->second.peak.requested + d.context > d.total) {
      cards.push_back({d, peak, Verdict::no_fit});
      continue;
    }
    // Where it has room to spare, the limit changes nothing; where it has not, the allocator may still find a way.
    const Result<Estimate> e = peak <= d.total && !looks_at_size(setup)
                                   ? Result<Estimate>(with_context(known->second, d))
                                   : estimate_planned_tape(tape, setup, d);
    if (e) cards.push_back({d, e->peak.process, judge(*e, d, margin(d)).verdict});
  }
  return cards;
}

}  // namespace memplan
