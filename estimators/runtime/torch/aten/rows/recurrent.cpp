// Recurrent layers by cuDNN (native/RNN.cpp, native/cudnn/RNN.cpp of PyTorch 2.11). The sizes of cuDNN's workspace and
// reserve are those of the emulated device: workspace 2 x gates, reserve layers x (gates + states) elements per step,
// sequence and unit. cuDNN states them only to a real handle, so a real device may ask for other amounts.
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

namespace {

struct Rnn {
  std::int64_t gates = 1, layers = 1, directions = 1, hidden = 1;
  bool lstm = false, train = false, bias = true, batch_first = false;
};

/// Elements of the flat weight buffer. cuDNN always runs with two biases, so the buffer has them also where the layer
/// has none.
std::int64_t flat_elements(const Rnn& n, const TensorList& weights) {
  std::int64_t total = n.bias ? 0 : n.layers * n.directions * 2 * n.gates * n.hidden;
  for (const Tensor& t : weights) total = checked_add(total, t->numel());
  return total;
}

/// The parameters as views of one buffer (as nn.RNNBase.flatten_parameters leaves them): that buffer, else null.
Tensor flat_buffer(Run& r, const Rnn& n, const TensorList& weights) {
  for (const Tensor& w : weights)
    if (w->storage.get() != weights[0]->storage.get()) return {};
  const std::int64_t elements = flat_elements(n, weights);
  if (weights[0]->storage->bytes != bytes_of(weights[0]->dtype, elements).count) return {};
  return r.alias(weights[0], {elements}, {1}, 0);
}

/// Views of `flat` with the shapes of `like`, one after the other.
TensorList pieces_of(Run& r, const Tensor& flat, const std::vector<Dims>& sizes) {
  TensorList out;
  std::int64_t at = 0;
  for (const Dims& s : sizes) {
    out.push_back(r.alias(flat, s, contiguous_strides(s), at));
    at += s.product();
  }
  return out;
}

/// _cudnn_rnn_cast_reflatten: under autocast every call copies the weights into one flat buffer of the lower type.
TensorList reflatten(Run& r, const Rnn& n, const TensorList& weights, DType dtype, Tensor& flat) {
  flat = r.empty({flat_elements(n, weights)}, dtype);
  std::vector<Dims> sizes;
  for (const Tensor& w : weights) sizes.push_back(w->sizes);
  TensorList views = pieces_of(r, flat, sizes);
  for (std::size_t i = 0; i < views.size(); ++i)
    r.record({weights[i]}, {views[i]}, [from = weights[i]->dtype](Run& r, Node&, TensorList& g) {
      // copy_weights_to_flat_buf_views in RNN.cpp copies from `orig_weight.view_as(dst)`, so what goes back is a view.
      const Tensor wide = op::to(r, g[0], from);
      return TensorList{r.alias(wide, wide->sizes, wide->strides, 0)};
    });
  return views;
}

/// A workspace or reserve of `per_unit` elements for every step, sequence and hidden unit.
Tensor units(Run& r, const Rnn& n, const Tensor& x, std::int64_t per_unit, Category category) {
  const std::int64_t count = checked_mul(checked_mul(x->sizes[0], x->sizes[1]), checked_mul(n.hidden, n.directions));
  return r.scratch(bytes_of(x->dtype, checked_mul(per_unit, count)), category);
}

/// [batch, steps, …] as [steps, batch, …] and back.
Tensor turned(Run& r, const Rnn& n, const Tensor& x) { return n.batch_first ? op::transpose(r, x, 0, 1) : x; }

/// Gradients of input, `count` weights and both states. The node saved cx?, hx, input, output, reserve, flat weights.
TensorList cudnn_rnn_backward(Run& r, const Rnn& n, Node& node, const TensorList& g, int count, std::int64_t elements,
                              const Dims& hs, const Dims& cs) {
  const std::size_t at = n.lstm ? 1 : 0;
  const Tensor x = turned(r, n, node.saved[at + 1]), y = node.saved[at + 2];
  const DType d = x->dtype;
  TensorList out(static_cast<std::size_t>(count) + 3);
  Tensor grad = g[0] ? g[0] : r.empty(y->sizes, d);
  Tensor grad_h = g[1] ? g[1] : r.empty(hs, d);
  Tensor grad_c = n.lstm ? (g.size() > 2 && g[2] ? g[2] : r.empty(cs, d)) : Tensor();
  {
    Tensor dense = op::contiguous(r, x);
    Tensor dense_grad = op::contiguous(r, turned(r, n, grad));
    out[0] = turned(r, n, r.empty(x->sizes, d));
    out[count + 1] = r.empty(hs, d);
    if (n.lstm) out[count + 2] = r.empty(cs, d);
    Tensor workspace = units(r, n, x, 2 * n.gates, Category::workspace);
    workspace.reset();
  }
  bool any = false;
  for (int i = 1; i <= count; ++i) any = any || node.wants(i);
  if (any) {
    Tensor dense = op::contiguous(r, x);
    std::vector<Dims> sizes;
    for (int i = 1; i <= count; ++i) sizes.push_back(node.inputs[i].sizes);
    Tensor flat = r.empty({elements}, d);
    Tensor workspace = units(r, n, x, 2 * n.gates, Category::workspace);
    TensorList views = pieces_of(r, flat, sizes);
    // get_parameters in RNN.cpp makes them with set_(): when the others are gone, the last one is summed in place.
    for (const Tensor& view : views) view->holds_base = false;
    // Without biases the views do not match the layer's own list, and are copied.
    for (int i = 1; i <= count; ++i) out[i] = n.bias ? views[i - 1] : r.empty(sizes[i - 1], d);
    views.clear();
    workspace.reset();
    flat.reset();
  }
  return out;
}

/// _cudnn_rnn: returns output, hy, cy (null but for LSTM).
TensorList cudnn_rnn(Run& r, const Rnn& n, const Tensor& x, const TensorList& weights, Tensor flat, const Tensor& hx,
                     const Tensor& cx) {
  const DType d = x->dtype;
  Tensor y, hy, cy, reserve;
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    Tensor by_step = turned(r, n, x);
    Tensor dense = op::contiguous(r, by_step);
    y = turned(r, n, r.empty({by_step->sizes[0], by_step->sizes[1], hx->sizes[2] * n.directions}, d));
    y->is_view = false;
    hy = r.empty(hx->sizes, d);
    if (n.lstm) cy = r.empty(cx->sizes, d);
    if (!flat) flat = r.empty({flat_elements(n, weights)}, d);
    Tensor workspace = units(r, n, x, 2 * n.gates, Category::workspace);
    if (n.train) reserve = units(r, n, x, n.layers * (n.gates + (n.lstm ? 2 : 1)), Category::activation);
    workspace.reset();
  }
  TensorList inputs{x};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  inputs.push_back(hx);
  inputs.push_back(cx);
  Node* node = r.record(inputs, {y, hy, cy},
                        [n, count = static_cast<int>(weights.size()), elements = flat_elements(n, weights),
                         hs = hx->sizes, cs = cx ? cx->sizes : Dims{}](Run& r, Node& node, TensorList& g) {
                          return cudnn_rnn_backward(r, n, node, g, count, elements, hs, cs);
                        });
  r.save(node, cx);
  r.save(node, hx);
  r.save(node, x);
  r.save_output(node, y);
  if (reserve) r.save_output(node, reserve);
  r.save(node, flat);
  return {y, hy, cy};
}

