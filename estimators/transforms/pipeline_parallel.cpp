#include "estimators/transforms/pipeline_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "estimators/base/error.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/setup/field.h"
#include "estimators/tape/uses.h"
#include "estimators/transforms/blocks.h"

namespace memplan {

namespace {

/// First calls of the blocks, in the order in which they run.
std::vector<std::int32_t> block_begins(const Tape& tape, const ParallelSetup& setup) {
  const ScopeSpans spans(tape);
  std::vector<std::int32_t> begins;
  for (std::int32_t s :
       outermost(tape, named_modules(tape, setup.blocks.empty() ? std::vector<std::string>{"blocks"} : setup.blocks,
                                     Field::blocks)))
    if (spans.first[static_cast<std::size_t>(s)] >= 0) begins.push_back(spans.first[static_cast<std::size_t>(s)]);
  std::sort(begins.begin(), begins.end());
  return begins;
}

class Cutter {
 public:
  explicit Cutter(const Tape& tape)
      : tape_(tape),
        born_(tape.values.size(), -1),
        last_use_(tape.values.size(), -1),
        trained_(tape.values.size(), false) {
    for (std::size_t i = 0; i < tape.values.size(); ++i) trained_[i] = tape.values[i].kind == ValueKind::parameter;
    for (std::size_t i = 0; i < tape.calls.size(); ++i) {
      bool depends = false;
      for_each_value(tape.calls[i], [&](ValueId id) {
        depends = depends || trained_[at(id)];
        last_use_[at(id)] = static_cast<std::int32_t>(i);
      });
      for (ValueId id : tape.calls[i].outputs)
        if (id.valid()) born_[at(id)] = static_cast<std::int32_t>(i), trained_[at(id)] = depends;
    }
    for (ValueId id : tape.outputs) last_use_[at(id)] = static_cast<std::int32_t>(tape.calls.size());
  }

  Stage stage(std::int32_t first, std::int32_t end) const {
    Stage s;
    const bool last = end == static_cast<std::int32_t>(tape_.calls.size());
    const std::set<std::int32_t> calls = calls_of(first, end, last);
    s.tape.values = tape_.values;
    s.tape.scopes = tape_.scopes;
    s.tape.bindings = tape_.bindings;
    s.tape.dims = tape_.dims;
    s.tape.notes = tape_.notes;
    s.tape.recovered = tape_.recovered;
    std::vector<bool> used(tape_.values.size(), false), only_shape(tape_.values.size(), true);
    std::vector<std::int32_t> place(tape_.calls.size(), -1), user(tape_.values.size(), -1);
    for (std::int32_t i : calls) {
      place[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(s.tape.calls.size());
      Call call = tape_.calls[static_cast<std::size_t>(i)];
      call.last_uses.clear();
      for_each_value(call, [&](ValueId id) {
        used[at(id)] = true;
        if (user[at(id)] < 0) user[at(id)] = i;
        if (call.op != "aten::sym_size.int") only_shape[at(id)] = false;
      });
      s.tape.calls.push_back(std::move(call));
    }
    for (std::size_t i = 0; i < tape_.values.size(); ++i) {
      const ValueId id{static_cast<std::int32_t>(i)};
      if (!trained_[i] || tape_.values[i].kind != ValueKind::computed) continue;
      if (born_[i] < first && last_use_[i] >= first) s.received.push_back(id);
      if (born_[i] < end && last_use_[i] >= end && !last) s.sent.push_back(id);
    }
    const auto keep = [&](const std::vector<ValueId>& from, std::vector<ValueId>& into) {
      for (ValueId id : from)
        if (used[at(id)]) into.push_back(id);
    };
    keep(tape_.inputs, s.tape.inputs);
    keep(tape_.parameters, s.tape.parameters);
    keep(tape_.buffers, s.tape.buffers);
    // A program of stages asks its own input for the batch's sizes.
    for (ValueId id : s.tape.inputs) s.tape.values[at(id)].on_host = only_shape[at(id)] && first > 0;
    name_after_users(s.tape, user);
    tie_again(s.tape, used);
    s.tape.outputs = last ? tape_.outputs : s.sent;
    for (CheckpointRegion region : tape_.checkpoints) {
      if (region.first < first || region.last >= end) continue;
      region.first = place[static_cast<std::size_t>(region.first)];
      region.last = place[static_cast<std::size_t>(region.last)];
      if (region.first >= 0 && region.last >= 0) s.tape.checkpoints.push_back(region);
    }
    for (std::size_t i = 0; i < s.tape.values.size(); ++i)
      if (s.tape.values[i].kind == ValueKind::constant && !used[i])
        s.tape.values[i].on_host = true;  // not on this rank
    mark_last_uses(s.tape);
    return s;
  }

 private:
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id.index); }

