#include "estimators/runtime/torch/autograd/without_row.h"

#include <algorithm>

#include "estimators/runtime/torch/aten/arguments.h"
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

namespace {

void add_tensors(const Value& value, TensorList& out) {
  if (value.is_tensor() && value.tensor()) out.push_back(value.tensor());
  if (value.is_list())
    for (const Value& v : value.list()) add_tensors(v, out);
}

TensorList fresh_gradients(Run& r, const Node& n) {
  TensorList grads(n.next.size());
  for (std::size_t i = 0; i < grads.size(); ++i)
    if (n.wants(static_cast<int>(i))) grads[i] = r.empty(n.inputs[i].sizes, n.inputs[i].dtype);
  return grads;
}

void keep_recorded(Run& r, Node* node, const Kept& kept, const TensorList& inputs, const TensorList& outputs) {
  for (const std::int32_t i : kept.arguments)
    if (static_cast<std::size_t>(i) < inputs.size()) r.save(node, inputs[static_cast<std::size_t>(i)]);
  for (const std::int32_t i : kept.results)
    if (static_cast<std::size_t>(i) < outputs.size()) r.save_output(node, outputs[static_cast<std::size_t>(i)]);
  for (const auto& [dtype, sizes] : kept.made_inside) r.save(node, r.empty(Dims(sizes), dtype));
}

Value& at(std::vector<Value>& values, ValueId id) { return values[static_cast<std::size_t>(id.index)]; }

/// The calls of a stretch, with its names in `values`. They belong to the call that the stretch is.
void run_stretch(Run& r, const Tape& tape, std::vector<Value>& values, bool autocast) {
  for (const Call& call : tape.calls) {
    r.begin_op(call.op);
    std::vector<Value> args;
    std::vector<std::pair<std::string, Value>> kwargs;
    const auto value = [&](const Arg& a) { return value_of(a, [&](ValueId id) { return at(values, id); }); };
    for (const Arg& a : call.args) args.push_back(value(a));
    for (const auto& [name, a] : call.kwargs) kwargs.emplace_back(name, value(a));
    ScopedValue<bool> as_it_ran(r.autocast, autocast && !call.no_autocast);
    const Row* row = r.profile.ops->find(call.op);
    ValueList results = row ? call_op(r, *row, std::move(args), kwargs) : run_unknown(r, call, args, kwargs, true);
    args.clear();
    kwargs.clear();
    if (results.size() == 1 && results[0].is_list() && call.outputs.size() != 1) {
      ValueList inner = results[0].list();
      results = std::move(inner);
    }
    for (std::size_t o = 0; o < std::min(call.outputs.size(), results.size()); ++o)
      if (call.outputs[o].valid()) at(values, call.outputs[o]) = std::move(results[o]);
    results.clear();
    for (const ValueId id : call.releases) at(values, id) = Value();
  }
}

Tensor tensor_in(std::vector<Value>& values, ValueId id) {
  return id.valid() && at(values, id).is_tensor() ? at(values, id).tensor() : Tensor();
}

/// As much as the forward pass took once more, and the gradients beside its results.
TensorList run_again(Run& r, const OwnFunction& f, const Node& n, std::vector<Value> values, bool autocast) {
  for (std::size_t i = 0, k = 0; i < f.saved.size() && k < n.saved.size(); ++i)
    if (at(values, f.saved[i]).is_none()) at(values, f.saved[i]) = n.saved[k++];
  ScopedValue<bool> again(r.recomputing, true);
  run_stretch(r, f.forward.tape, values, autocast);
  return fresh_gradients(r, n);
}

TensorList run_backward(Run& r, const OwnFunction& f, const Node& n, const TensorList& grads, bool autocast) {
  const Tape& tape = f.backward.tape;
  if (f.backward.results.empty()) return fresh_gradients(r, n);
  std::vector<Value> values(tape.values.size());
  const std::size_t outputs = tape.inputs.size() - f.saved.size();
  for (std::size_t i = 0; i < outputs; ++i) {
    if (!tape.inputs[i].valid()) continue;
    const TapeValue& v = tape.values[static_cast<std::size_t>(tape.inputs[i].index)];
    // What nobody has sent a gradient to gets zeros (ctx.set_materialize_grads).
    at(values, tape.inputs[i]) = i < grads.size() && grads[i] ? grads[i] : r.empty(Dims(v.sizes), v.dtype);
  }
  for (std::size_t k = 0; k < f.saved.size() && k < n.saved.size(); ++k)
    at(values, tape.inputs[outputs + k]) = n.saved[k];
  run_stretch(r, tape, values, autocast);
  TensorList out(n.next.size());
  for (std::size_t i = 0; i < std::min(out.size(), f.backward.results.size()); ++i)
    out[i] = tensor_in(values, f.backward.results[i]);
  return out;
}

}  // namespace

