#include "estimators/frontends/torch_export/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "estimators/base/error.h"
#include "estimators/frontends/onnx/fx_rewrites.h"
#include "estimators/frontends/onnx/fx_text.h"
#include "estimators/frontends/onnx/scopes.h"
#include "estimators/frontends/torch_export/archive_casts.h"
#include "estimators/frontends/torch_export/own_checkpoints.h"
#include "estimators/frontends/torch_export/rewrites.h"
#include "estimators/frontends/torch_export/signature.h"
#include "estimators/frontends/torch_export/subgraphs.h"
#include "estimators/setup/field.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/differentiable.h"
#include "estimators/tape/made_tensor.h"
#include "estimators/tape/uses.h"

namespace memplan::torch_export {

namespace {

bool is_cast(std::string_view op) {
  return op == "aten::to.dtype" || op == "aten::type_as" || op == "memplan::to_default_dtype";
}

/// What holds for every call of a region.
struct Region {
  bool no_autocast = false;
  std::int32_t checkpoint = -1;  ///< Call::checkpoint
};

class Lowering {
 public:
  Lowering(const Program& program, const Symbols& symbols, const TrainingSetup& setup, Tape& tape)
      : program_(program),
        symbols_(symbols),
        setup_(setup),
        tape_(tape),
        scopes_(tape),
        signature_(program, symbols, tape),
        casts_(tape),
        gradients_(tape),
        bound_(program.names.size()) {}

  void run() {
    for (const OutputSpec& out : program_.outputs)
      if (out.kind == OutputKind::joint)
        fail_input("the archive holds a joint forward and backward graph, which memplan does not read", {},
                   "save the program that torch.export.export returns");
    for (const Subgraph& g : program_.graphs)
      for (const Node& n : g.nodes) tape_.exported.keeps_casts |= !program_.decomposed && !n.function.empty();
    signature_.make_inputs();
    for (std::size_t i = 0; i < program_.inputs.size(); ++i)
      if (program_.inputs[i].name >= 0) bound_[static_cast<std::size_t>(program_.inputs[i].name)] = signature_.input(i);
    body(program_.graphs.front(), {});
    for (const OutputSpec& out : program_.outputs) {
      if (out.kind == OutputKind::user) {
        if (std::holds_alternative<ValueId>(out.value.value))
          if (const Arg v = resolved(out.value); std::holds_alternative<ValueId>(v.value))
            tape_.outputs.push_back(casts_.returned(std::get<ValueId>(v.value)));
      } else if (out.kind == OutputKind::buffer_mutation) {
        mutate(out);
      }
    }
    if (tape_.outputs.empty())
      fail_input("the program returns no tensor, so there is nothing to train", {},
                 "export a module whose forward returns its output");
    tape_.recovered.push_back({"ATen calls",
                               program_.decomposed ? "the archive's core ATen graph" : "the archive's training IR",
                               from_file_});
    for (const auto& [key, count] : rewritten_)
      if (key.first == "memplan::to_default_dtype")
        tape_.recovered.push_back({key.first, key.second, count, Evidence::told_by_source_line, About::cast});
      else
        tape_.recovered.push_back({key.first, key.second, count});
    if (frozen_statistics_ > 0 && setup_.mode == Mode::training)
      tape_.notes.push_back({"MP008",
                             fmt::format("the program was exported in eval mode: {} batch norms and dropouts "
                                         "run as in inference; export module.train() for a training estimate",
                                         frozen_statistics_),
                             Evidence::proven_by_file, About::mode});
  }

 private:
  const Name& name_of(NameId id) const { return program_.names[static_cast<std::size_t>(id)]; }

  /// Names to values of the tape or to numbers.
  Arg resolved(const Arg& arg) const {
    if (const auto* list = std::get_if<Arg::List>(&arg.value)) {
      Arg::List out;
      out.reserve(list->size());
      for (const Arg& a : *list) out.push_back(resolved(a));
      return {std::move(out)};
    }
    const auto* id = std::get_if<ValueId>(&arg.value);
    if (!id) return arg;
    const Arg& bound = bound_[static_cast<std::size_t>(id->index)];
    if (!bound.is_none()) return bound;
    const Name& name = name_of(id->index);
    if (name.number)
      if (const auto n = evaluate(*name.number, symbols_)) return {*n};
    fail_input(fmt::format("the graph uses '{}' before anything made it", name.text), {},
               "the file is damaged, or please report it with the model");
  }