  /// The calls from `first` up to `end`, with those that hang on no parameter made where they are needed.
  std::set<std::int32_t> calls_of(std::int32_t first, std::int32_t end, bool last) const {
    std::set<std::int32_t> calls;
    for (std::int32_t i = first; i < end; ++i)
      if (makes_activation(i) || !is_free(i)) calls.insert(i);
    std::vector<std::int32_t> open(calls.begin(), calls.end());
    const auto need = [&](ValueId id) {
      const std::int32_t b = id.valid() ? born_[at(id)] : -1;
      if (b >= 0 && !trained_[at(id)] && calls.insert(b).second) open.push_back(b);
    };
    while (!open.empty()) {
      const std::int32_t i = open.back();
      open.pop_back();
      for_each_value(tape_.calls[static_cast<std::size_t>(i)], need);
    }
    if (last)
      for (ValueId id : tape_.outputs) need(id);
    return calls;
  }

  /// A tied parameter without its owner in this stage has memory of its own, which the others of the stage share.
  static void tie_again(Tape& tape, const std::vector<bool>& used) {
    for (ValueId id : tape.parameters) {
      ValueId& owner = tape.values[at(id)].same_storage_as;
      if (!owner.valid() || used[at(owner)]) continue;
      const ValueId gone = owner;
      for (ValueId other : tape.parameters)
        if (tape.values[at(other)].same_storage_as == gone)
          tape.values[at(other)].same_storage_as = other == id ? ValueId{} : id;
    }
  }

  /// A tied parameter is one value with the name of its first module. On a stage without that module it belongs to the
  /// one that uses it, and stands where that one stands.
  void name_after_users(Tape& tape, const std::vector<std::int32_t>& user) const {
    std::set<std::string_view> modules;
    for (const Call& c : tape.calls)
      for (std::int32_t scope = c.scope; scope >= 0; scope = tape.scopes[static_cast<std::size_t>(scope)].parent)
        modules.insert(tape.scopes[static_cast<std::size_t>(scope)].path);
    std::vector<ValueId> stay, move;
    for (ValueId id : tape.parameters) {
      std::string& name = tape.values[at(id)].name;
      const auto dot = name.rfind('.');
      const std::int32_t scope = tape_.calls[static_cast<std::size_t>(user[at(id)])].scope;
      if (dot == std::string::npos || scope < 0 || modules.count(std::string_view(name).substr(0, dot)) > 0) {
        stay.push_back(id);
        continue;
      }
      name = tape.scopes[static_cast<std::size_t>(scope)].path + name.substr(dot);
      move.push_back(id);
    }
    for (ValueId id : move) {
      const auto later =
          std::find_if(stay.begin(), stay.end(), [&](ValueId other) { return user[at(other)] > user[at(id)]; });
      stay.insert(later, id);
    }
    tape.parameters = std::move(stay);
  }

  bool makes_activation(std::int32_t i) const {
    for (ValueId id : tape_.calls[static_cast<std::size_t>(i)].outputs)
      if (id.valid() && trained_[at(id)]) return true;
    return false;
  }
  /// All its results hang on no parameter, so that it may run on any stage.
  bool is_free(std::int32_t i) const { return !tape_.calls[static_cast<std::size_t>(i)].outputs.empty(); }

