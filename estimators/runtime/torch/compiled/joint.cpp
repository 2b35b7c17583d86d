#include "estimators/runtime/torch/compiled/joint.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "estimators/runtime/torch/aten/arguments.h"
#include "estimators/runtime/torch/compiled/op_table.h"
#include "estimators/runtime/torch/compiled/passes.h"
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan::compiled {

namespace {

class JointTrace {
 public:
  JointTrace(const Run& run, const Tape& tape, const Environment& env)
      : outer_(run), tape_(tape), env_(env), paper_(run.options, run.device), tracer_(paper_) {
    paper_.grad_mode = false;
    tracer_.autocast = run.autocast;
    tracer_.autocast_dtype = run.autocast_dtype;
    paper_.begin_op("trace");
    values_.resize(tape.values.size());
  }

  Joint run() {
    Joint joint;
    for (std::size_t i = 0; i < tape_.values.size(); ++i) take_in(static_cast<std::int32_t>(i), joint);
    for (std::size_t i = 0; i < tape_.calls.size(); ++i) trace(static_cast<std::int32_t>(i));
    Vars outputs;
    for (const ValueId id : tape_.outputs) {
      const Item& item = values_[static_cast<std::size_t>(id.index)];
      if (!item.var) continue;
      outputs.push_back(item.var);
      joint.outputs.push_back(id.index);
    }
    tracer_.backward(outputs);
    if (tracer_.seeds >= 0) tracer_.graph.at(tracer_.seeds).bytes = 8 * std::max(1, tracer_.random);
    joint.graph = simplify(std::move(tracer_.graph));
    joint.notes = joint.notes_in_layout = std::move(paper_.schedule.notes);
    for (Fact& f : tracer_.notes_as_laid) note(joint.notes, std::move(f));
    for (Fact& f : tracer_.notes_in_layout) note(joint.notes_in_layout, std::move(f));
    return joint;
  }

 private:
  /// Parameters, buffers and inputs; tied ones are one.
  void take_in(std::int32_t index, Joint& joint) {
    if (tape_.values[static_cast<std::size_t>(index)].kind == ValueKind::computed) return;
    const Value& v = env_.values[static_cast<std::size_t>(index)];
    Item& item = values_[static_cast<std::size_t>(index)];
    if (!v.is_tensor() || !v.tensor()) {
      item.constant = v;
      return;
    }
    const Tensor& t = v.tensor();
    const auto known = primals_.find(t.get());
    if (known != primals_.end()) {
      item.var = known->second;
      return;
    }
    if (t->on_host) {  // a number in a tensor's clothes
      item.var = tracer_.emit("scalar_tensor", {}, tape_.values[static_cast<std::size_t>(index)].name,
                              paper_.empty(t->sizes, t->dtype));
      return;
    }
    const bool input = tape_.values[static_cast<std::size_t>(index)].kind == ValueKind::user_input;
    item.var = tracer_.primal(t, outer_.grad_mode && t->requires_grad_leaf, !input);
    joint.primals.push_back(input ? Tensor() : t);
    joint.inputs.push_back(input ? index : -1);
    primals_.emplace(t.get(), item.var);
  }

  Item item_of(const Arg& arg) const {
    if (const auto* id = std::get_if<ValueId>(&arg.value)) return values_[static_cast<std::size_t>(id->index)];
    if (const auto* list = std::get_if<Arg::List>(&arg.value)) {
      Item item;
      item.is_list = true;
      for (const Arg& a : *list) item.list.push_back(item_of(a));
      return item;
    }
    Item item;
    item.constant = value_of(arg, [](ValueId) { return Value(); });
    return item;
  }

  void trace(std::int32_t index) {
    const Call& call = tape_.calls[static_cast<std::size_t>(index)];
    tracer_.call = index;
    const Row* row = call.unknown || call.own ? nullptr : paper_.profile.ops->find(call.op);
    if (!row) return guess_without_row(call);
    std::vector<Item> items;
    for (const Arg& a : call.args) items.push_back(item_of(a));
    if (items.size() > row->arguments.size()) items.resize(row->arguments.size());
    for (std::size_t i = items.size(); i < row->arguments.size(); ++i) {
      items.emplace_back();
      items.back().constant = row->defaults[i];
    }
    for (const auto& [name, a] : call.kwargs)
      for (std::size_t i = 0; i < row->arguments.size(); ++i)
        if (row->arguments[i] == name) items[i] = item_of(a);
    if (outer_.autocast && !call.no_autocast) cast(*row, items);
    const Items args(*row, std::move(items));
    bool tensors = false;
    for (const Item& item : args.all()) tensors = tensors || has_tensor(item);
    const auto& ops = compiled_ops();
    const auto found = ops.find(plain_name(call.op));
    if (found != ops.end()) {
      // What the eager row below takes though this one does not is a guess, as any op without a row here.
      const Result<Vars> results = catching([&] { return found->second(tracer_, args); });
      if (results) return bind(call, results.value());
      if (results.error().kind != ErrorKind::input) throw Failure(results.error());
    }
    const ValueList made = call_op(paper_, *row, args.values(), {});
    if (!made.empty() && !made[0].is_tensor() && !made[0].is_list()) {
      for (std::size_t o = 0; o < call.outputs.size() && o < made.size(); ++o)
        if (call.outputs[o].valid()) values_[static_cast<std::size_t>(call.outputs[o].index)].constant = made[o];
      return;
    }
    guess(call, args, made);
  }

  static bool has_tensor(const Item& item) {
    return item.var ||
           std::any_of(item.list.begin(), item.list.end(), [](const Item& i) { return static_cast<bool>(i.var); });
  }

  static std::string_view plain_name(std::string_view op) {
    if (const std::size_t space = op.find("::"); space != op.npos) op.remove_prefix(space + 2);
    op = op.substr(0, op.find('.'));
    if (op.size() > 2 && op.back() == '_' && op[op.size() - 2] != '_') op.remove_suffix(1);
    return op;
  }

  template <class F>
  static void each_var(std::vector<Item>& items, F f) {
    for (Item& item : items) {
      if (item.var) f(item.var);
      for (Item& i : item.list)
        if (i.var) f(i.var);
    }
  }

  /// Autocast's copies; no cache stands between the calls of a graph that is traced.
  void cast(const Row& row, std::vector<Item>& items) {
    const auto eligible = [](const Var& v) { return is_floating(v.t->dtype) && v.t->dtype != DType::float64; };
    const auto to = [&](DType dtype) {
      each_var(items, [&](Var& v) {
        if (eligible(v)) v = grad::convert(tracer_, v, dtype);
      });
    };
    DType widest = outer_.autocast_dtype;
    switch (row.autocast) {
      case Autocast::none:
        return;
      case Autocast::lower:
        return to(outer_.autocast_dtype);
      case Autocast::fp32:
        return to(DType::float32);
      case Autocast::promote:
        each_var(items, [&](Var& v) {
          if (eligible(v)) widest = promote(widest, v.t->dtype);
        });
        return to(widest);
      case Autocast::fp32_dtype_argument:
        for (std::size_t i = 0; i < row.arguments.size(); ++i)
          if (row.arguments[i] == "dtype" && items[i].none()) items[i].constant = Value(DType::float32);
        return;
    }
  }

  void bind(const Call& call, const Vars& results) {
    for (std::size_t o = 0; o < call.outputs.size(); ++o) {
      if (!call.outputs[o].valid()) continue;
      Item& item = values_[static_cast<std::size_t>(call.outputs[o].index)];
      item = {};
      if (call.outputs.size() == 1 && results.size() > 1 && makes_list(call)) {
        item.is_list = true;
        for (const Var& v : results) item.list.push_back({.var = v});
      } else if (o < results.size()) {
        item.var = results[o];
      }
    }
    write_back(call, results);
  }
  static bool makes_list(const Call& call) {
    const std::string_view name = plain_name(call.op);
    return name == "split" || name == "chunk" || name == "unbind" || name == "split_with_sizes";
  }
  /// What an op in place leaves: from here on the name of its first argument is the result's.
  void write_back(const Call& call, const Vars& results) {
    const std::string_view base = std::string_view(call.op).substr(0, call.op.find('.'));
    if (base.empty() || base.back() != '_' || base.substr(base.size() - 2) == "__" || results.empty() ||
        call.args.empty())
      return;
    if (const auto* id = std::get_if<ValueId>(&call.args[0].value))
      values_[static_cast<std::size_t>(id->index)].var = results[0];
  }

  /// An op that has no row here: a kernel that reads its inputs, and one for all gradients that reads what came in and
  /// out.
  void guess(const Call& call, const Items& args, ValueList made) {
    if (made.size() == 1 && made[0].is_list()) made = ValueList(made[0].list());
    Vars inputs;
    for (const Item& item : args.all()) {
      if (item.var) inputs.push_back(item.var);
      for (const Item& i : item.list)
        if (i.var) inputs.push_back(i.var);
    }
    TensorList results;
    for (const Value& v : made) results.push_back(v.is_tensor() ? v.tensor() : Tensor());
    note_guess(call.op, inputs, results);
    bind(call, guessed(inputs, results));
  }
  Vars guessed(const Vars& inputs, const TensorList& results) {
    const std::string which = std::to_string(tracer_.call);
    Vars made = tracer_.emit_several("guessed", inputs, which, results);
    const Vars out = made;
    return tracer_.record(inputs, std::move(made), [=](Tracer& t, const Vars& g) {
      Vars reads = inputs;
      for (const Vars* list : {&out, &g})
        for (const Var& v : *list)
          if (v) reads.push_back(v);
      TensorList gradients;
      for (const Var& v : inputs) gradients.push_back(v.wants() ? t.run.empty_like(v.t) : Tensor());
      return t.emit_several("guessed", reads, which + " backward", gradients);
    });
  }
  void guess_without_row(const Call& call) {
    Vars inputs;
    TensorList results;
    for (const Arg& a : call.args) {
      const Item item = item_of(a);
      if (item.var) inputs.push_back(item.var);
    }
    for (const auto& [dtype, sizes] : call.known_shapes) results.push_back(paper_.empty(Dims(sizes), dtype));
    note_guess(call.op, inputs, results);
    bind(call, guessed(inputs, results));
  }
  void note_guess(const std::string& op, const Vars& inputs, const TensorList& results) {
    std::int64_t bytes = 0;
    for (const Var& v : inputs)
      if (tracer_.graph.at(v.node).op->kind != Kind::input) bytes += v.t->bytes().count;
    for (const Tensor& t : results)
      if (t) bytes += t->bytes().count;
    // What is kept for a backward pass adds up; without one the calls come one after another.
    std::int64_t& all = tracer_.graph.guessed[op];
    all = outer_.grad_mode ? all + bytes : std::max(all, bytes);
  }

  const Run& outer_;
  const Tape& tape_;
  const Environment& env_;
  Run paper_;
  Tracer tracer_;
  std::vector<Item> values_;
  std::unordered_map<const TensorBody*, Var> primals_;
};

}  // namespace

Joint joint_graph(const Run& run, const Tape& tape, const Environment& env) { return JointTrace(run, tape, env).run(); }

}  // namespace memplan::compiled