/// The hidden state, and of an LSTM the cell's.
TensorList states_of(const Args& a, std::size_t wanted) {
  TensorList states = a[1].is_list() ? a.tensors(1) : TensorList{a.tensor(1)};
  if (states.size() < wanted || !std::all_of(states.begin(), states.end(), [](const Tensor& t) { return bool(t); }))
    fail_input("a recurrent layer gets too few states", std::string(a.op()));
  return states;
}

ValueList run_rnn(Run& r, Args& a) {
  Rnn n;
  n.lstm = a.op() == "aten::lstm.input";
  n.gates = n.lstm ? 4 : a.op() == "aten::gru.input" ? 3 : 1;
  n.layers = a.integer(4);
  n.train = a.boolean(6);
  n.directions = a.boolean(7) ? 2 : 1;
  n.bias = a.boolean(3);
  n.batch_first = a.boolean(8);
  Tensor x = a.tensor(0);
  const TensorList states = states_of(a, n.lstm ? 2 : 1);
  Tensor hx = states[0], cx = n.lstm ? states[1] : Tensor();
  TensorList weights = a.tensors(2);
  if (weights.empty() || x->rank() != 3)
    fail_input("a recurrent layer needs weights and an input of three dimensions", std::string(a.op()));
  if (n.train && a.none(5))
    r.note(a.op(), About::op, Evidence::assumed,
           "whether recurrent layers drop out between them is not in the file; cuDNN keeps the state of its dropout",
           Effect{Bytes(), r.cudnn_dropout_bytes()});
  else if (n.train && a.number(5) > 0)
    r.use_cudnn_dropout();
  n.hidden = weights[0]->sizes[0] / n.gates;
  for (const Tensor& state : {hx, cx})
    if (state && state->rank() == 3 && state->sizes[1] != x->sizes[n.batch_first ? 0 : 1])
      fail_input("a recurrent layer's state and its input are of different batches", std::string(a.op()),
                 "the model may fix a dimension that you changed");
  Tensor flat = flat_buffer(r, n, weights);
  if (r.autocast) {
    const DType d = DType::float16;  // whatever type autocast was asked for
    weights = reflatten(r, n, weights, d, flat);
    if (cx) cx = op::to(r, cx, d);
    hx = op::to(r, hx, d);
    x = op::to(r, x, d);
  }
  if (x->dtype == DType::bfloat16 && !r.profile.kernels.cudnn_recurrent_bf16) {
    // Every step keeps the gates of both products, their sum and the cell.
    const std::int64_t per_layer = checked_mul(checked_mul(x->sizes[0], x->sizes[1]), n.hidden * n.directions);
    const Bytes kept = bytes_of(x->dtype, checked_mul(per_layer * (3 * n.gates + 2), n.layers));
    r.note(a.op(), About::op, Evidence::assumed,
           "recurrent layers of bfloat16 run step by step in this version of PyTorch; counted as cuDNN runs them",
           Effect{kept, kept});
  }
  TensorList out = cudnn_rnn(r, n, x, weights, flat, hx, cx);
  x.reset();
  ValueList values{out[0], out[1]};
  if (n.lstm) values.push_back(out[2]);
  return values;
}