ValueList run_unknown(Run& r, const Call& call, const std::vector<Value>& args,
                      const std::vector<std::pair<std::string, Value>>& kwargs, bool recorded) {
  TensorList inputs, outputs;
  for (const Value& a : args) add_tensors(a, inputs);
  for (const auto& [name, a] : kwargs) add_tensors(a, inputs);
  Bytes bound;
  for (const auto& [dtype, sizes] : call.known_shapes) outputs.push_back(r.empty(Dims(sizes), dtype));
  if (call.known_shapes.empty() && !inputs.empty())
    for (const ValueId id : call.outputs)
      outputs.push_back(id.valid() || !recorded ? r.empty_like(inputs[0]) : inputs[0]);
  for (const Tensor& t : outputs) bound += t->bytes();
  for (const Tensor& t : inputs) bound += t->bytes();
  // What was written to is an argument that has its history already.
  const bool writes = recorded && call.known_shapes.empty();
  Node* node =
      writes ? nullptr : r.record(inputs, outputs, [](Run& r, Node& n, TensorList&) { return fresh_gradients(r, n); });
  if (call.kept) {
    keep_recorded(r, node, *call.kept, inputs, outputs);
  } else if (!recorded) {
    for (const Tensor& t : inputs) r.save(node, t);
    for (const Tensor& t : outputs) r.save_output(node, t);
  }
  r.note(call.op, About::op, Evidence::assumed,
         recorded ? "its results and what autograd keeps of it were recorded; temporaries of its kernels are not known"
                  : "counted with its inputs and outputs kept for backward; its temporaries are not known",
         recorded ? Effect{Bytes(), bound} : Effect{bound, bound});
  ValueList values;
  for (const Tensor& t : outputs) values.emplace_back(t);
  return values;
}

ValueList run_own_function(Run& r, const std::shared_ptr<const OwnFunction>& f, const std::vector<Value>& args) {
  std::vector<Value> values(f->forward.tape.values.size());
  TensorList inputs;
  for (std::size_t i = 0; i < f->forward.tape.inputs.size() && i < args.size(); ++i)
    at(values, f->forward.tape.inputs[i]) = args[i];
  for (const Value& a : args) inputs.push_back(a.is_tensor() ? a.tensor() : Tensor());
  const bool autocast = r.autocast;
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    run_stretch(r, f->forward.tape, values, autocast);
  }
  TensorList outputs;
  for (const ValueId id : f->forward.results) {
    Tensor t = tensor_in(values, id);
    // A function that returns an argument returns an alias of it.
    if (t && std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& x) { return x && x.get() == t.get(); }))
      t = r.detach(t);
    outputs.push_back(std::move(t));
  }
  // Numbers among the arguments, for a forward pass that runs again.
  std::vector<Value> numbers(f->again ? f->forward.tape.values.size() : 0);
  for (std::size_t i = 0; f->again && i < f->forward.tape.inputs.size() && i < args.size(); ++i)
    if (!args[i].is_tensor()) at(numbers, f->forward.tape.inputs[i]) = args[i];
  Node* node = r.record(inputs, outputs, [f, autocast, numbers](Run& run, Node& n, TensorList& grads) {
    return f->again ? run_again(run, *f, n, numbers, autocast) : run_backward(run, *f, n, grads, autocast);
  });
  for (const ValueId id : f->saved) {
    const Tensor t = tensor_in(values, id);
    const bool output = std::find(f->forward.results.begin(), f->forward.results.end(), id) != f->forward.results.end();
    if (output)
      r.save_output(node, t);
    else
      r.save(node, t);
  }
  ValueList out;
  for (const Tensor& t : outputs) out.emplace_back(t);
  return out;
}

}  // namespace memplan
