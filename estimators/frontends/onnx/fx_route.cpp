#include "estimators/frontends/onnx/fx_route.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_set>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/frontends/onnx/fx_rewrites.h"
#include "estimators/frontends/onnx/regions.h"
#include "estimators/frontends/onnx/scopes.h"
#include "estimators/frontends/onnx/single_node.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

namespace {

/// What an FX name stands for.
struct Binding {
  ValueId value;
  std::int32_t call = -1;  ///< the call whose outputs operator.getitem takes
};

class FxRoute {
 public:
  FxRoute(const Graph& graph, const FxProgram& program, const TrainingSetup& setup, Values& values, Tape& tape)
      : graph_(graph), setup_(setup), values_(values), tape_(tape), scopes_(tape), program_(program) {
    bindings_.resize(program_.names.size());
    for (std::size_t i = 0; i < program_.names.size(); ++i) bindings_[i].value = values.of_name(program_.names[i]);
    for (const SignatureLine& line : values.signature().outputs)
      if (line.kind == "USER_OUTPUT" || line.kind == "LOSS_OUTPUT") user_outputs_.push_back(line.name);
    if (user_outputs_.size() != graph.outputs.size()) user_outputs_.clear();
    tape.calls.reserve(program_.groups.size());
    tape.values.reserve(tape.values.size() + program_.groups.size() + 16);
  }

  void run() {
    for (const FxGroup& group : program_.groups) {
      std::string source;
      const std::int32_t scope = scopes_.enter(graph_.nodes[static_cast<std::size_t>(group.nodes.back())], source);
      if (group.name < 0)
        emit_foreign(group, scope);
      else if (group.text.target == "operator.getitem")
        getitem(group, scope, source);
      else if (!has_no_effect(group.text.target))
        emit(group, scope, std::move(source));
      write_in_place(tape_, regions_.size(), scopes_.written());
      regions_.resize(tape_.calls.size(), scopes_.region());
    }
    if (setup_.mode == Mode::training) settle_regions(tape_, regions_, scopes_.without_gradients());
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      ValueId v;
      if (!user_outputs_.empty())
        if (const std::int32_t n = program_.find(user_outputs_[i]); n >= 0)
          v = bindings_[static_cast<std::size_t>(n)].value;
      if (!v.valid()) v = values_.of(graph_.outputs[i]);
      if (!v.valid())
        fail_input(fmt::format("the output '{}' could not be traced to a call",
                               graph_.values[static_cast<std::size_t>(graph_.outputs[i])].name),
                   graph_.values[static_cast<std::size_t>(graph_.outputs[i])].name,
                   "please report this with the model");
      tape_.outputs.push_back(v);
    }
    if (!tape_.calls.empty()) tape_.recovered.push_back({"ATen calls", "the exporter's fx_node text", from_text_});
    for (const auto& [key, count] : rewritten_) tape_.recovered.push_back({key.first, key.second, count});
  }

 private:
  const GraphValue& graph_value(GraphValueId id) const { return graph_.values[static_cast<std::size_t>(id)]; }

  ValueId new_value(std::string_view name) {
    TapeValue v;
    v.name = name;
    return tape_.add_value(std::move(v));
  }

  void bind(std::int32_t name, ValueId value) { bindings_[static_cast<std::size_t>(name)].value = value; }

  void emit_foreign(const FxGroup& group, std::int32_t scope) {
    for (std::int32_t n : group.nodes) {
      const GraphNode& node = graph_.nodes[static_cast<std::size_t>(n)];
      if (node.op_type == "Constant") continue;
      const std::size_t first = tape_.calls.size();
      lower_single_node(node, setup_, values_, tape_);
      for (std::size_t i = first; i < tape_.calls.size(); ++i) tape_.calls[i].scope = scope;
      for (GraphValueId id : node.outputs)
        if (id >= 0)
          if (const std::int32_t name = program_.find(graph_value(id).name); name >= 0) bind(name, values_.of(id));
    }
  }

  /// %y = operator.getitem(%x, i): the i-th output of the call that made %x.
  void getitem(const FxGroup& group, std::int32_t scope, const std::string& source) {
    const auto& args = group.text.args;
    const auto* from = args.size() == 2 ? std::get_if<ValueId>(&args[0].value) : nullptr;
    const auto* index = args.size() == 2 ? std::get_if<std::int64_t>(&args[1].value) : nullptr;
    const std::int32_t call = from ? bindings_[static_cast<std::size_t>(from->index)].call : -1;
    if (call < 0 || !index || *index < 0 || *index > 65536) return emit(group, scope, source);
    auto& outputs = tape_.calls[static_cast<std::size_t>(call)].outputs;
    if (outputs.size() <= static_cast<std::size_t>(*index)) outputs.resize(static_cast<std::size_t>(*index) + 1);
    if (!outputs[static_cast<std::size_t>(*index)].valid())
      outputs[static_cast<std::size_t>(*index)] = new_value(group.text.name);
    bind(group.name, outputs[static_cast<std::size_t>(*index)]);
    if (const std::int32_t k = getitem_number(group.text.name); k >= next_getitem_) next_getitem_ = k + 1;
    for (std::int32_t n : group.nodes)
      for (GraphValueId id : graph_.nodes[static_cast<std::size_t>(n)].outputs)
        if (id >= 0 && n == group.nodes.back()) values_.set(id, bindings_[static_cast<std::size_t>(group.name)].value);
  }

