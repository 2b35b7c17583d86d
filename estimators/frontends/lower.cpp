// lower of pipeline.h: the route by which a file becomes a tape, and the passes over it.
#include "estimators/frontends/lower.h"

#include <fmt/format.h>

#include "estimators/frontends/onnx/flatten.h"
#include "estimators/frontends/onnx/fx_route.h"
#include "estimators/frontends/onnx/op_route.h"
#include "estimators/frontends/onnx/restore.h"
#include "estimators/frontends/onnx/values.h"
#include "estimators/frontends/recording/recording.h"
#include "estimators/frontends/recording/steps.h"
#include "estimators/frontends/torch_export/lower.h"
#include "estimators/frontends/torch_export/program.h"
#include "estimators/graph/dims.h"
#include "estimators/pipeline.h"
#include "estimators/restore/casts.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/restore/passes.h"
#include "estimators/setup/field.h"
#include "estimators/setup/run_dtype.h"
#include "estimators/tape/uses.h"
#include "estimators/transforms/checkpointing.h"
#include "estimators/transforms/context_parallel.h"
#include "estimators/transforms/expert_parallel.h"
#include "estimators/transforms/fp8.h"
#include "estimators/transforms/lora.h"
#include "estimators/transforms/offload.h"
#include "estimators/transforms/support.h"
#include "estimators/transforms/tensor_parallel.h"

namespace memplan {

namespace {

/// An input that the file leaves out is None, as PyTorch calls it; the op says whether it can do without.
void absent_inputs_are_none(Tape& tape) {
  for (Call& call : tape.calls)
    replace_values(call, [&](ValueId id) {
      return id.valid() && static_cast<std::size_t>(id.index) < tape.values.size() ? Arg{id} : Arg{};
    });
}

void lower_onnx(const Model& model, const onnx_format::Symbols& symbols, const TrainingSetup& setup, Tape& tape) {
  const Graph& file = model.graphs.front();
  const bool has_text = onnx_format::has_fx_text(file);
  const onnx_format::FxProgram program = has_text ? onnx_format::read_fx_program(file) : onnx_format::FxProgram{};
  const bool by_text = has_text && onnx_format::is_complete_fx(file, program);
  std::optional<Graph> prepared;
  if (!by_text)
    prepared = has_text ? onnx_format::restore_folded(file) : onnx_format::flatten(model, symbols, tape.notes);
  const Graph& graph = prepared ? *prepared : file;
  onnx_format::Values values(graph, symbols, tape, model.opset);
  if (by_text)
    onnx_format::lower_fx(graph, program, setup, values, tape);
  else
    onnx_format::lower_ops(graph, setup, values, tape);
  values.finish();
  absent_inputs_are_none(tape);
}

/// Context parallelism: the rank's forward pass sees its share of the sequence.
void share_sequence(const Model& model, std::int64_t ranks, onnx_format::Symbols& symbols) {
  bool any = false;
  for (const auto& dim : onnx_format::open_dims(model.graphs.front())) {
    const auto at = symbols.find(dim.name);
    if (!dim.sequence || at == symbols.end()) continue;
    any = true;
    if (at->second % ranks != 0)
      fail(ErrorKind::usage, fmt::format("{} context-parallel ranks do not divide a sequence of {}", ranks, at->second),
           setting(Field::context_parallel), "use a divisor of the sequence");
    at->second /= ranks;
  }
  if (!any)
    fail(ErrorKind::usage, "the model has no open sequence dimension to divide", setting(Field::context_parallel),
         "export it with a dynamic sequence length, or leave " + setting(Field::context_parallel) + " out");
}

}  // namespace

Result<Tape> lower_whole(const Model& model, const TrainingSetup& setup) {
  return catching([&] {
    if (model.graphs.empty()) fail_input("the model has no graph", model.path);
    check_strategies(setup);
    Tape tape;
    for (const std::string& w : model.warnings) tape.notes.push_back({"MP001", w, Evidence::assumed, About::program});
    onnx_format::Symbols symbols = onnx_format::bind_dims(model, setup, tape.notes);
    if (model.recorded) {
      const auto batch = symbols.find("batch");
      Tape recorded = recording::tape_of(model.recorded, batch == symbols.end() ? 0 : batch->second, setup);
      recorded.notes.insert(recorded.notes.begin(), tape.notes.begin(), tape.notes.end());
      return recorded;
    }
    if (setup.parallel.context > 1) share_sequence(model, setup.parallel.context, symbols);
    // The training IR of torch.export still has the in-place ops that other routes have to recover.
    bool functional = true;
    if (model.exported && model.exported->script) {
      Result<Unrolled> unrolled = unroll_script(model, symbols, setup);
      if (!unrolled) throw Failure(unrolled.error());
      tape.notes.insert(tape.notes.end(), unrolled->notes.begin(), unrolled->notes.end());
      torch_export::lower_program(*unrolled->program, symbols, setup, tape);
      functional = false;
    } else if (model.exported) {
      torch_export::check_ranges(*model.exported, symbols);
      torch_export::lower_program(*model.exported, symbols, setup, tape);
      functional = model.exported->decomposed;
    } else {
      lower_onnx(model, symbols, setup, tape);
    }
    if (const auto frozen = model.metadata.find("memplan.frozen"); frozen != model.metadata.end())
      freeze_listed(tape, frozen->second);
    else
      note(tape.notes, {{}, "every parameter is trained that no flag freezes", Evidence::assumed, About::weights});
    freeze(tape, setup.frozen);
    recover_causal_masks(tape);
    if (setup.mode == Mode::inference) enter_inference(tape, dtype_of_run(setup));
    remove_dead_calls(tape);
    if (setup.inplace_activations && functional) {
      const auto listed = model.metadata.find("memplan.inplace");
      recover_inplace(tape, listed == model.metadata.end() ? std::string_view{} : std::string_view(listed->second));
    }
    restore_casts(tape);
    follow_model_dtype(tape, dtype_of_run(setup));
    if (setup.mode == Mode::training && setup.lora) add_adapters(tape, *setup.lora, setup.precision);
    mark_last_uses(tape);
    return tape;
  });
}

Result<Tape> tape_of_rank(Tape tape, const TrainingSetup& setup) {
  return catching([&] {
    if (setup.mode == Mode::training) checkpoint_modules(tape, setup.checkpoint);
    if (!setup.checkpoint_save.empty() && nests(tape))
      fail(ErrorKind::usage, "checkpoints inside of checkpoints keep no outputs of ops here",
           setting(Field::checkpoint_save), "leave it out, or checkpoint each module once");
    if (setup.mode == Mode::inference && setup.offload.parameters) offload_parameters(tape);
    if (setup.parallel.expert > 1) share_experts(tape, setup.parallel.expert);
    if (setup.parallel.tensor > 1) tape = shard_tensors(tape, setup, Device{});
    if (setup.parallel.context > 1) gather_keys_and_values(tape, setup.parallel.context);
    if (setup.fp8 != Fp8::none) linears_in_fp8(tape, setup);
    return std::move(tape);
  });
}

Result<Tape> lower(const Model& model, const TrainingSetup& setup) {
  Result<Tape> whole = lower_whole(model, setup);
  return whole ? tape_of_rank(std::move(whole.value()), setup) : whole;
}

}  // namespace memplan
