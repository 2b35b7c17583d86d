// lower of pipeline.h: which frontend makes a tape of a file.
#include "estimators/frontends/torch_export/lower.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "estimators/frontends/onnx/flatten.h"
#include "estimators/frontends/onnx/folded_away.h"
#include "estimators/frontends/onnx/fx_route.h"
#include "estimators/frontends/onnx/op_route.h"
#include "estimators/frontends/onnx/prepared.h"
#include "estimators/frontends/onnx/values.h"
#include "estimators/frontends/recording/recording.h"
#include "estimators/frontends/recording/steps.h"
#include "estimators/frontends/torch_export/lower.h"
#include "estimators/frontends/torch_export/program.h"
#include "estimators/graph/bound_graph.h"
#include "estimators/graph/listed.h"
#include "estimators/pipeline.h"
#include "estimators/setup/run_dtype.h"
#include "estimators/setup/runtimes.h"
#include "estimators/tape/check.h"
#include "estimators/tape/positions.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// An input that the file leaves out is None, as PyTorch calls it; the op says whether it can do without.
void absent_inputs_are_none(Tape& tape) {
  for (Call& call : tape.calls)
    replace_values(call, [&](ValueId id) {
      return id.valid() && static_cast<std::size_t>(id.index) < tape.values.size() ? Arg{id} : Arg{};
    });
}

void lower_onnx(const Model& model, const Symbols& symbols, const TrainingSetup& setup, Tape& tape) {
  const Graph& file = model.graphs.front();
  const bool has_text = onnx_format::has_fx_text(file);
  const auto text = has_text ? onnx_format::prepared(model) : nullptr;
  const std::optional<Graph> flat = has_text ? std::nullopt : onnx_format::flatten(model, symbols, tape.notes);
  const Graph& graph = flat ? *flat : text && text->graph ? *text->graph : file;
  const bool by_text = text && text->by_text;
  tape.calls.reserve(graph.nodes.size());
  onnx_format::Values values(graph, symbols, tape, model.opset);
  if (by_text)
    onnx_format::lower_fx(graph, text->program, setup, values, tape);
  else
    onnx_format::lower_ops(graph, setup, values, tape);
  tape.exported.tells_frozen = false;
  values.finish();
  if (has_text) onnx_format::note_folded_away(file, graph, by_text, tape);
  if (text) tape.exported.left_out = text->left_out;
  absent_inputs_are_none(tape);
}

void lower_program(const Model& model, const Symbols& symbols, const TrainingSetup& setup, Tape& tape) {
  // The training IR of torch.export still has the in-place ops that other routes have to recover.
  if (!model.exported->script) {
    torch_export::check_ranges(*model.exported, symbols);
    torch_export::lower_program(*model.exported, symbols, setup, tape);
    tape.exported.functional = model.exported->decomposed;
    tape.exported.checkpoints_seen = !model.exported->decomposed;
    return;
  }
  Result<Unrolled> unrolled = unroll_script(model, symbols, setup);
  if (!unrolled) throw Failure(unrolled.error());
  tape.notes.insert(tape.notes.end(), unrolled->notes.begin(), unrolled->notes.end());
  torch_export::lower_program(*unrolled->program, symbols, setup, tape);
  tape.exported.functional = false;
}

/// Parameters that the file itself calls frozen.
void freeze_listed(Tape& tape, const std::vector<std::string>& names) {
  const std::set<std::string_view> listed(names.begin(), names.end());
  for (ValueId id : tape.parameters) {
    TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
    if (listed.count(v.name)) v.requires_grad = false;
  }
}

/// What memplan.export chose, had to change or could not keep: a code and its text.
void note_export(const Model& model, const TrainingSetup& setup, std::vector<Note>& notes) {
  constexpr std::string_view prefix = "memplan.note.";
  for (const auto& [key, text] : model.metadata) {
    if (!key.starts_with(prefix)) continue;
    const std::string code = key.substr(prefix.size());
    if (code != "MP021") {
      notes.push_back({code, text, code == "MP023" ? Evidence::chosen : Evidence::assumed, About::program});
      continue;
    }
    // A graph keeps no trace of the model's own checkpoints; a setup has them, or others.
    if (setup.mode != Mode::training || setup.checkpoint_optimal) continue;
    if (setup.checkpoint.empty())
      notes.push_back({code, text, Evidence::told_by_source_line, About::checkpointing});
    else if (setup.checkpoint == own_checkpoints(model))
      notes.push_back(
          {code,
           fmt::format("the model checkpoints {} itself, and so does the estimate", fmt::join(setup.checkpoint, " ")),
           Evidence::chosen, About::checkpointing});
  }
}