  void emit(const FxGroup& group, std::int32_t scope, std::string source) {
    Call call;
    call.op = op_of_target(group.text.target);
    call.args = group.text.args;
    for (const auto& [key, value] : group.text.kwargs)
      if (key != "device" && key != "pin_memory" && key != "layout") call.kwargs.emplace_back(key, value);
    call.scope = scope, call.source = std::move(source), call.function = scopes_.function();
    if (!resolve(group, call)) return;  // lowered by its ONNX ops instead
    if (scope >= 0)
      for (const Arg& a : call.args)
        if (auto* v = std::get_if<ValueId>(&a.value))
          values_.use_in_scope(*v, tape_.scopes[static_cast<std::size_t>(scope)].path);
    const int outputs = outputs_of(call.op);
    const std::string before = call.op;
    tape_.exported.in_training = tape_.exported.in_training || trains(call);
    rewrite(call, setup_);
    if (call.op != before) ++rewritten_[{call.op, before}];
    ++from_text_;
    bind_outputs(group, outputs, std::move(call));
  }

  /// Turns FX names into values of the tape. False when the group had to be lowered another way.
  bool resolve(const FxGroup& group, Call& call) {
    std::vector<std::int32_t> unknown;
    for_each_value(call, [&](ValueId id) {
      if (!bindings_[static_cast<std::size_t>(id.index)].value.valid() &&
          std::find(unknown.begin(), unknown.end(), id.index) == unknown.end())
        unknown.push_back(id.index);
    });
    if (!unknown.empty() && !find_unknown(group, call, unknown)) {
      emit_foreign(group, call.scope);
      bind_last(group);
      return false;
    }
    replace_values(call, [&](ValueId id) {
      const auto n = numbers_.find(id.index);
      return n != numbers_.end() ? Arg{n->second} : Arg{bindings_[static_cast<std::size_t>(id.index)].value};
    });
    return true;
  }

  /// Names that no call of the file makes: an optimizer removed or merged their nodes. What the group's ONNX nodes
  /// really read stands in for them; parameters that it folded away get the sizes that the op implies.
  bool find_unknown(const FxGroup& group, const Call& call, const std::vector<std::int32_t>& unknown) {
    std::unordered_set<std::int32_t> taken;
    for_each_value(call, [&](ValueId id) {
      if (const ValueId v = bindings_[static_cast<std::size_t>(id.index)].value; v.valid()) taken.insert(v.index);
    });
    std::unordered_set<GraphValueId> inside;
    std::vector<GraphValueId> read, stored;
    for (std::int32_t n : group.nodes) {
      for (GraphValueId id : graph_.nodes[static_cast<std::size_t>(n)].inputs) {
        if (id < 0 || inside.count(id)) continue;
        inside.insert(id);
        if (graph_.initializers.count(id)) {
          if (!taken.count(values_.of(id, true).index)) stored.push_back(id);
        } else if (const ValueId v = values_.of(id); v.valid() && !taken.count(v.index)) {
          read.push_back(id);
        }
      }
      for (GraphValueId id : graph_.nodes[static_cast<std::size_t>(n)].outputs) inside.insert(id);
    }
    auto next_read = read.begin();
    auto next_stored = stored.begin();
    for (std::int32_t name : unknown) {
      const std::string_view text = program_.names[static_cast<std::size_t>(name)];
      if (const SignatureLine* line = values_.missing(text)) {
        // Equal initializers are merged: the tensor read tells the sizes. Whole numbers are the nodes' own.
        while (line->kind == "PARAMETER" && next_stored != stored.end() &&
               !is_floating(graph_.initializers.at(*next_stored).dtype))
          ++next_stored;
        if (next_stored != stored.end()) {
          const StoredTensor& t = graph_.initializers.at(*next_stored++);
          bind(name, values_.make_missing(text, t.dtype, t.sizes));
          continue;
        }
        const auto sizes = implied_sizes(call, name);
        if (!sizes) return false;
        bind(name, values_.make_missing(text, DType::float32, *sizes));
        continue;
      }
      if (next_read != read.end()) {
        bind(name, values_.of(*next_read++));
        continue;
      }
      if (next_stored != stored.end()) {
        const StoredTensor& t = graph_.initializers.at(*next_stored);
        if (t.integers.size() == 1 && t.sizes.size() <= 1)
          numbers_[name] = t.integers[0];
        else
          bind(name, values_.of(*next_stored));
        ++next_stored;
        continue;
      }
      return false;
    }
    return true;
  }

