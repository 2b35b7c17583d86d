// nn.LSTM, nn.GRU and nn.RNN of several layers. torch.onnx writes one node per layer, and in front of it Slice, Concat
// and Unsqueeze nodes that reorder the parameters' gates; in PyTorch all of it is one call on the parameters
// themselves.
#include <algorithm>

#include "estimators/frontends/onnx/patterns.h"

namespace memplan::onnx_format {

namespace {

/// The stored tensors behind an input that only rearranges them, in order and each once; empty when something else is
/// in it. `steps` bounds the search.
void stored_behind(const View& v, GraphValueId id, std::vector<GraphValueId>& out, bool& pure, int& steps) {
  if (id < 0 || --steps < 0) {
    pure = false;
  } else if (v.stored(id)) {
    if (std::find(out.begin(), out.end(), id) == out.end()) out.push_back(id);
  } else {
    const std::int32_t p = v.producer(id);
    const std::string_view op = p < 0 ? std::string_view{} : std::string_view(v.node(p).op_type);
    if (op == "Concat")
      for (GraphValueId part : v.node(p).inputs) stored_behind(v, part, out, pure, steps);
    else if (op == "Slice" || op == "Unsqueeze" || op == "Squeeze" || op == "Identity" || op == "Reshape")
      stored_behind(v, v.input(p, 0), out, pure, steps);
    else
      pure = false;
  }
}

struct Layer {
  std::int32_t node = -1;
  std::int64_t directions = 1;
  std::vector<GraphValueId> parameters;  ///< per direction weight_ih, weight_hh, bias_ih, bias_hh
};

std::optional<Layer> layer_of(const View& v, std::int32_t node) {
  Layer l;
  l.node = node;
  const auto& r = v.sizes(v.input(node, 2));
  if (!r || r->size() != 3 || v.at(node).integer("layout", 0) != 0) return std::nullopt;
  l.directions = r->front();
  std::vector<GraphValueId> parts[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (i == 2 && v.input(node, 3) < 0) continue;
    bool pure = true;
    int steps = 64;
    stored_behind(v, v.input(node, 1 + i), parts[i], pure, steps);
    const std::size_t expected = static_cast<std::size_t>(l.directions) * (i == 2 ? 2 : 1);
    if (!pure || parts[i].size() != expected) return std::nullopt;
  }
  for (std::size_t d = 0; d < static_cast<std::size_t>(l.directions); ++d) {
    l.parameters.push_back(parts[0][d]);
    l.parameters.push_back(parts[1][d]);
    if (!parts[2].empty()) l.parameters.insert(l.parameters.end(), {parts[2][2 * d], parts[2][2 * d + 1]});
  }
  return l;
}

bool is_recurrent(const GraphNode& n) {
  return n.domain.empty() && (n.op_type == "LSTM" || n.op_type == "GRU" || n.op_type == "RNN");
}

std::string_view module_path(std::string_view name) { return name.substr(0, std::min(name.rfind('/'), name.size())); }

/// The layer below, whose output this layer's input is, with the dropout between.
std::int32_t below(const View& v, std::int32_t node, double& dropout, std::vector<std::int32_t>& between) {
  GraphValueId id = v.input(node, 0);
  std::vector<std::int32_t> way;
  for (int steps = 0; steps < 5; ++steps) {
    const std::int32_t p = v.producer(id);
    if (p < 0 || !v.read_once(id)) return -1;
    const GraphNode& n = v.node(p);
    if (is_recurrent(n)) {
      const bool same = n.op_type == v.node(node).op_type && module_path(n.name) == module_path(v.node(node).name) &&
                        v.output(p) == id;
      for (std::size_t i = 1; i < n.outputs.size(); ++i)
        if (n.outputs[i] >= 0 && !v.readers_of(n.outputs[i]).empty()) return -1;  // the layer's own last state is used
      if (!same) return -1;
      between.insert(between.end(), way.begin(), way.end());
      return p;
    }
    if (n.op_type == "Dropout")
      dropout = v.at(p).has(1) ? v.at(p).number(1).value_or(0.5) : v.at(p).real("ratio", 0.5);
    else if (n.op_type != "Squeeze" && n.op_type != "Transpose" && n.op_type != "Reshape")
      return -1;
    way.push_back(p);
    id = v.input(p, 0);
  }
  return -1;
}

/// The state given to all layers, of which each layer takes its slice; -1 for zeros.
GraphValueId whole_state(const View& v, GraphValueId id) {
  for (int steps = 0; steps < 4 && id >= 0; ++steps) {
    const std::int32_t p = v.producer(id);
    if (p < 0) return id;
    const std::string_view op = v.node(p).op_type;
    if (op == "ConstantOfShape" || op == "Constant" || op == "Expand") return -1;
    if (op != "Slice") return id;
    id = v.input(p, 0);
  }
  return id;
}

}  // namespace

std::optional<Found> match_recurrent(const View& v, std::int32_t last) {
  Found f;
  std::vector<Layer> layers;  // the last one first
  double dropout = 0;
  std::int32_t at = last;
  while (at >= 0 && layers.size() < 64) {
    const auto layer = layer_of(v, at);
    if (!layer) break;
    layers.push_back(*layer);
    f.nodes.push_back(at);
    // A lower layer that cannot be taken along stays a call of its own.
    std::vector<std::int32_t> between;
    double p = dropout;
    const std::int32_t lower = below(v, at, p, between);
    if (lower < 0 || !layer_of(v, lower)) break;
    dropout = p;
    f.nodes.insert(f.nodes.end(), between.begin(), between.end());
    at = lower;
  }
  if (layers.empty()) return std::nullopt;
  const std::int32_t first = layers.back().node;
  const GraphNode& node = v.node(last);
  if (layers.size() > 1)
    for (std::size_t i = 1; i < node.outputs.size(); ++i)
      if (node.outputs[i] >= 0 && !v.readers_of(node.outputs[i]).empty()) return std::nullopt;
  const GraphValueId x = v.input(first, 0);
  const bool lstm = node.op_type == "LSTM";
  const GraphValueId h = whole_state(v, v.input(first, 5)), c = lstm ? whole_state(v, v.input(first, 6)) : -1;
  const auto& in = v.sizes(x);
  const std::int64_t directions = layers.back().directions, hidden = v.sizes(v.input(first, 2))->back();
  if (!in || in->size() != 3) return std::nullopt;
  f.reads = {x};
  for (GraphValueId s : {h, c})
    if (s >= 0) f.reads.push_back(s);
  std::vector<GraphValueId> parameters;
  for (auto l = layers.rbegin(); l != layers.rend(); ++l)
    parameters.insert(parameters.end(), l->parameters.begin(), l->parameters.end());
  f.reads.insert(f.reads.end(), parameters.begin(), parameters.end());
  const bool biases = v.input(first, 3) >= 0;
  f.op = lstm ? "aten::lstm.input" : node.op_type == "GRU" ? "aten::gru.input" : "aten::rnn_tanh.input";
  f.from = node.op_type + " nodes and the reordering of their gates";
  const auto count = static_cast<std::int64_t>(layers.size());
  f.emit = [=, op = f.op, sizes = *in, &v](Emit& e) {
    const DType dtype = v.inferred[x].dtype.value_or(DType::float32);
    auto state = [&](GraphValueId id) {
      return id >= 0
                 ? Arg{e.tensor(id)}
                 : Arg{e.call("aten::zeros", {list_of({count * directions, sizes[1], hidden})}, {{"dtype", {dtype}}})};
    };
    Arg::List states{state(h)}, weights;
    if (lstm) states.push_back(state(c));
    for (GraphValueId id : parameters) weights.push_back({e.tensor(id)});
    Call call;
    call.op = op;
    call.args = {{e.tensor(x)},  lstm ? Arg{states} : states[0],
                 {weights},      {biases},
                 {count},        {dropout},
                 {e.training()}, {directions == 2},
                 {false}};
    call.scope = e.scope;
    const GraphNode& n = v.node(last);
    for (std::size_t i = 0; i < (lstm ? 3u : 2u); ++i) {
      TapeValue value;
      value.name = i < n.outputs.size() ? e.name_of(n.outputs[i]) : std::string();
      call.outputs.push_back(e.tape.add_value(std::move(value)));
      if (i > 0 && i < n.outputs.size()) e.bind(n.outputs[i], call.outputs.back());
    }
    const ValueId y = call.outputs[0];
    e.tape.calls.push_back(std::move(call));
    if (n.outputs.empty() || n.outputs[0] < 0) return;
    // The node's output keeps the directions apart, PyTorch's has them side by side.
    const Arg split{e.call("aten::view", {{y}, list_of({sizes[0], sizes[1], directions, hidden})})};
    e.call_for(v.at(last), "aten::transpose.int", {split, {std::int64_t{1}}, {std::int64_t{2}}});
  };
  return f;
}

}  // namespace memplan::onnx_format
