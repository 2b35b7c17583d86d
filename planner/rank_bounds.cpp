#include "planner/rank_bounds.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "estimators/base/threads.h"
#include "estimators/base/unwrap.h"
#include "estimators/setup/strategies.h"
#include "estimators/transforms/parallel.h"
#include "estimators/transforms/pipeline_parallel.h"
#include "planner/bounds.h"

namespace memplan {

namespace {

BatchLine line_through(std::int64_t small, double at_small, std::int64_t large, double at_large) {
  if (small == large) return {at_small, 0};
  const double slope = (at_large - at_small) / static_cast<double>(large - small);
  return {at_small - slope * static_cast<double>(small), slope};
}

/// Those lines that are the highest somewhere at batches from 0 on.
std::vector<BatchLine> highest(std::vector<BatchLine> lines) {
  std::sort(lines.begin(), lines.end(), [](const BatchLine& a, const BatchLine& b) {
    return a.slope != b.slope ? a.slope < b.slope : a.at_zero < b.at_zero;
  });
  std::vector<BatchLine> hull;
  // Where the lines a and b meet.
  const auto meet = [](const BatchLine& a, const BatchLine& b) {
    return (a.at_zero - b.at_zero) / (b.slope - a.slope);
  };
  for (const BatchLine& line : lines) {
    while (!hull.empty() &&
           (hull.back().slope == line.slope || hull.back().at_zero <= line.at_zero ||
            (hull.size() > 1 && meet(hull[hull.size() - 2], line) <= meet(hull[hull.size() - 2], hull.back()))))
      hull.pop_back();
    hull.push_back(line);
  }
  return hull;
}

/// On from two depths to the whole model.
class Deeper {
 public:
  explicit Deeper(const DepthRuns& r)
      : steps_(r.high > r.low ? static_cast<double>(r.whole - r.low) / static_cast<double>(r.high - r.low) : 0) {}
  double operator()(double low, double high) const { return low + steps_ * (high - low); }