  /// Sizes of a parameter that was folded away, from the other arguments of the call that takes it.
  std::optional<std::vector<std::int64_t>> implied_sizes(const Call& call, std::int32_t name) const {
    auto sizes_of = [&](std::size_t i) -> const std::vector<std::int64_t>* {
      if (i >= call.args.size()) return nullptr;
      const auto* id = std::get_if<ValueId>(&call.args[i].value);
      if (!id) return nullptr;
      const ValueId v = bindings_[static_cast<std::size_t>(id->index)].value;
      if (!v.valid()) return nullptr;
      const TapeValue& t = tape_.values[static_cast<std::size_t>(v.index)];
      return t.kind == ValueKind::computed ? nullptr : &t.sizes;
    };
    std::size_t at = 0;
    while (at < call.args.size() && !(std::holds_alternative<ValueId>(call.args[at].value) &&
                                      std::get<ValueId>(call.args[at].value).index == name))
      ++at;
    return sizes_of_parameter(call, at, sizes_of);
  }

  void bind_outputs(const FxGroup& group, int count, Call call) {
    const auto index = static_cast<std::int32_t>(tape_.calls.size());
    const GraphNode& last = graph_.nodes[static_cast<std::size_t>(group.nodes.back())];
    Binding& own = bindings_[static_cast<std::size_t>(group.name)];
    if (count == 1 && !program_.is_list[static_cast<std::size_t>(group.name)] && bind_list(group, call)) {
      own.call = index;
    } else if (count > 1) {
      // Elements without a getitem of their own appear as ONNX outputs named "getitem_7". Tracing makes a getitem for
      // every output of a call at once, so their numbers are consecutive.
      own.call = index;
      std::vector<std::pair<std::int32_t, GraphValueId>> named;
      for (std::int32_t n : group.nodes)
        for (GraphValueId id : graph_.nodes[static_cast<std::size_t>(n)].outputs)
          if (id >= 0)
            if (const std::int32_t k = getitem_number(graph_value(id).name); k >= 0) named.emplace_back(k, id);
      if (named.empty()) {  // renamed by the user, or unused
        std::int32_t k = next_getitem_;
        for (GraphValueId id : last.outputs)
          if (id >= 0) named.emplace_back(k++, id);
      }
      const std::int32_t first =
          certain_ ? next_getitem_ : named.front().first - position_of(group, named.front().second);
      certain_ = true;
      for (const auto& [k, id] : named) {
        std::int32_t i = k - first;
        if (i < 0 || i >= count) i = position_of(group, id);
        if (i >= count) continue;
        next_getitem_ = k - i + count;
        if (call.outputs.size() <= static_cast<std::size_t>(i)) call.outputs.resize(static_cast<std::size_t>(i) + 1);
        const ValueId v = new_value(graph_value(id).name);
        call.outputs[static_cast<std::size_t>(i)] = v;
        values_.set(id, v);
        if (const std::int32_t name = program_.find(graph_value(id).name); name >= 0) bind(name, v);
      }
      bind_signature_outputs(group);
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        // An output that nothing uses is still made, and may have a name in the Python program.
        if (call.outputs.size() <= i) call.outputs.resize(i + 1);
        if (!call.outputs[i].valid()) call.outputs[i] = new_value(fmt::format("{}.{}", group.text.name, i));
      }
    } else if (program_.is_list[static_cast<std::size_t>(group.name)]) {
      own.call = index;
      certain_ = false;  // it is not known how many elements the list has
    } else {
      const ValueId v = new_value(group.text.name);
      call.outputs.push_back(v);
      bind_name_and_nodes(group, v);
    }
    add_known_shapes(group, call);
    tape_.calls.push_back(std::move(call));
  }

  /// A list whose getitems the exporter merged into the call's own ONNX nodes (unbind as Slice and Squeeze): elements
  /// are ONNX values named "getitem_7". False when there are none.
  bool bind_list(const FxGroup& group, Call& call) {
    std::vector<std::pair<std::int32_t, GraphValueId>> named;
    for (std::int32_t n : group.nodes)
      for (GraphValueId id : graph_.nodes[static_cast<std::size_t>(n)].outputs)
        if (id >= 0)
          if (const std::int32_t k = getitem_number(graph_value(id).name); k >= 0) named.emplace_back(k, id);
    if (named.empty()) return false;
    // Numbers are consecutive per call; without a certain start the first one seen counts as the first element.
    const std::int32_t first = certain_ && next_getitem_ <= named.front().first ? next_getitem_ : named.front().first;
    for (const auto& [k, id] : named) {
      const auto i = static_cast<std::size_t>(std::max(k - first, 0));
      if (i > 65536) continue;
      if (call.outputs.size() <= i) call.outputs.resize(i + 1);
      const ValueId v = new_value(graph_value(id).name);
      call.outputs[i] = v;
      values_.set(id, v);
      next_getitem_ = k + 1;
      if (const std::int32_t name = program_.find(graph_value(id).name); name >= 0) bind(name, v);
    }
    certain_ = false;  // it is not known how many elements the list has
    return true;
  }

  /// The user may have renamed the model's outputs, so that "getitem_7" is only known from the signature.
  void bind_signature_outputs(const FxGroup& group) {
    for (std::size_t i = 0; i < user_outputs_.size(); ++i) {
      const std::int32_t name = program_.find(user_outputs_[i]);
      if (name < 0 || bindings_[static_cast<std::size_t>(name)].value.valid()) continue;
      for (GraphValueId id : graph_.nodes[static_cast<std::size_t>(group.nodes.back())].outputs)
        if (id >= 0 && id == graph_.outputs[i] && values_.of(id).valid()) bind(name, values_.of(id));
    }
  }

  void bind_name_and_nodes(const FxGroup& group, ValueId v) {
    bind(group.name, v);
    const GraphNode& last = graph_.nodes[static_cast<std::size_t>(group.nodes.back())];
    for (GraphValueId id : last.outputs) {
      if (id < 0) continue;
      values_.set(id, v);
      // An exporter rule that returns its input renames the value of the call before it.
      if (const std::int32_t name = program_.find(graph_value(id).name);
          name >= 0 && !bindings_[static_cast<std::size_t>(name)].value.valid())
        bind(name, v);
      break;
    }
    for (std::int32_t n : group.nodes)
      for (GraphValueId id : graph_.nodes[static_cast<std::size_t>(n)].outputs)
        if (id >= 0 && graph_value(id).name == group.text.name) values_.set(id, v);
  }

  /// Which output of the ATen op an ONNX value is, when the numbering does not tell.
  std::int32_t position_of(const FxGroup& group, GraphValueId id) const {
    for (std::int32_t n : group.nodes) {
      const GraphNode& node = graph_.nodes[static_cast<std::size_t>(n)];
      for (std::size_t i = 0; i < node.outputs.size(); ++i)
        if (node.outputs[i] == id)
          return node.op_type == "ArgMax" || node.op_type == "ArgMin" ? 1 : static_cast<std::int32_t>(i);
    }
    return 0;
  }

  void bind_last(const FxGroup& group) {
    for (GraphValueId id : graph_.nodes[static_cast<std::size_t>(group.nodes.back())].outputs)
      if (id >= 0) {
        if (values_.of(id).valid()) bind(group.name, values_.of(id));
        return;
      }
  }

  void add_known_shapes(const FxGroup& group, Call& call) {
    if (call.outputs.size() != 1) return;
    for (auto n = group.nodes.rbegin(); n != group.nodes.rend(); ++n)
      for (GraphValueId id : graph_.nodes[static_cast<std::size_t>(*n)].outputs) {
        if (id < 0 || values_.of(id) != call.outputs[0]) continue;
        const GraphValue& v = graph_value(id);
        if (auto sizes = evaluate(v, values_.symbols()); sizes && v.dtype)
          call.known_shapes.emplace_back(*v.dtype, std::move(*sizes));
        return;
      }
  }

  static std::int32_t getitem_number(std::string_view name) {
    if (name == "getitem") return 0;
    if (name.substr(0, 8) != "getitem_") return -1;
    std::int32_t n = 0;
    for (char c : name.substr(8)) {
      if (c < '0' || c > '9' || n > 100'000'000) return -1;
      n = n * 10 + (c - '0');
    }
    return n;
  }

  const Graph& graph_;
  const TrainingSetup& setup_;
  Values& values_;
  Tape& tape_;
  ScopeTracker scopes_;
  const FxProgram& program_;
  std::vector<Binding> bindings_;
  std::vector<std::int32_t> regions_;  ///< by call
  std::vector<std::string_view> user_outputs_;
  std::map<std::int32_t, std::int64_t> numbers_;  ///< names that stand for a number folded by an optimizer
  std::map<std::pair<std::string, std::string>, std::int64_t> rewritten_;
  std::int64_t from_text_ = 0;
  std::int32_t next_getitem_ = 0;  ///< number of the next getitem that tracing would make
  bool certain_ = true;
};

}  // namespace

void lower_fx(const Graph& graph, const FxProgram& program, const TrainingSetup& setup, Values& values, Tape& tape) {
  FxRoute(graph, program, setup, values, tape).run();
}

}  // namespace memplan::onnx_format