  std::optional<std::pair<DType, std::vector<std::int64_t>>> shape_of(NameId id) const {
    if (id < 0 || !name_of(id).tensor) return std::nullopt;
    const TensorMeta& t = *name_of(id).tensor;
    std::vector<std::int64_t> sizes;
    for (const Dim& d : t.sizes) {
      const auto n = evaluate(d, symbols_);
      if (!n) return std::nullopt;
      sizes.push_back(*n);
    }
    return std::pair(t.dtype, std::move(sizes));
  }

  void body(const Subgraph& g, const Region& region) {
    const std::vector<std::int32_t> own = checkpointed_nodes(g, checkpoints_);
    for (std::size_t i = 0; i < g.nodes.size(); ++i) {
      const Node& node = g.nodes[i];
      if (marks_checkpoint(node)) continue;
      Region here = region;
      if (own[i] >= 0) here.checkpoint = own[i];
      std::string source;
      const std::int32_t scope =
          node.paths.empty() ? scopes_.current() : scopes_.enter(node.paths, node.classes, node.lines, source);
      if (node.target.rfind("torch.ops.higher_order.", 0) == 0)
        higher_order(node, scope, std::move(source), here);
      else if (!onnx_format::has_no_effect(node.target))
        emit(node, scope, std::move(source), here);
    }
  }

  void add_inputs(const Node& node, Call& call) const {
    bool positional = true;  // arguments by position come first
    for (const NodeInput& in : node.inputs) {
      ArgumentKind kind = in.kind;
      if (kind == ArgumentKind::unknown)
        kind = positional && !is_keyword_only(in.name) ? ArgumentKind::positional : ArgumentKind::keyword;
      positional = positional && kind == ArgumentKind::positional;
      if (kind == ArgumentKind::positional)
        call.args.push_back(resolved(in.value));
      else if (in.name != "device" && in.name != "pin_memory" && in.name != "layout")
        call.kwargs.emplace_back(in.name, resolved(in.value));
    }
  }

  void emit(const Node& node, std::int32_t scope, std::string source, const Region& region) {
    Call call;
    call.op = onnx_format::op_of_target(node.target);
    call.scope = scope;
    call.source = std::move(source);
    call.no_autocast = region.no_autocast;
    call.checkpoint = region.checkpoint;
    call.function = node.paths.empty() ? -1 : scopes_.function();
    add_inputs(node, call);
    replace_values(call, [&](ValueId id) { return Arg{casts_.meant(id, scope, call.source)}; });
    if (scope >= 0)
      for (const Arg& a : call.args)
        if (const auto* v = std::get_if<ValueId>(&a.value))
          signature_.use_in_scope(*v, tape_.scopes[static_cast<std::size_t>(scope)].path);
    if (is_frozen(call)) ++frozen_statistics_;
    tape_.exported.in_training = tape_.exported.in_training || onnx_format::trains(call);
    const std::string before = call.op;
    // The training IR keeps dropouts, so a copy in it is a copy.
    if (program_.decomposed || call.op != "aten::clone") onnx_format::rewrite(call, setup_);
    Types types;
    if (!node.inputs.empty())
      if (const auto* id = std::get_if<ValueId>(&node.inputs[0].value.value); id && name_of(id->index).tensor)
        types.input = name_of(id->index).tensor->dtype;
    if (!node.outputs.empty() && node.outputs[0] >= 0 && name_of(node.outputs[0]).tensor)
      types.output = name_of(node.outputs[0]).tensor->dtype;
    const bool converts_nothing = types.input && types.input == types.output;
    make_lifted(call, tape_);
    Fate fate = rewrite_exported(call, types, setup_, tape_, node.function, casts_);
    if (fate == Fate::pass_input && casts_.moves_constant(call, node)) {
      make_move(call);
      fate = Fate::keep;
    }
    if (fate != Fate::keep) {
      if (fate == Fate::pass_input && converts_nothing)
        memplan::note(tape_.notes, {{},
                                    "conversions that do nothing in the file and that no line or class asks for",
                                    Evidence::told_by_source_line,
                                    About::cast});
      if (!node.outputs.empty() && node.outputs[0] >= 0)
        bound_[static_cast<std::size_t>(node.outputs[0])] = call.args.at(0);
      return;
    }
    if (call.op != before) ++rewritten_[{call.op, before}];
    ++from_file_;
    casts_.narrow_type(call);
    bind_outputs(node, call);
    gradients_.follow(call);
    casts_.follow(call);
    if (converts_nothing && is_cast(call.op)) casts_.made(call);
    tape_.calls.push_back(std::move(call));
  }