/// _thnn_fused_lstm_cell and _thnn_fused_gru_cell: one kernel over the two products; it keeps a workspace of 4 or 5
/// values per unit. The same bias gradient serves both biases.
ValueList run_fused_cell(Run& r, Args& a) {
  const bool lstm = a.op() == "aten::lstm_cell";
  Tensor x = a.tensor(0);
  const TensorList state = states_of(a, lstm ? 2 : 1);
  Tensor hx = state[0], cx = lstm ? state[1] : Tensor(), bi = a.optional_tensor(4), bh = a.optional_tensor(5);
  Tensor from_input = op::linear(r, x, a.tensor(2), {}), from_hidden = op::linear(r, hx, a.tensor(3), {});
  const std::int64_t batch = hx->sizes[0], hidden = hx->sizes[1];
  Tensor workspace = r.empty({batch, (lstm ? 4 : 5) * hidden}, x->dtype);
  Tensor hy = r.empty(hx->sizes, x->dtype), cy = lstm ? r.empty(cx->sizes, x->dtype) : Tensor();
  const Dims gate_sizes = from_input->sizes;
  TensorList inputs =
      lstm ? TensorList{from_input, from_hidden, cx, bi, bh} : TensorList{from_input, from_hidden, hx, bi, bh};
  Node* node = r.record(inputs, lstm ? TensorList{hy, cy} : TensorList{hy},
                        [lstm, gate_sizes, hs = hx->sizes, d = x->dtype](Run& r, Node& n, TensorList&) {
                          TensorList out(5);
                          out[0] = r.empty(gate_sizes, d);
                          if (!lstm) out[1] = r.empty(gate_sizes, d);
                          out[2] = r.empty(hs, d);
                          if (lstm) out[1] = out[0];
                          const bool biased = n.wants(3) || n.wants(4);
                          if (biased) out[3] = op::sum(r, out[0], {0}, false);
                          if (biased) out[4] = lstm ? out[3] : op::sum(r, out[1], {0}, false);
                          return out;
                        });
  r.save(node, from_hidden);
  r.save(node, from_input);
  if (lstm) r.save(node, cx);
  if (lstm && node) r.save_output(node, cy);
  if (!lstm) r.save(node, hx);
  for (const Tensor& bias : {bi, bh})  // for the derivative of the derivative; a cast of it under autocast
    if (bias) r.save(node, bias);
  r.save_output(node, workspace);
  if (lstm) return {hy, cy};
  return {hy};
}

/// rnn_tanh_cell and rnn_relu_cell: two linear layers, the sum in place, the function.
ValueList run_plain_cell(Run& r, Args& a) {
  Tensor sum = op::linear(r, a.tensor(1), a.tensor(3), a.optional_tensor(5));
  Tensor from_input = op::linear(r, a.tensor(0), a.tensor(2), a.optional_tensor(4));
  op::add_(r, sum, from_input);
  return call_op(r, a.op() == "aten::rnn_tanh_cell" ? "aten::tanh" : "aten::relu", {sum});
}

}  // namespace

void register_recurrent(OpTable& t) {
  for (const char* n : {"aten::lstm.input", "aten::gru.input", "aten::rnn_tanh.input", "aten::rnn_relu.input"})
    t.add(n, "input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first", run_rnn);
  for (const char* n : {"aten::lstm_cell", "aten::gru_cell"})
    t.add(n, "input, hx, w_ih, w_hh, b_ih=None, b_hh=None", run_fused_cell);
  for (const char* n : {"aten::rnn_tanh_cell", "aten::rnn_relu_cell"})
    t.add(n, "input, hx, w_ih, w_hh, b_ih=None, b_hh=None", run_plain_cell);
}

}  // namespace memplan