  const Tape& tape_;
  std::vector<std::int32_t> born_, last_use_;
  std::vector<bool> trained_;  ///< hangs on a parameter
};

/// Warm-up forwards, pairs of forward and backward, the remaining backwards.
template <class Forward, class Backward>
std::vector<Action> one_forward_one_backward(std::int64_t count, std::int64_t warm_up, Forward forward,
                                             Backward backward) {
  std::vector<Action> actions;
  std::int64_t f = 0, b = 0;
  while (f < warm_up) actions.push_back(forward(f++));
  while (f < count) {
    actions.push_back(forward(f++));
    actions.push_back(backward(b++));
  }
  while (b < count) actions.push_back(backward(b++));
  return actions;
}

constexpr BackwardPart inputs = BackwardPart::inputs, weights = BackwardPart::weights;

/// ScheduleInterleavedZeroBubble: the warm-up is one pass per rank behind; weights wait until as many inputs' gradients
/// have gone ahead as there are ranks before this one.
std::vector<Action> interleaved_zero_bubble(const ParallelSetup& p, std::int64_t rank) {
  const std::int64_t m = p.micro_batches, chunks = p.virtual_stages, all = m * chunks,
                     round = m / std::max<std::int64_t>(1, m / p.pipeline);
  const auto at = [&](std::int64_t i, bool forward, BackwardPart part) {
    const std::int64_t turn = i / round % chunks;
    return Action{forward, forward ? turn : chunks - 1 - turn, i / (round * chunks) * round + i % round, part};
  };
  const std::int64_t warm_up = std::min((chunks - 1) * round + p.pipeline - 1 - rank, all);
  std::vector<Action> actions;
  std::int64_t f = 0, w = 0;
  while (f < warm_up) actions.push_back(at(f++, true, {}));
  for (std::int64_t b = 0; b < all; ++b) {
    if (f < all) actions.push_back(at(f++, true, {}));
    actions.push_back(at(b, false, inputs));
    if (b >= rank) actions.push_back(at(w++, false, weights));
  }
  while (w < all) actions.push_back(at(w++, false, weights));
  return actions;
}

/// ScheduleZBVZeroBubble: as if there were at least 2 p - 1 micro-batches; those that there are not are left out.
std::vector<Action> zero_bubble_v(const ParallelSetup& p, std::int64_t rank) {
  const std::int64_t m = p.micro_batches, full = std::max(2 * p.pipeline - 1, m);
  std::vector<Action> actions;
  std::int64_t f[2] = {0, 0}, b[2] = {0, 0}, w[2] = {0, 0};
  const auto add = [&](Action a) {
    if (a.micro_batch < m) actions.push_back(a);
  };
  const auto forward = [&](int c) { add({true, c, f[c]++}); };
  const auto input = [&](int c) { add({false, c, b[c]++, inputs}); };
  const auto weight = [&](int c) { add({false, c, w[c]++, weights}); };
  const auto both = [&](int c) { input(c), weight(c); };
  for (std::int64_t i = 0; i < 2 * (p.pipeline - rank) - 1; ++i) forward(0);
  for (std::int64_t i = 0; i < rank; ++i) forward(1), forward(0);
  for (std::int64_t i = 0; i < p.pipeline - rank; ++i) forward(1), both(1);
  while (f[1] < f[0] || f[0] < full) {
    if (f[0] < full) forward(0);
    both(0);
    forward(1);
    both(1);
  }
  for (std::int64_t i = 0; i < rank; ++i) input(0), input(1);
  for (std::int64_t i = 0; i < p.pipeline - rank; ++i) both(0);
  while (w[1] < b[1]) weight(1);
  while (w[0] < b[0]) weight(0);
  return actions;
}

}  // namespace

std::int64_t count_blocks(const Tape& tape, const ParallelSetup& setup) {
  return static_cast<std::int64_t>(block_begins(tape, setup).size());
}