  void bind_outputs(const Node& node, Call& call) {
    bool all = true;
    for (NameId id : node.outputs) {
      TapeValue v;
      v.name = id < 0 ? std::string() : name_of(id).text;
      const ValueId value = tape_.add_value(std::move(v));
      call.outputs.push_back(value);
      if (id >= 0) bound_[static_cast<std::size_t>(id)] = {value};
      if (id >= 0 && !name_of(id).tensor) numbers_.insert(value.index);
      if (auto shape = shape_of(id))
        call.known_shapes.push_back(std::move(*shape));
      else
        all = false;
    }
    if (!all) call.known_shapes.clear();
    if (call.op == "aten::batch_norm") call.outputs.resize(1);  // the decomposed forms also return statistics
  }

  /// Functional graphs return the new value of a buffer; the module had changed it in place.
  void mutate(const OutputSpec& out) {
    const Arg v = resolved(out.value);
    const auto* id = std::get_if<ValueId>(&v.value);
    if (!id) return;
    for (Call& call : tape_.calls) {
      if (call.outputs.size() != 1 || call.outputs[0] != *id || call.args.empty()) continue;
      const auto* self = std::get_if<ValueId>(&call.args[0].value);
      if (!self || tape_.values[static_cast<std::size_t>(self->index)].name != out.target ||
          call.op.rfind("aten::", 0) != 0)
        continue;
      const std::size_t dot = std::min(call.op.find('.'), call.op.size());
      const std::string_view base = std::string_view(call.op).substr(6, dot - 6);
      if (base == "add" || base == "sub" || base == "mul" || base == "div") call.op.insert(dot, "_");
    }
  }

  // --- higher-order ops -------------------------------------------------------------------------------------------

  void higher_order(const Node& node, std::int32_t scope, std::string source, Region region) {
    const std::string_view op = std::string_view(node.target).substr(23);
    auto is = [&](std::string_view name) { return op.substr(0, name.size()) == name; };
    std::vector<Arg> args;
    for (const NodeInput& in : node.inputs) args.push_back(resolved(in.value));
    if (is("wrap_with_set_grad_enabled") && node.graphs.size() == 1 && !args.empty()) {
      with_gradients_set(node, args, scope, region);
    } else if (is("wrap_with_autocast") && node.graphs.size() == 1 && args.size() >= 4) {
      // device_type, dtype, enabled, cache_enabled, then the operands.
      const bool* enabled = std::get_if<bool>(&args[2].value);
      if (enabled && !*enabled)
        region.no_autocast = true;
      else
        note("MP011",
             fmt::format("the model switches autocast on by itself ({}); memplan follows {} there", path_of(scope),
                         setting(Field::precision)),
             About::autocast);
      args.erase(args.begin(), args.begin() + 4);
      inlined(node, args, region, scope, false);
    } else if ((is("tag_activation_checkpoint") || is("wrap_activation_checkpoint")) && node.graphs.size() == 1) {
      region.checkpoint = checkpoints_++;
      inlined(node, args, region, scope, false);
    } else if ((is("wrap") || is("hints_wrapper") || is("invoke_subgraph") || is("strict_mode")) &&
               node.graphs.size() == 1) {
      while (!args.empty() && std::holds_alternative<std::string>(args.front().value)) args.erase(args.begin());
      inlined(node, flat(args), region, scope, false);
    } else if (is("cond") && node.graphs.size() == 2 && !args.empty()) {
      cond(node, args, region, scope);
    } else {
      note("MP013",
           fmt::format("'{}' is counted by its inputs and outputs only; what it does inside is not modelled", op),
           About::op);
      Call call;
      call.op = "torch.ops.higher_order." + std::string(op);
      call.args = flat(args);
      call.scope = scope;
      call.source = std::move(source);
      call.unknown = true;
      bind_outputs(node, call);
      tape_.calls.push_back(std::move(call));
    }
  }

  void with_gradients_set(const Node& node, const std::vector<Arg>& args, std::int32_t scope, Region region) {
    const bool* enabled = std::get_if<bool>(&args[0].value);
    const bool again = is_reentrant_checkpoint(program_.graphs[static_cast<std::size_t>(node.graphs.front())]);
    const bool counted = again && gradients_.any_result_of(args);
    if (counted) region.checkpoint = checkpoints_++;
    // The exporter does not turn gradients on again behind a reentrant checkpoint.
    reentrant_ = reentrant_ || again;
    const bool no_grad = enabled && !*enabled && (again ? !counted : !reentrant_);
    inlined(node, {args.begin() + 1, args.end()}, region, scope, no_grad);
    Bytes results;
    for (NameId id : node.outputs)
      if (const auto shape = shape_of(id); shape && counted) results += bytes_of(shape->first, shape->second);
    if (counted) memplan::note(tape_.notes, reentrant_checkpoint(results));
  }

