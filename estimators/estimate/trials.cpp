#include "estimators/estimate/trials.h"

#include <algorithm>
#include <utility>

#include "estimators/base/unwrap.h"
#include "estimators/pipeline.h"
#include "estimators/restore/casts.h"
#include "estimators/restore/frozen.h"
#include "estimators/restore/hidden_names.h"
#include "estimators/restore/host_numbers.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/restore/training_draws.h"
#include "estimators/setup/run_dtype.h"
#include "estimators/transforms/transforms.h"

namespace memplan {

namespace {

bool has_lines(const Tape& tape) {
  return std::any_of(tape.calls.begin(), tape.calls.end(), [](const Call& c) { return !c.source.empty(); });
}

/// transformers/… lines with a mask in attention: the traced branch of its masks, or a mask that is there in eager
/// code.
bool masks_in_attention(const Tape& tape) {
  return std::any_of(tape.calls.begin(), tape.calls.end(), [](const Call& c) {
    return c.op == "aten::scaled_dot_product_attention" && c.args.size() > 3 &&
           std::holds_alternative<ValueId>(c.args[3].value);
  });
}

/// The reading changes when tensors go or how large workspaces are, not which calls there are.
bool keeps_calls(const Reading& r) {
  Reading same;
  same.names = r.names;
  same.workspaces = r.workspaces;
  same.order = r.order;
  same.falling_addresses = r.falling_addresses;
  return same == r;
}

/// Of keywords only dtypes differ between readings.
bool same_keyword(const std::pair<std::string, Arg>& a, const std::pair<std::string, Arg>& b) {
  const auto *x = std::get_if<DType>(&a.second.value), *y = std::get_if<DType>(&b.second.value);
  return a.second.value.index() == b.second.value.index() && (!x || *x == *y);
}

bool same_calls(const Tape& a, const Tape& b) {
  return a.calls.size() == b.calls.size() && a.checkpoints.size() == b.checkpoints.size() &&
         std::ranges::equal(a.parameters, b.parameters,
                            [&](ValueId x, ValueId y) {
                              return a.values[static_cast<std::size_t>(x.index)].requires_grad ==
                                     b.values[static_cast<std::size_t>(y.index)].requires_grad;
                            }) &&
         std::equal(a.calls.begin(), a.calls.end(), b.calls.begin(), [](const Call& x, const Call& y) {
           return x.op == y.op && x.args.size() == y.args.size() && x.last_uses == y.last_uses &&
                  x.no_autocast == y.no_autocast && std::ranges::equal(x.kwargs, y.kwargs, same_keyword);
         });
}

template <class Add>
void add_names(const Add& add) {
  constexpr auto names = "tensors that Python variables of the forward pass hold or release";
  add(About::lifetime, names, [](Reading& r) { r.names = NameReading::freed; });
  add(About::lifetime, names, [](Reading& r) { r.names = NameReading::held; });
}

/// Readings of what an ONNX file does not tell: which parameters are trained.
template <class Add>
void add_frozen(const Tape& tape, const Add& add) {
  if (has_own_adapters(tape))
    add(About::weights, "what is frozen beside adapters of the model's own",
        [](Reading& r) { r.own_adapters = false; });
  if (has_evaluated_networks(tape))
    add(About::weights, "networks that stay in evaluation mode while the model trains",
        [](Reading& r) { r.evaluated_frozen = false; });
  if (has_frozen_names(tape))
    add(About::weights, "networks whose names or calls say that they may not be trained",
        [](Reading& r) { r.frozen_names = true; });
  if (has_pretrained(tape))
    add(About::weights,
        "encoders of images, shifts of colors, tables of words, positions and scales that may not be trained",
        [](Reading& r) { r.pretrained = true; });
}

/// The same of a file that was exported in training mode.
template <class Add>
void add_draws(const Tape& tape, const Add& add) {
  if (has_training_draws(tape))
    add(About::mode, "random numbers that the model may draw in training only",
        [](Reading& r) { r.training_draws = false; });
}

}  // namespace

bool rests_on(const Notes& facts, About about, bool (*accept)(Evidence)) {
  return std::any_of(facts.begin(), facts.end(), [&](const Fact& f) { return f.about == about && accept(f.evidence); });
}

Reading falling_addresses() {
  Reading r;
  r.falling_addresses = true;
  return r;
}

std::vector<Trial> trials_of(const Tape& tape, const TrainingSetup& setup, const Notes& facts) {
  std::vector<Trial> trials;
  const auto add = [&](About about, const char* text, auto&& change, bool either_way = false) {
    Trial t{about, text, {}, either_way};
    change(t.reading);
    trials.push_back(t);
  };
  if (has_lines(tape)) add_names(add);
  constexpr auto dropped = "casts that an export in fp32 drops";
  if (setup.precision != Precision::fp32 && rests_on(facts, About::cast, told))
    add(
        About::cast, dropped, [](Reading& r) { r.casts = false; }, true);
  if (setup.precision != Precision::fp32 && !tape.exported.unseen_casts.empty())
    add(About::cast, "conversions in functions whose lines the file does not have",
        [](Reading& r) { r.unseen_casts = false; });
  if (is_amp(setup.precision) && has_open_casts(tape))
    add(About::cast, "conversions in norms and helpers of the model's own", [](Reading& r) { r.open_casts = true; });
  if (setup.precision != Precision::fp32 && has_own_loss(tape))
    add(About::cast, dropped, [](Reading& r) { r.widened_losses = true; });
  if (rests_on(facts, About::in_place, told)) {
    constexpr auto in_place = "ops that lines or classes say are in place";
    add(About::in_place, in_place, [](Reading& r) { r.in_place = InPlaceReading::never; });
    add(About::in_place, in_place, [](Reading& r) { r.in_place = InPlaceReading::wherever; });
  }
  if (rests_on(facts, About::mask, told))
    add(About::mask, "attention masks that eager code does not make",
        [](Reading& r) { r.masks = MaskReading::traced; });
  if (masks_in_attention(tape))
    add(About::mask, "exported on the traced branch of its attention masks; eager code may take another",
        [](Reading& r) { r.masks = MaskReading::eager; });
  if (rests_on(facts, About::function, told) && setup.mode == Mode::training) {
    constexpr auto function = "what an autograd.Function of the model's own keeps";
    add(About::function, function, [](Reading& r) { r.functions = FunctionReading::alone; });
    add(About::function, function, [](Reading& r) { r.functions = FunctionReading::pieces; });
    add(About::function, function, [](Reading& r) { r.functions = FunctionReading::all; });
  }
  if (rests_on(facts, About::checkpointing, told) && tape.checkpoints.empty() && setup.mode == Mode::training)
    add(About::checkpointing, "activations that the model checkpoints by itself",
        [](Reading& r) { r.own_checkpoints = true; });
  if (setup.mode == Mode::training) add_frozen(tape, add);
  if (setup.mode == Mode::inference) add_draws(tape, add);
  constexpr auto numbers = "tensors made from numbers, which may be on the CPU";
  if (has_numbers_without_device(tape)) add(About::placement, numbers, [](Reading& r) { r.numbers_on_host = true; });
  if (rests_on(facts, About::workspace, [](Evidence e) { return e > Evidence::proven_by_file; })) {
    constexpr auto workspace = "workspaces of convolutions that are not in the table";
    add(About::workspace, workspace, [](Reading& r) { r.workspaces = WorkspaceReading::least; });
    add(About::workspace, workspace, [](Reading& r) { r.workspaces = WorkspaceReading::most; });
  }
  constexpr auto falling = "segments at falling addresses, as CUDA hands them out";
  if (!tape.graph && !setup.allocator.expandable_segments)
    add(About::allocator, falling, [](Reading& r) { r = falling_addresses(); });
  // Of as many orders as a range over them takes to settle; a run of every order would take for ever.
  if (tape.graph && setup.ort.extend == ArenaExtend::next_power_of_two)
    for (std::uint32_t order = 1; order <= 16; ++order)
      add(About::allocator,
          "the order in which a session loads its weights, another one in every process (16 were tried)",
          [&](Reading& r) { r.order = order; });
  return trials;
}

std::optional<Tape> read_again(const Model& model, const Tape& tape, const TrainingSetup& setup,
                               const Reading& reading) {
  if (!keeps_calls(reading)) {
    Tape other = unwrap(read_otherwise(tape, model, setup, reading));
    // A plan that no words say goes by its calls, where they are as many.
    if (setup.checkpoint.empty() && other.checkpoints.empty() && other.calls.size() == tape.calls.size())
      other.checkpoints = tape.checkpoints;
    // Of a recording calls stay as many; what they are asked for differs.
    const bool same = !tape.exported.recorded && reading.functions == tape.reading.functions && same_calls(tape, other);
    return same ? std::nullopt : std::optional(std::move(other));
  }
  Tape other = tape;
  other.reading = reading;
  if (reading.names != NameReading::as_told) {
    if (reading.names == NameReading::held && setup.mode == Mode::inference && other.checkpoints.empty())
      fill_caches_first(other);
    mark_last_uses(other);
    if (same_calls(tape, other)) return std::nullopt;
  }
  return other;
}

}  // namespace memplan