/// A tape of weights and inputs that carries the graph itself.
void bind_graph(const Model& model, const Symbols& symbols, Tape& tape) {
  auto bound = std::make_shared<BoundGraph>();
  auto flat = onnx_format::flatten(model, symbols, tape.notes);
  bound->graph = flat ? *flat : model.graphs.front();
  if (!flat) {  // what stands in the place of If, Loop and Scan depends on sizes
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    if (!model.shared.arranged) model.shared.arranged = bound->arranged;
    bound->arranged = model.shared.arranged;
  }
  bound->symbols = symbols;
  bound->opset = model.opset;
  bound->ir = model.ir;
  bound->rewritten_by = model.rewritten_by;
  bound->domains = model.domains;
  const auto& nodes = model.graphs.front().nodes;
  bound->flat = std::any_of(nodes.begin(), nodes.end(), [](const GraphNode& n) {
    return n.domain.empty() && (n.op_type == "If" || n.op_type == "Loop" || n.op_type == "Scan");
  });
  const auto add = [&](const std::string& name, ValueKind kind, DType dtype, std::vector<std::int64_t> sizes) {
    TapeValue v;
    v.name = name;
    v.kind = kind;
    v.dtype = dtype;
    v.sizes = std::move(sizes);
    return tape.add_value(std::move(v));
  };
  for (const auto& [id, t] : bound->graph.initializers)
    tape.parameters.push_back(add(t.name, ValueKind::parameter, t.dtype, t.sizes));
  for (const GraphValueId id : bound->graph.inputs) {
    const GraphValue& v = bound->graph.values[static_cast<std::size_t>(id)];
    tape.inputs.push_back(add(v.name, ValueKind::user_input, v.dtype.value_or(DType::float32),
                              evaluate(v, symbols).value_or(std::vector<std::int64_t>{})));
  }
  tape.graph = std::move(bound);
}

}  // namespace

Result<DimBinding> bind(const Model& model, const TrainingSetup& setup) {
  return catching([&] {
    if (model.graphs.empty()) fail_input("the model has no graph", model.path);
    return bind_dims(model, setup);
  });
}

Result<Tape> lower(const Model& model, const DimBinding& dims, const TrainingSetup& setup) {
  return catching([&] {
    Tape tape;
    for (const std::string& w : model.warnings) tape.notes.push_back({"MP001", w, Evidence::assumed, About::program});
    note_export(model, setup, tape.notes);
    tape.notes.insert(tape.notes.end(), dims.notes.begin(), dims.notes.end());
    if (runs_nodes(setup.runtime) && (model.exported || model.recorded))
      fail(ErrorKind::input, fmt::format("ONNX Runtime runs ONNX files, and this is {}", model.format), model.path,
           "export the model with torch.onnx.export and give that file");
    if (model.recorded) {
      const auto batch = dims.sizes.find("batch");
      Tape recorded = recording::tape_of(model.recorded, batch == dims.sizes.end() ? 0 : batch->second, setup);
      recorded.notes.insert(recorded.notes.begin(), tape.notes.begin(), tape.notes.end());
      recorded.dims = dims.bound;
      return recorded;
    }
    tape.dims = dims.bound;
    // What the file fixes it fixes in its numbers, too: `resize` is the next arrow.
    Symbols sizes = dims.sizes;
    for (const auto& [name, size] : fixed_sizes(model.graphs.front())) sizes.insert_or_assign(name, size);
    if (runs_nodes(setup.runtime)) {
      bind_graph(model, sizes, tape);
      return tape;
    }
    if (model.exported)
      lower_program(model, sizes, setup, tape);
    else
      lower_onnx(model, sizes, setup, tape);
    tape.exported.inplace_modules = listed_in(model, "memplan.inplace");
    if (model.metadata.count("memplan.exported") > 0) {  // the file lists what the setup then checkpoints
      tape.exported.checkpoints_seen = true;
      for (Call& call : tape.calls) call.checkpoint = -1;
    }
    if (model.metadata.count("memplan.frozen"))
      tape.exported.tells_frozen = true, freeze_listed(tape, listed_in(model, "memplan.frozen"));
    else
      note(tape.notes, {{}, "every parameter is trained that no flag freezes", Evidence::chosen, About::weights});
    verify(tape, "lower");
    check_positions(tape);
    return tape;
  });
}

}  // namespace memplan
