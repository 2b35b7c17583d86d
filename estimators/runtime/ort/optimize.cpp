#include "estimators/runtime/ort/optimize.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <set>
#include <string_view>

#include "estimators/frontends/onnx/inferred.h"
#include "estimators/runtime/ort/placement.h"
#include "estimators/runtime/ort/shapes.h"

namespace memplan::ort {

namespace {

using onnx_format::InferredValues;

/// Nodes in an order in which every value is made before it is read, and where each one came from.
std::pair<Graph, std::vector<std::int32_t>> in_run_order(const Graph& graph) {
  std::vector<std::int32_t> order = run_order(graph);
  Graph out = graph;
  out.nodes.clear();
  for (const std::int32_t n : order) out.nodes.push_back(graph.nodes[static_cast<std::size_t>(n)]);
  return {std::move(out), std::move(order)};
}

void remove_nodes(Graph& graph, const std::vector<bool>& gone) {
  std::vector<GraphNode> kept;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    if (n >= gone.size() || !gone[n]) kept.push_back(std::move(graph.nodes[n]));
  graph.nodes = std::move(kept);
}

std::vector<std::vector<std::int32_t>> readers(const Graph& graph) {
  std::vector<std::vector<std::int32_t>> out(graph.values.size());
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    for (const GraphValueId id : graph.nodes[n].inputs)
      if (id >= 0) out[static_cast<std::size_t>(id)].push_back(static_cast<std::int32_t>(n));
  return out;
}

bool is_output(const Graph& graph, GraphValueId id) {
  return std::find(graph.outputs.begin(), graph.outputs.end(), id) != graph.outputs.end();
}

void read_instead(Graph& graph, GraphValueId old, GraphValueId now) {
  for (GraphNode& node : graph.nodes) std::replace(node.inputs.begin(), node.inputs.end(), old, now);
}

StoredTensor tensor_of(const GraphNode& node) {
  StoredTensor t;
  for (const auto& [name, value] : node.attributes) {
    if (const auto* tensor = std::get_if<StoredTensor>(&value)) return *tensor;
    if (const auto* i = std::get_if<std::int64_t>(&value)) t = {{}, DType::int64, {}, {*i}, {}, false, {}};
    if (const auto* f = std::get_if<double>(&value)) t = {{}, DType::float32, {}, {}, {*f}, false, {}};
    if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value))
      t = {{}, DType::int64, {static_cast<std::int64_t>(list->size())}, *list, {}, false, {}};
    if (const auto* list = std::get_if<std::vector<double>>(&value))
      t = {{}, DType::float32, {static_cast<std::int64_t>(list->size())}, {}, *list, false, {}};
  }
  return t;
}

/// Constants are weights as soon as the file is read (Graph::Graph).
void constants_to_weights(Graph& graph) {
  std::vector<bool> gone(graph.nodes.size(), false);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const GraphNode& node = graph.nodes[n];
    if (node.op_type != "Constant" || node.outputs.size() != 1) continue;
    StoredTensor t = tensor_of(node);
    t.name = graph.values[static_cast<std::size_t>(node.outputs[0])].name;
    graph.initializers.emplace(node.outputs[0], std::move(t));
    gone[n] = true;
  }
  remove_nodes(graph, gone);
}

constexpr std::array<std::string_view, 9> never_folded{
    "RandomNormal", "RandomUniform",  "RandomNormalLike", "RandomUniformLike",
    "Multinomial",  "QuantizeLinear", "DequantizeLinear", "If",
    "Loop"};

bool foldable(const Graph& graph, const GraphNode& node, const std::vector<KnownShape>& shapes) {
  if (std::find(never_folded.begin(), never_folded.end(), node.op_type) != never_folded.end()) return false;
  if (node.op_type == "Shape") {
    const KnownShape& s = shapes[static_cast<std::size_t>(node.inputs.at(0))];
    return s && std::none_of(s->begin(), s->end(), [](const Dim& d) { return d.open(); });
  }
  bool any = false;
  for (const GraphValueId id : node.inputs) {
    if (id < 0) continue;
    any = true;
    if (!graph.initializers.count(id)) return false;
  }
  return any &&
         std::none_of(node.outputs.begin(), node.outputs.end(), [&](GraphValueId id) { return is_output(graph, id); });
}