 private:
  double steps_;
};

/// Items of the deeper work line that the other has as well say how their number grows.
WorkLine deeper_work(const WorkLine& low, const WorkLine& high, const Deeper& on) {
  using Key = std::tuple<Unit, double, double, double, double, double, double, double, double, double>;
  const auto key = [](const WorkItem& w) {
    return Key{w.unit,
               w.again,
               w.forward_flops[0],
               w.forward_flops[1],
               w.backward_flops[0],
               w.backward_flops[1],
               w.forward_bytes[0],
               w.forward_bytes[1],
               w.backward_bytes[0],
               w.backward_bytes[1]};
  };
  std::map<Key, double> shallow;
  for (const WorkItem& w : low.items) shallow[key(w)] += w.count;
  WorkLine out = high;
  for (WorkItem& w : out.items) {
    const auto it = shallow.find(key(w));
    w.count = on(it == shallow.end() ? 0 : it->second, w.count);
  }
  const auto whole = [&](std::int64_t a, std::int64_t b) {
    return std::llround(on(static_cast<double>(a), static_cast<double>(b)));
  };
  out.trained_elements = whole(low.trained_elements, high.trained_elements);
  out.trained_tensors = whole(low.trained_tensors, high.trained_tensors);
  for (int i = 0; i < 2; ++i) {
    out.forward_flops[i] = on(low.forward_flops[i], high.forward_flops[i]);
    out.backward_flops[i] = on(low.backward_flops[i], high.backward_flops[i]);
  }
  return out;
}

double weight_bytes(Precision p) { return p == Precision::bf16 || p == Precision::fp16 ? 2 : 4; }

/// Bytes per element of Megatron-LM's gradient buffer.
double main_gradient(Precision p) { return p == Precision::fp16 ? 2 : 4; }

/// What Megatron-LM's optimizer has beside the gradient buffer: weights of its own unless the model's are fp32,
/// moments, and in the step of a float16 model fp32 gradients.
OptimizerNeeds megatron_needs(const TrainingSetup& setup, double elements) {
  OptimizerNeeds needs = optimizer_needs(setup.optimizer, 4 * elements, static_cast<std::int64_t>(elements));
  if (setup.precision != Precision::fp32) needs.state += 4 * elements;
  needs.temporary = setup.precision == Precision::fp16 ? 4 * elements : 0;
  return needs;
}

/// Micro-batches, or chunks of them, whose activations the first rank of a pipeline holds at once
/// (docs/parallelism.md).
std::int64_t in_flight_on_first(const ParallelSetup& p, std::int64_t micro_batches) {
  if (p.schedule == PipelineSchedule::gpipe) return micro_batches;
  if (p.schedule == PipelineSchedule::interleaved)
    return std::min(micro_batches * p.virtual_stages, (p.virtual_stages - 1) * p.pipeline + 2 * (p.pipeline - 1) + 1);
  return std::min(micro_batches, p.pipeline);
}

/// One rank's part of the whole model's bytes, never more than it really has.
struct RankShare {
  double whole = 1;        ///< of what tensor, pipeline and expert parallelism leave
  double sharded = 1;      ///< of that among the ranks that share out
  double activations = 1;  ///< of one micro-batch's forward pass, on the heaviest rank
};

/// `tensor`: what tensor parallelism still divides by.
RankShare share_of(const ParallelSetup& p, std::int64_t micro_batches, double tensor) {
  RankShare share;
  const double stages = static_cast<double>(p.pipeline);
  // Some rank has at least its part of the stages' weights; those that are no experts are not divided among the ranks
  // of experts.
  share.whole = 1 / (tensor * stages * static_cast<double>(p.expert));
  share.sharded = share.whole / (strategy_of(p).shares_out() ? static_cast<double>(shard_group(p)) : 1.0);
  // Rank r of a pipeline keeps n_r micro-batches of its own stages. Whatever the stages are, the heaviest rank has at
  // least the whole divided by the sum of 1 / n_r.
  double sum = 0;
  for (std::int64_t r = 0; r < p.pipeline; ++r)
    sum += 1 / static_cast<double>(p.schedule == PipelineSchedule::gpipe ? micro_batches
                                                                         : std::min(micro_batches, p.pipeline - r));
  share.activations = (p.pipeline > 1 ? 1 / sum : 1.0) / (tensor * static_cast<double>(p.context));
  return share;
}

/// Bytes/s of the links that join `ranks` GPUs which lie `stride` apart.
double link_rate(std::int64_t ranks, std::int64_t stride, const DeviceRates& rates, const TimeAssumptions& a) {
  const bool in_node = ranks * stride <= a.per_node;
  return std::max(1.0, (in_node ? rates.link : std::min(rates.link, a.network)) * a.link);
}

/// A ring: each rank sends all but its own part of `bytes`. An all-reduce goes around twice.
double ring_time(double bytes, std::int64_t ranks, double rate, const TimeAssumptions& a) {
  if (ranks < 2) return 0;
  const double n = static_cast<double>(ranks);
  return (n - 1) / n * bytes / rate + (n - 1) * a.latency;
}

/// Collectives between products that wait for them.
double waiting_communication(const DepthLines& r, const ParallelSetup& p, std::int64_t batch, double micro_batches,
                             bool again, const DeviceRates& rates, const TimeAssumptions& a) {
  const double blocks = static_cast<double>(r.blocks) / static_cast<double>(p.pipeline),
               boundary = r.boundary.at(batch) / static_cast<double>(p.context);
  double per_block = 0;
  // Megatron: two all-reduces per block and direction; repeated forward parts repeat theirs.
  if (p.tensor > 1)
    per_block += 2 * ring_time(boundary, p.tensor, link_rate(p.tensor, 1, rates, a), a) * (again ? 6 : 4);
  // Keys and values of every block are gathered, and their gradients scattered.
  if (p.context > 1) per_block += 6 * ring_time(boundary, p.context, link_rate(p.context, p.tensor, rates, a), a);
  // Tokens are gathered before the experts and their results scattered; backward the other way round.
  if (p.expert > 1)
    per_block += (again ? 6 : 4) * ring_time(boundary * static_cast<double>(p.expert), p.expert,
                                             link_rate(p.expert, p.tensor, rates, a), a);
  return per_block * blocks * micro_batches;
}

/// Gradients, and weights that are gathered: what no computation hides. `t` has the rank's own computation.
double data_communication(const DepthLines& r, const TrainingSetup& setup, double micro_batches, const StepTime& t,
                          const DeviceRates& rates, const TimeAssumptions& a) {
  const ParallelSetup& p = setup.parallel;
  const std::int64_t ranks = p.data * p.context;
  if (ranks < 2) return 0;
  const double part = static_cast<double>(p.tensor * p.pipeline * p.expert), weights = r.parameters / part,
               gradients = r.gradients / part;
  const double all = link_rate(ranks, p.tensor, rates, a);
  const DataStrategy& strategy = strategy_of(p);
  if (strategy.traffic == DataTraffic::sums_overlapped)
    return std::max(0.0, 2 * ring_time(gradients, ranks, all, a) - t.backward / micro_batches);
  // Megatron-LM overlaps nothing unless it is told to, and reduces its own gradients.
  if (strategy.traffic == DataTraffic::sums_at_end) {
    const double sums = main_gradient(setup.precision) * static_cast<double>(r.work.trained_elements) / part;
    return ring_time(sums, ranks, all, a) + ring_time(strategy.shares_out() ? weights : sums, ranks, all, a);
  }
  if (strategy.traffic == DataTraffic::weights_at_end)
    return std::max(0.0, ring_time(gradients, ranks, all, a) - t.backward / micro_batches) +
           ring_time(weights, ranks, all, a);
  const std::int64_t group = shard_group(p);
  const double rate = link_rate(group, p.tensor, rates, a);
  // Weights are gathered for every micro-batch, gradients reduced after the last one.
  const double gathers = ring_time(weights, group, rate, a) * (p.reshard_after_forward ? 2 : 1) * micro_batches;
  const double reduced =
      p.reduce_dtype == DType::float32 ? 4 * static_cast<double>(r.work.trained_elements) / part : gradients;
  double reduce = ring_time(reduced, group, rate, a);
  if (group < ranks) reduce += 2 * ring_time(reduced / static_cast<double>(group), ranks / group, all, a);
  return std::max(0.0, gathers + reduce - (t.forward + t.backward + t.again));
}

}  // namespace

double DepthLines::others_at(std::int64_t batch) const {
  double most = kept.at(batch);
  for (const BatchLine& line : turn) most = std::max(most, line.at(batch));
  return most;
}

DepthLines depth_lines(const DepthRuns& runs,
                       const std::function<std::shared_ptr<const Tape>(std::int64_t, std::int64_t)>& tape_at,
                       const TrainingSetup& given, const Device& device) {
  TrainingSetup setup = given;
  setup.parallel = tensor_alone(given.parallel, given.parallel.tensor, given.parallel.sequence_parallel);
  const std::int64_t depths[2] = {runs.low, runs.high}, batches[2] = {runs.small, runs.large};
  const int deep = runs.high > runs.low ? 2 : 1, large = runs.large > runs.small ? 2 : 1;
  std::vector<std::shared_ptr<const Tape>> tapes;
  for (int i = 0; i < deep * large; ++i) tapes.push_back(tape_at(depths[i / large], batches[i % large]));
  Profile ran[4];
  in_parallel(tapes.size(), [&](std::size_t i) { ran[i] = unwrap(profile(*tapes[i], setup, device)); });
  // Where there is one depth or one batch it stands for both.
  Profile p[2][2];
  for (int d = 0; d < 2; ++d)
    for (int b = 0; b < 2; ++b) p[d][b] = ran[std::min(d, deep - 1) * large + std::min(b, large - 1)];
  const Deeper on(runs);
  DepthLines out;
  out.tensor = setup.parallel.tensor;
  out.work = deeper_work(work_line(p[0][0], runs.small, p[0][1], runs.large),
                         work_line(p[1][0], runs.small, p[1][1], runs.large), on);
  out.blocks = std::llround(on(static_cast<double>(p[0][0].blocks), static_cast<double>(p[1][0].blocks)));
  out.boundary = line_through(runs.small, p[1][0].boundary, runs.large, p[1][1].boundary);
  const auto bytes = [&](Bytes Profile::*what) {
    return on(static_cast<double>((p[0][0].*what).count), static_cast<double>((p[1][0].*what).count));
  };
  out.parameters = bytes(&Profile::parameters);
  out.gradients = bytes(&Profile::gradients);
  if (runs.high > runs.low) {
    const auto each = [&](double low, double high) { return (high - low) / static_cast<double>(runs.high - runs.low); };
    const auto bytes_each = [&](Bytes Profile::*what) {
      return each(static_cast<double>((p[0][0].*what).count), static_cast<double>((p[1][0].*what).count));
    };
    out.block.parameters = bytes_each(&Profile::parameters);
    out.block.gradients = bytes_each(&Profile::gradients);
    out.block.elements =
        each(static_cast<double>(p[0][0].trained_elements), static_cast<double>(p[1][0].trained_elements));
    if (!p[0][0].turn.empty())
      out.block.kept = line_through(runs.small, each(p[0][0].turn[0], p[1][0].turn[0]), runs.large,
                                    each(p[0][1].turn[0], p[1][1].turn[0]));
  }
  if (p[0][0].turn.empty()) return out;
  // Half of the shallow backward pass: beyond it the shallow model runs out of blocks. Where another batch takes other
  // kernels the events have no counterparts; then the first one is enough.
  const bool same = p[0][0].turn.size() == p[0][1].turn.size() && p[1][0].turn.size() == p[1][1].turn.size();
  const std::size_t events = same ? std::max<std::size_t>(1, p[0][0].turn.size() / 2) : 1;
  for (std::size_t i = 0; i < events; ++i)
    out.turn.push_back(line_through(runs.small, on(p[0][0].turn[i], p[1][0].turn[i]), runs.large,
                                    on(p[0][1].turn[i], p[1][1].turn[i])));
  out.kept = out.turn.front();
  out.turn = highest(std::move(out.turn));
  return out;
}

namespace {

/// What a rank's bytes are made of, whichever strategy divides them.
struct RankTerms {
  double tensor = 1;    ///< GPUs of tensor parallelism for each of those that the lines are for
  double fixed = 0;     ///< context and NCCL
  bool policy = false;  ///< shards are fp32, and the run's dtype is that of what is gathered
  bool megatron = false;

