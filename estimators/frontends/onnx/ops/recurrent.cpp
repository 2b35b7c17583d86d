// LSTM, GRU and RNN.
#include "estimators/frontends/onnx/table.h"

namespace memplan::onnx_format {

namespace {

/// Y [sequence, directions, batch, hidden], Y_h and Y_c [directions, batch, hidden].
void infer_recurrent(const At& at, std::vector<Inferred>& out) {
  for (Inferred& f : out) f.dtype = at.in(0).dtype;
  if (!at.sizes(0) || !at.sizes(2) || at.sizes(0)->size() != 3 || at.sizes(2)->size() != 3) return;
  const Sizes &x = *at.sizes(0), &r = *at.sizes(2);
  const bool batch_first = at.integer("layout", 0) != 0;
  if (batch_first) {
    out[0].sizes = Sizes{x[0], x[1], r[0], r[2]};
    for (std::size_t i = 1; i < out.size(); ++i) out[i].sizes = Sizes{x[0], r[0], r[2]};
  } else {
    out[0].sizes = Sizes{x[0], r[0], x[1], r[2]};
    for (std::size_t i = 1; i < out.size(); ++i) out[i].sizes = Sizes{r[0], x[1], r[2]};
  }
}

/// One layer of nn.LSTM: its parameters per direction are weight_ih, weight_hh, bias_ih, bias_hh, views of what the
/// file stacks.
bool lower_recurrent(const At& at, Emit& e) {
  if (!e.inferred[at.node.outputs[0]].sizes && !(at.sizes(2) && at.sizes(0))) return false;
  const std::string& op = at.node.op_type;
  const std::int64_t directions = (*at.sizes(2))[0], hidden = (*at.sizes(2))[2];
  if (directions < 1 || directions > 2 || at.integer("layout", 0) != 0) return false;
  const bool biases = at.has(3);
  const ValueId x = e.tensor(at.id(0));
  auto part = [&](std::size_t input, std::int64_t direction) {
    return e.call("aten::select.int", {{e.tensor(at.id(input))}, {std::int64_t{0}}, {direction}});
  };
  Arg::List parameters;
  for (std::int64_t d = 0; d < directions; ++d) {
    parameters.push_back({part(1, d)});
    parameters.push_back({part(2, d)});
    if (!biases) continue;
    const ValueId b = part(3, d);
    const std::int64_t half = at.sizes(3) ? at.sizes(3)->back() / 2 : hidden;
    parameters.push_back({e.call("aten::slice.Tensor", {{b}, {std::int64_t{0}}, {std::int64_t{0}}, {half}})});
    parameters.push_back({e.call("aten::slice.Tensor", {{b}, {std::int64_t{0}}, {half}, {2 * half}})});
  }
  const std::int64_t batch = (*at.sizes(0))[1];
  auto state = [&](std::size_t input) {
    return Arg{at.has(input) ? e.tensor(at.id(input))
                             : e.call("aten::zeros", {list_of({directions, batch, hidden})},
                                      {{"dtype", {at.in(0).dtype.value_or(DType::float32)}}})};
  };
  const bool lstm = op == "LSTM";
  Arg::List states{state(5)};
  if (lstm) states.push_back(state(6));
  Call c;
  c.op = lstm ? "aten::lstm.input" : op == "GRU" ? "aten::gru.input" : "aten::rnn_tanh.input";
  c.args = {{x},
            lstm ? Arg{states} : states[0],
            {parameters},
            {biases},
            {std::int64_t{1}},
            {0.0},
            {e.training()},
            {directions == 2},
            {false}};
  c.scope = e.scope;
  for (std::size_t i = 0; i < (lstm ? 3u : 2u); ++i) {
    TapeValue v;
    v.name = i < at.node.outputs.size() ? e.name_of(at.node.outputs[i]) : std::string();
    c.outputs.push_back(e.tape.add_value(std::move(v)));
    if (i > 0 && i < at.node.outputs.size()) e.bind(at.node.outputs[i], c.outputs.back());
  }
  const ValueId y = c.outputs[0];
  e.tape.calls.push_back(std::move(c));
  // PyTorch's output is [sequence, batch, directions * hidden].
  if (at.node.outputs[0] >= 0) {
    const Arg split{e.call("aten::view", {{y}, list_of({(*at.sizes(0))[0], batch, directions, hidden})})};
    e.call_for(at, "aten::transpose.int", {split, {std::int64_t{1}}, {std::int64_t{2}}});
  }
  return true;
}

constexpr OpRow rows[] = {
    {"LSTM", infer_recurrent, lower_recurrent, 0, 0, bits({4})},
    {"GRU", infer_recurrent, lower_recurrent, 0, 0, bits({4})},
    {"RNN", infer_recurrent, lower_recurrent, 0, 0, bits({4})},
};

}  // namespace

Rows recurrent_rows() { return {rows, std::size(rows)}; }

}  // namespace memplan::onnx_format