/// ConstantFolding: what depends on weights alone is computed when the session is made and is a weight of its own.
bool fold_constants(Graph& graph, const BoundGraph& bound) {
  const auto [sorted, order] = in_run_order(graph);
  const InferredValues inferred(sorted, {}, bound.opset);  // of weights alone: no size of an input matters
  const std::vector<KnownShape> shapes = known_shapes(sorted, bound.opset);
  std::vector<bool> gone(graph.nodes.size(), false);
  for (std::size_t k = 0; k < order.size(); ++k) {
    const GraphNode& node = sorted.nodes[k];
    if (!foldable(graph, node, shapes)) continue;
    const bool told = std::all_of(node.outputs.begin(), node.outputs.end(),
                                  [&](GraphValueId id) { return id < 0 || inferred[id].sizes.has_value(); });
    if (!told) continue;
    for (const GraphValueId id : node.outputs) {
      if (id < 0) continue;
      StoredTensor t;
      t.name = graph.values[static_cast<std::size_t>(id)].name;
      t.dtype = inferred[id].dtype.value_or(DType::float32);
      t.sizes = *inferred[id].sizes;
      if (inferred[id].contents) {
        t.integers = inferred[id].contents->integers;
        t.floats = inferred[id].contents->floats;
      }
      graph.initializers.insert_or_assign(id, std::move(t));
    }
    gone[static_cast<std::size_t>(order[k])] = true;
  }
  const bool any = std::find(gone.begin(), gone.end(), true) != gone.end();
  remove_nodes(graph, gone);
  return any;
}

/// EliminateIdentity, EliminateDropout: the reader reads what came in.
void pass_through(Graph& graph) {
  std::vector<bool> gone(graph.nodes.size(), false);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const GraphNode& node = graph.nodes[n];
    if ((node.op_type != "Identity" && node.op_type != "Dropout") || node.outputs.empty() || node.inputs.empty())
      continue;
    const GraphValueId from = node.inputs[0], to = node.outputs[0];
    if (is_output(graph, to)) continue;
    gone[n] = true;
    read_instead(graph, to, from);
  }
  remove_nodes(graph, gone);
}

/// ConvBNFusion: the norm's factors go into the convolution, which has a bias from then on.
void fold_norms(Graph& graph) {
  const auto by = readers(graph);
  std::vector<bool> gone(graph.nodes.size(), false);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    GraphNode& conv = graph.nodes[n];
    if (conv.op_type != "Conv" || conv.inputs.size() < 2 || !graph.initializers.count(conv.inputs[1])) continue;
    const GraphValueId made = conv.outputs.at(0);
    const auto& read = by[static_cast<std::size_t>(made)];
    if (read.size() != 1 || is_output(graph, made)) continue;
    const GraphNode& norm = graph.nodes[static_cast<std::size_t>(read[0])];
    if (norm.op_type != "BatchNormalization" || norm.inputs.at(0) != made || norm.outputs.size() != 1) continue;
    const auto mode = norm.attributes.find("training_mode");
    const auto* training = mode == norm.attributes.end() ? nullptr : std::get_if<std::int64_t>(&mode->second);
    if (training && *training != 0) continue;
    conv.inputs.resize(3, -1);
    conv.inputs[2] = norm.inputs.at(1);  // the new bias has the size of the norm's scale
    conv.outputs[0] = norm.outputs[0];
    gone[static_cast<std::size_t>(read[0])] = true;
  }
  remove_nodes(graph, gone);
}

/// QuickGeluFusion: x * sigmoid(x) is one op.
void fuse_quick_gelu(Graph& graph) {
  const auto by = readers(graph);
  std::vector<bool> gone(graph.nodes.size(), false);
  const std::size_t count = graph.nodes.size();
  for (std::size_t n = 0; n < count; ++n) {
    const GraphNode sigmoid = graph.nodes[n];
    if (sigmoid.op_type != "Sigmoid") continue;
    const auto& read = by[static_cast<std::size_t>(sigmoid.outputs.at(0))];
    if (read.size() != 1 || is_output(graph, sigmoid.outputs[0])) continue;
    const auto m = static_cast<std::size_t>(read[0]);
    const GraphNode mul = graph.nodes[m];
    const GraphValueId x = sigmoid.inputs.at(0);
    if (mul.op_type != "Mul" || mul.inputs.size() != 2) continue;
    if ((mul.inputs[0] == sigmoid.outputs[0] ? mul.inputs[1] : mul.inputs[0]) != x) continue;
    GraphNode fused;
    fused.op_type = "QuickGelu";
    fused.domain = "com.microsoft";
    fused.name = mul.name;
    fused.inputs = {x};
    fused.outputs = mul.outputs;
    gone[n] = gone[m] = true;
    graph.nodes.push_back(std::move(fused));
  }
  remove_nodes(graph, gone);
}