  void cond(const Node& node, std::vector<Arg> args, const Region& region, std::int32_t scope) {
    const bool* known = std::get_if<bool>(&args[0].value);
    std::size_t branch = 0;
    if (known) {
      branch = *known ? 0 : 1;
    } else {
      const auto shape = [&](NameId id) { return shape_of(id); };
      const auto made = [&](std::size_t i) {
        return made_bytes(program_.graphs[static_cast<std::size_t>(node.graphs[i])], shape);
      };
      if (made(1) > made(0)) branch = 1;
      note("MP014",
           fmt::format("torch.cond in '{}' runs one of two branches; the one that makes more bytes is counted",
                       path_of(scope)),
           About::branch);
    }
    args.erase(args.begin());
    inlined(node, flat(args), region, scope, false, branch);
  }

  void inlined(const Node& node, const std::vector<Arg>& args, const Region& region, std::int32_t scope, bool no_grad,
               std::size_t branch = 0) {
    const Subgraph& g = program_.graphs[static_cast<std::size_t>(node.graphs[branch])];
    if (g.inputs.size() != args.size())
      fail_input(
          fmt::format("'{}' passes {} values to a subgraph that takes {}", node.target, args.size(), g.inputs.size()),
          {}, "the file is damaged, or please report it with the model");
    for (std::size_t i = 0; i < args.size(); ++i)
      if (g.inputs[i] >= 0)
        bound_[static_cast<std::size_t>(g.inputs[i])] = no_grad ? detached(args[i], scope) : args[i];
    body(g, region);
    std::vector<Arg> results;
    for (const Arg& out : g.outputs) results.push_back(resolved(out));
    results = flat(results);
    if (results.size() < node.outputs.size())
      fail_input(fmt::format("'{}' returns fewer values than its node names", node.target));
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] >= 0) bound_[static_cast<std::size_t>(node.outputs[i])] = results[i];
  }

  /// With gradients off nothing is kept: the region works on values that want no gradient.
  Arg detached(const Arg& arg, std::int32_t scope) {
    const auto* id = std::get_if<ValueId>(&arg.value);
    if (!id) return arg;
    const TapeValue& from = tape_.values[static_cast<std::size_t>(id->index)];
    if (from.kind != ValueKind::computed && !from.requires_grad) return arg;
    if (numbers_.count(id->index)) return arg;
    TapeValue v;
    v.name = from.name;
    Call call;
    call.op = "aten::detach";
    call.args = {arg};
    call.scope = scope;
    call.outputs = {tape_.add_value(std::move(v))};
    tape_.calls.push_back(call);
    return {call.outputs[0]};
  }

  std::string path_of(std::int32_t scope) const {
    return scope < 0 ? std::string() : tape_.scopes[static_cast<std::size_t>(scope)].path;
  }

  void note(std::string code, std::string text, About about) {
    const auto same = [&](const Note& n) { return n.text == text; };
    if (std::none_of(tape_.notes.begin(), tape_.notes.end(), same))
      tape_.notes.push_back({std::move(code), std::move(text), Evidence::assumed, about});
  }

  const Program& program_;
  const Symbols& symbols_;
  const TrainingSetup& setup_;
  Tape& tape_;
  onnx_format::ScopeTracker scopes_;
  SignatureValues signature_;
  ArchiveCasts casts_;
  Differentiable gradients_;
  std::vector<Arg> bound_;  ///< by NameId: a value of the tape or a number; None = not made yet
  std::map<std::pair<std::string, std::string>, std::int64_t> rewritten_;
  std::set<std::int32_t> numbers_;  ///< values of the tape that are symbolic numbers
  std::int64_t from_file_ = 0, frozen_statistics_ = 0;
  std::int32_t checkpoints_ = 0;  ///< applications of torch.utils.checkpoint so far
  bool reentrant_ = false;        ///< one of them was reentrant
};

}  // namespace

void lower_program(const Program& program, const Symbols& symbols, const TrainingSetup& setup, Tape& tape) {
  Lowering(program, symbols, setup, tape).run();
}

}  // namespace memplan::torch_export
