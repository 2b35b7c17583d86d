#include "cli/answer.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/progress.h"
#include "cli/report/formats.h"
#include "estimators/graph/dims.h"

namespace memplan::cli {

namespace {

constexpr const char* default_device = "h100-80gb";

std::vector<BoundDim> bound_dims(const Model& model, const TrainingSetup& setup) {
  std::vector<BoundDim> out;
  Notes notes;
  const auto symbols = onnx_format::bind_dims(model, setup, notes);
  for (const auto& dim : onnx_format::open_dims(model.graphs.front())) {
    const auto size = symbols.find(dim.name);
    if (size == symbols.end()) continue;
    const bool given = setup.dims.contains(dim.name) || (dim.batch && setup.batch) || (dim.sequence && setup.sequence);
    out.push_back({dim.name, size->second, !given});
  }
  return out;
}

std::vector<Input> inputs_of(const Tape& tape) {
  std::vector<Input> out;
  for (ValueId id : tape.inputs) {
    const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
    out.push_back({v.name, std::string(name_of(v.dtype)), v.sizes});
  }
  return out;
}

/// Two files with the same hash hold the same calls in the same modules with the same parameters. FNV-1a: nobody has a
/// reason to forge it, and it is only told, never trusted.
std::string hash_of(const Tape& tape) {
  std::uint64_t h = 14695981039346656037ULL;
  const auto add = [&](std::string_view text) {
    for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    h = (h ^ 0xFF) * 1099511628211ULL;
  };
  for (const auto* list : {&tape.parameters, &tape.buffers})
    for (const ValueId id : *list) {
      const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
      add(v.name), add(name_of(v.dtype));
      for (const std::int64_t s : v.sizes) add(std::to_string(s));
    }
  for (const Call& call : tape.calls) {
    add(call.op);
    if (call.scope >= 0) add(tape.scopes[static_cast<std::size_t>(call.scope)].path);
  }
  return fmt::format("{:016x}", h);
}

Alternative alternative(std::string flags, const Estimate& e, const Device& device, Bytes margin) {
  const Judgement j = judge(e, device, margin);
  return {std::move(flags), e.peak.process, j.verdict, j.headroom};
}

/// What is tried when the setup does not fit: each changes one thing that leaves the training itself nearly as it is.
void try_changes(const Model& model, const Tape& tape, Answer& a, std::optional<Bytes> limit) {
  const auto attempt = [&](std::string flags, const TrainingSetup& setup, bool lower_again) {
    const Result<Estimate> e =
        lower_again ? estimate(model, setup, a.choice.device) : estimate_tape(tape, setup, a.choice.device);
    if (e && e->peak.process < a.estimate.peak.process)
      a.changes.push_back(alternative(std::move(flags), *e, a.choice.device, a.margin));
  };
  const bool training = a.setup.mode == Mode::training;
  // Cards before compute capability 8.0 have no bfloat16 units.
  const bool bf16 = a.choice.device.sm_major >= 8, to_amp = a.setup.precision == Precision::fp32;
  const std::string amp_flags = bf16 ? "--amp bf16" : "--amp fp16";
  TrainingSetup amp = a.setup;
  amp.precision = bf16 ? Precision::amp_bf16 : Precision::amp_fp16;
  if (to_amp) attempt(amp_flags, amp, true);
  if (training && a.setup.checkpoint.empty()) {
    TrainingSetup blocks = a.setup;
    blocks.checkpoint = {"blocks"};
    attempt("--checkpoint blocks", blocks, true);
    if (to_amp) {
      amp.checkpoint = {"blocks"};
      attempt(amp_flags + " --checkpoint blocks", amp, true);
    }
  }
  // The same samples per optimizer step, in smaller portions.
  if (training && a.setup.batch)
    for (std::int64_t parts = 2; parts <= 16 && *a.setup.batch % parts == 0; parts *= 2) {
      TrainingSetup smaller = a.setup;
      smaller.batch = *a.setup.batch / parts;
      smaller.accumulate = a.setup.accumulate * parts;
      attempt(fmt::format("--batch {} --accumulate {}", *smaller.batch, smaller.accumulate), smaller, true);
      if (!a.changes.empty() && a.changes.back().verdict == Verdict::fits &&
          (!limit || a.changes.back().peak <= *limit))
        break;
    }
  if (!a.setup.allocator.expandable_segments) {
    TrainingSetup expandable = a.setup;
    expandable.allocator.expandable_segments = true;
    attempt("--alloc-conf expandable_segments:True", expandable, false);
  }
  std::stable_sort(a.changes.begin(), a.changes.end(),
                   [](const Alternative& x, const Alternative& y) { return x.peak < y.peak; });
}

}  // namespace

DeviceChoice device_of(const Options& options) {
  DeviceChoice choice = choose_device(options.gpu ? *options.gpu : default_device);
  if (options.reserve) {
    choice.device.context = *options.reserve;
    choice.device.context_source = "--reserve";
  }
  return choice;
}

Bytes margin_on(const Options& options, const Device& device) {
  return options.margin ? options.margin->of(device.total) : default_margin(device);
}

Answer compute(const Options& options) {
  Answer a;
  a.setup = options.setup;
  a.choice = device_of(options);
  a.device_given = options.gpu.has_value();
  a.margin = margin_on(options, a.choice.device);
  Progress progress;
  progress.show("reading the model");
  const Model model = take(load_model(options.argument, options.inputs));
  a.path = options.argument;
  a.format = model.format;
  a.file_bytes = model.file_bytes;
  const Tape tape = take(lower(model, a.setup));
  a.graph_hash = hash_of(tape);
  a.dims = bound_dims(model, a.setup);
  a.inputs = inputs_of(tape);
  progress.show("replaying the steps");
  a.estimate = take(estimate_tape(tape, a.setup, a.choice.device));
  a.judgement = judge(a.estimate, a.choice.device, a.margin);

  const MarginOf margin = [&](const Device& d) { return margin_on(options, d); };
  if (timeline_wanted(options)) {
    a.run = run_of(tape, a.setup, a.choice.device, a.estimate);
    const bool change =
        a.device_given && (a.judgement.verdict == Verdict::tight || a.judgement.verdict == Verdict::no_fit);
    if (options.search) add_surroundings(*a.run, model, tape, a.setup, a.choice.device, margin, change);
  }
  if (options.search && (!options.quiet || !options.exports.empty())) {
    if (a.setup.mode == Mode::training && !options.mode_given) {
      TrainingSetup forward = a.setup;
      forward.mode = Mode::inference;
      const Result<Estimate> e = estimate(model, forward, a.choice.device);
      if (e) a.inference = alternative("--mode inference", *e, a.choice.device, a.margin);
    }
    progress.show("looking for the largest batch");
    if (a.device_given) a.largest = largest_batch(model, a.setup, a.choice.device, margin, a.estimate);
    const bool tight = a.judgement.verdict == Verdict::tight || a.judgement.verdict == Verdict::no_fit;
    progress.show("looking for cards that fit");
    if (!a.device_given || tight) a.cards = smallest_cards(tape, a.setup, margin, a.estimate, 3);
    const bool over = options.limit && a.estimate.high > *options.limit;
    progress.show("trying smaller changes");
    if ((a.device_given && tight) || over) try_changes(model, tape, a, options.limit);
  }
  if (a.device_given && !options.exit_zero &&
      std::find(options.fail_on.begin(), options.fail_on.end(), a.judgement.verdict) != options.fail_on.end())
    a.exit_code = 1;
  return a;
}

}  // namespace memplan::cli