/// The function of an op without a kernel takes its place, behind all other nodes (Graph::InlineFunctionProto).
void inline_hard_swish(Graph& graph) {
  std::vector<bool> gone(graph.nodes.size(), false);
  const std::size_t count = graph.nodes.size();
  for (std::size_t n = 0; n < count; ++n) {
    const GraphNode swish = graph.nodes[n];
    if (swish.op_type != "HardSwish" || swish.inputs.size() != 1 || swish.outputs.size() != 1) continue;
    gone[n] = true;
    GraphValue between = graph.values[static_cast<std::size_t>(swish.outputs[0])];
    between.name = "_inlfunc_HardSwish_" + between.name;
    const auto gate = static_cast<GraphValueId>(graph.values.size());
    graph.values.push_back(std::move(between));
    GraphNode sigmoid, mul;
    sigmoid.op_type = "HardSigmoid";
    mul.op_type = "Mul";
    sigmoid.name = mul.name = swish.name;
    sigmoid.inputs = swish.inputs;
    sigmoid.outputs = {gate};
    mul.inputs = {swish.inputs[0], gate};
    mul.outputs = swish.outputs;
    graph.nodes.push_back(std::move(sigmoid));
    graph.nodes.push_back(std::move(mul));
  }
  remove_nodes(graph, gone);
}

/// A graph that ONNX Runtime was asked for tells the indices; a file that a session saved has its order.
void by_index(Graph& graph) {
  const auto index = [](const GraphNode& node) {
    std::int64_t n = std::numeric_limits<std::int64_t>::max();
    if (const auto it = node.metadata.find(index_key); it != node.metadata.end())
      std::from_chars(it->second.data(), it->second.data() + it->second.size(), n);
    return n;
  };
  std::stable_sort(graph.nodes.begin(), graph.nodes.end(),
                   [&](const GraphNode& a, const GraphNode& b) { return index(a) < index(b); });
}

/// Pairs around quantized ops are merged and doubled once more when a saved file is loaded (EnsureUniqueDQForNodeUnit),
/// which gives the copies new indices. A graph that was asked for has those.
bool rearranged_when_loaded(const Graph& graph) {
  const auto has_index = [](const GraphNode& n) { return n.metadata.count(index_key) > 0; };
  const auto is_pair = [](const GraphNode& n) { return n.op_type == "DequantizeLinear"; };
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), is_pair) &&
         std::none_of(graph.nodes.begin(), graph.nodes.end(), has_index);
}

/// Ops that no optimizer touches but those above: a graph of nothing else runs as it stands.
constexpr std::array<std::string_view, 34> settled{
    "Conv",          "Relu",         "MaxPool",      "AveragePool", "GlobalAveragePool", "GlobalMaxPool",
    "Add",           "Mul",          "Sigmoid",      "HardSigmoid", "HardSwish",         "Clip",
    "Concat",        "Gemm",         "Flatten",      "Softmax",     "LeakyRelu",         "Tanh",
    "ConvTranspose", "ReduceMean",   "QuickGelu",    "Resize",      "LogSoftmax",        "BatchNormalization",
    "Elu",           "PRelu",        "Upsample",     "Shape",       "Constant",          "LRN",
    "Sub",           "DepthToSpace", "SpaceToDepth", "Selu"};

}  // namespace

bool saved_by_onnxruntime(const std::vector<std::string>& domains) {
  // It writes every domain that it has, whether the file uses it or not (Graph::ToGraphProto).
  return std::find(domains.begin(), domains.end(), "com.microsoft.nchwc") != domains.end();
}

bool is_settled(const Graph& graph) {
  constexpr std::array<std::string_view, 3> followed{"Identity", "Dropout", "Constant"};
  return std::all_of(graph.nodes.begin(), graph.nodes.end(), [&](const GraphNode& n) {
    const auto has = [&](const auto& list) { return std::find(list.begin(), list.end(), n.op_type) != list.end(); };
    return has(settled) || has(followed);
  });
}

Optimized optimized(const BoundGraph& bound, const OrtProfile& profile) {
  Optimized out{bound.graph, {}};
  constants_to_weights(out.graph);
  if (saved_by_onnxruntime(bound.domains)) {
    by_index(out.graph);
    if (!profile.hard_swish) inline_hard_swish(out.graph);
    out.rearranged = rearranged_when_loaded(out.graph);
    return out;
  }
  pass_through(out.graph);
  if (!profile.hard_swish) inline_hard_swish(out.graph);
  fold_norms(out.graph);
  while (fold_constants(out.graph, bound)) {
  }
  fuse_quick_gelu(out.graph);
  std::set<std::string> left;
  for (const GraphNode& node : out.graph.nodes)
    if (std::find(settled.begin(), settled.end(), node.op_type) == settled.end()) left.insert(node.op_type);
  out.may_change.assign(left.begin(), left.end());
  return out;
}

}  // namespace memplan::ort