std::vector<std::int64_t> stages_of_rank(const ParallelSetup& p, std::int64_t rank) {
  if (p.schedule == PipelineSchedule::zbv) return {rank, 2 * p.pipeline - 1 - rank};
  std::vector<std::int64_t> stages;
  for (std::int64_t i = 0; i < p.virtual_stages; ++i) stages.push_back(rank + i * p.pipeline);
  return stages;
}

std::vector<std::int64_t> blocks_per_stage(std::int64_t blocks, const ParallelSetup& p) {
  if (!p.split.empty()) return p.split;
  const std::int64_t stages = p.pipeline * p.virtual_stages;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), blocks / stages);
  for (std::int64_t i = 0; i < blocks % stages; ++i) ++counts[static_cast<std::size_t>(i)];
  return counts;
}

std::vector<Stage> cut_stages(const Tape& tape, const ParallelSetup& setup, std::optional<std::int64_t> rank) {
  const auto begins = block_begins(tape, setup);
  const std::int64_t count = setup.pipeline * setup.virtual_stages;
  if (count > static_cast<std::int64_t>(begins.size()))
    fail(ErrorKind::usage,
         fmt::format("{} pipeline stages need as many blocks; the model has {}", count, begins.size()),
         setting(Field::pipeline_parallel), fmt::format("use at most {} stages", begins.size()));
  const auto counts = blocks_per_stage(static_cast<std::int64_t>(begins.size()), setup);
  const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (sum != static_cast<std::int64_t>(begins.size()))
    fail(ErrorKind::usage, fmt::format("the stages have {} blocks together; the model has {}", sum, begins.size()),
         setting(Field::pipeline_split), fmt::format("give {} numbers that add up to {}", count, begins.size()));
  const std::vector<std::int64_t> mine = rank ? stages_of_rank(setup, *rank) : std::vector<std::int64_t>{};
  const Cutter cutter(tape);
  std::vector<Stage> stages;
  std::size_t block = 0;
  std::int32_t first = 0;
  std::int64_t stage = 0;
  for (std::int64_t blocks : counts) {
    block += static_cast<std::size_t>(blocks);
    const std::int32_t end = block < begins.size() ? begins[block] : static_cast<std::int32_t>(tape.calls.size());
    if (!rank || std::find(mine.begin(), mine.end(), stage) != mine.end()) stages.push_back(cutter.stage(first, end));
    first = end;
    ++stage;
  }
  return stages;
}

std::vector<Action> actions_of(const ParallelSetup& p, std::int64_t rank) {
  const std::int64_t m = p.micro_batches;
  const auto plain = [](bool forward) { return [forward](std::int64_t i) { return Action{forward, 0, i}; }; };
  if (p.schedule == PipelineSchedule::gpipe) return one_forward_one_backward(m, m, plain(true), plain(false));
  if (p.schedule == PipelineSchedule::zero_bubble) return interleaved_zero_bubble(p, rank);
  if (p.schedule == PipelineSchedule::zbv) return zero_bubble_v(p, rank);
  if (p.virtual_stages == 1) {
    const std::int64_t in_flight = std::min(m, p.pipeline - rank);
    return one_forward_one_backward(m, in_flight - 1, plain(true), plain(false));
  }
  // Rounds of micro-batches: every chunk runs one round before the next chunk's turn.
  const std::int64_t rounds = std::max<std::int64_t>(1, m / p.pipeline), round = m / rounds, chunks = p.virtual_stages;
  const std::int64_t warm_up = std::min((chunks - 1) * round + 2 * (p.pipeline - 1 - rank), m * chunks);
  const auto at = [=](bool forward) {
    return [=](std::int64_t i) {
      const std::int64_t turn = i / round % chunks;
      return Action{forward, forward ? turn : chunks - 1 - turn, i / (round * chunks) * round + i % round};
    };
  };
  return one_forward_one_backward(m * chunks, warm_up, at(true), at(false));
}

std::int64_t most_in_flight(const std::vector<Action>& actions) {
  std::int64_t now = 0, most = 0;
  for (const Action& a : actions) most = std::max(most, now += a.forward ? 1 : a.part == BackwardPart::inputs ? 0 : -1);
  return most;
}

}  // namespace memplan