  Bytes process(double bytes) const { return Bytes(static_cast<std::int64_t>(bytes + fixed)); }
};

/// The first rank of a pipeline holds its blocks, and the activations of the micro-batches in flight; of the ranks
/// between the ends the second one has most micro-batches in flight.
Bytes least_of_stages(const DepthLines& r, const TrainingSetup& setup, std::int64_t batch, std::int64_t micro_batches,
                      const RankTerms& terms) {
  const ParallelSetup& p = setup.parallel;
  const DataStrategy& strategy = strategy_of(p);
  const std::int64_t stages = p.pipeline * p.virtual_stages;
  const double cut = 1 / (terms.tensor * static_cast<double>(p.expert)),
               shard = 1 / static_cast<double>(shard_group(p));
  const double weight_share = strategy.weights ? shard : 1, state_share = strategy.state ? shard : 1;
  // FSDP adds up the micro-batches' gradients in the dtype that it reduces in.
  const bool widened = p.reduce_dtype == DType::float32;
  const double block_gradients = terms.megatron ? main_gradient(setup.precision) * r.block.elements
                                 : widened      ? std::max(r.block.gradients, 4 * r.block.elements)
                                                : r.block.gradients;
  const double block_state =
      terms.megatron ? megatron_needs(setup, r.block.elements).state
                     : optimizer_needs(setup.optimizer, terms.policy ? 4 * r.block.elements : r.block.gradients,
                                       static_cast<std::int64_t>(r.block.elements))
                           .state;
  const double block_weights = terms.policy ? std::max(r.block.parameters, 4 * r.block.elements) : r.block.parameters;
  const auto with_blocks = [&](std::int64_t of_stage, std::int64_t flights, std::int64_t received) {
    const double blocks = static_cast<double>(of_stage * p.virtual_stages) * cut;
    const double kept = r.block.kept.at(batch) * static_cast<double>(of_stage * flights) /
                        (terms.tensor * static_cast<double>(p.context));
    // In the steady state gradients lie there as well, whole until the last micro-batch; Megatron's always do.
    const double gradients =
        terms.megatron || micro_batches * p.virtual_stages > flights ? block_gradients * blocks : 0;
    const double gathered = p.reshard_after_forward ? 0 : r.block.parameters * blocks;
    // Buffers for what every micro-batch brings from a neighbour.
    const double buffers = crossing_bytes(r, p, batch) * static_cast<double>(micro_batches * received);
    return terms.process((block_weights * weight_share + block_state * state_share) * blocks + gathered + kept +
                         buffers + gradients);
  };
  const std::int64_t flights = in_flight_on_first(p, micro_batches), longest = (r.blocks + stages - 1) / stages;
  const Bytes first = with_blocks(longest, flights, 2 * p.virtual_stages - 1);
  if (p.pipeline <= 2) return first;
  const bool turns = p.schedule == PipelineSchedule::interleaved;
  const std::int64_t fewer = p.schedule == PipelineSchedule::gpipe ? 0 : turns ? 2 : 1;
  return std::max(first, with_blocks(r.blocks / stages, std::min(flights, std::max<std::int64_t>(1, flights - fewer)),
                                     2 * p.virtual_stages));
}

}  // namespace

Bytes least_of_rank(const DepthLines& r, const TrainingSetup& setup, std::int64_t batch, std::int64_t micro_batches,
                    const Device& device) {
  const ParallelSetup& p = setup.parallel;
  const DataStrategy& strategy = strategy_of(p);
  const RankTerms terms{static_cast<double>(p.tensor) / static_cast<double>(r.tensor),
                        static_cast<double>((device.context + nccl_of(p)).count), p.param_dtype.has_value(),
                        strategy.own_gradients};
  const RankShare share = share_of(p, std::max<std::int64_t>(1, micro_batches), terms.tensor);
  if (setup.mode == Mode::inference) return terms.process(r.parameters * share.whole);
  const double elements = static_cast<double>(r.work.trained_elements);
  const double weights = terms.policy ? std::max(r.parameters, 4 * elements) : r.parameters;
  const double gradients = terms.policy     ? 4 * elements
                           : terms.megatron ? main_gradient(setup.precision) * elements
                                            : r.gradients;
  OptimizerNeeds optimizer = optimizer_needs(setup.optimizer, gradients, r.work.trained_elements);
  if (p.tensor > 1) optimizer.temporary = 0;  // that optimizer runs with foreach=False
  if (terms.megatron) optimizer = megatron_needs(setup, elements);
  // fp32 weights and two moments; the gradients' fp32 copy where they are not fp32 themselves.
  if (in_deepspeed(p)) optimizer = {12 * elements, setup.precision == Precision::fp32 ? 0 : 4 * elements};
  // Which rank holds what is known of stages as even as they go, in order.
  const bool even = p.split.empty() && !splits_backward(p.schedule);
  const Bytes floor = p.pipeline > 1 && r.block.parameters > 0 && even
                          ? least_of_stages(r, setup, batch, micro_batches, terms)
                          : Bytes();
  const double activations = (p.pipeline > 1 ? r.kept.at(batch) : r.others_at(batch)) * share.activations;
  double held = weights * (strategy.weights ? share.sharded : share.whole);
  // Without resharding every block's gathered weights wait for its backward pass.
  const double gathered = p.reshard_after_forward ? 0 : r.parameters * share.whole;
  const double kept_gradients = gradients * (strategy.gradients ? share.sharded : share.whole),
               state = optimizer.state * share.sharded;
  held += state;
  // Gradients of earlier micro-batches stay; FSDP reduces after each of them.
  const double waiting = terms.megatron || (micro_batches > 1 && p.pipeline < 2) ? kept_gradients : 0;
  // ZeRO-1 lets go of what other ranks update before its step.
  const double stepping = strategy.stage == 1 ? gradients * share.sharded : kept_gradients;
  return std::max(floor, terms.process(std::max({held + gathered + activations + waiting, held + kept_gradients,
                                                 held + stepping + optimizer.temporary * share.sharded})));
}

double crossing_bytes(const DepthLines& r, const ParallelSetup& p, std::int64_t batch) {
  return r.boundary.at(batch) / static_cast<double>(p.context * (p.sequence_parallel ? p.tensor / r.tensor : 1));
}

StepTime share_of_micro_batch(const DepthLines& r, const ParallelSetup& p, std::int64_t batch, const DeviceRates& rates,
                              const TimeAssumptions& a) {
  Share share;
  share.products = 1 / static_cast<double>(p.tensor * p.context);
  share.rest = 1 / static_cast<double>((p.sequence_parallel ? p.tensor : 1) * p.context);
  return micro_batch_time(r.work, batch, share, rates, a);
}

StepTime rank_step_time(const DepthLines& r, const TrainingSetup& setup, std::int64_t batch, std::int64_t micro_batches,
                        const StepTime& micro_batch, const DeviceRates& rates, const TimeAssumptions& a) {
  const ParallelSetup& p = setup.parallel;
  StepTime t = micro_batch;
  if (setup.mode == Mode::inference) {
    t.backward = t.again = 0;
    t.communication = waiting_communication(r, p, batch, 1, false, rates, a) / 2;
    return t;
  }
  const double count = static_cast<double>(micro_batches);
  // The longest stages decide: blocks are dealt out whole.
  const std::int64_t stages = p.pipeline * p.virtual_stages;
  const std::int64_t most_blocks = (r.blocks + stages - 1) / stages * p.virtual_stages;
  const double longest =
      r.blocks > 0 && p.pipeline > 1 ? static_cast<double>(most_blocks) / static_cast<double>(r.blocks) : 1.0;
  t.forward *= count * longest, t.backward *= count * longest, t.again *= count * longest;
  if (p.pipeline > 1)
    t.bubble = (t.forward + t.backward + t.again) * static_cast<double>(p.pipeline - 1) /
               (count * static_cast<double>(p.virtual_stages));
  const std::int64_t shards = p.tensor * p.pipeline * p.expert * (strategy_of(p).shares_out() ? shard_group(p) : 1);
  const std::int64_t elements = r.work.trained_elements / shards, tensors = r.work.trained_tensors / p.pipeline;
  const bool fp32_state = strategy_of(p).fp32_state || p.param_dtype.has_value();
  const int bytes = fp32_state ? 4 : static_cast<int>(weight_bytes(setup.precision));
  t.optimizer = optimizer_time(setup.optimizer, elements, tensors, bytes, rates, a) +
                gradient_time(setup, micro_batches, elements, bytes, rates, a);
  t.communication = waiting_communication(r, p, batch, count, t.again > 0, rates, a) +
                    data_communication(r, setup, count, t, rates, a);
  return t;
}

}  // namespace memplan
