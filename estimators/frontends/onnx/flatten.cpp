#include "estimators/frontends/onnx/flatten.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "estimators/frontends/onnx/inferred.h"

namespace memplan::onnx_format {

namespace {

/// Unrolling can blow a small file up without bound.
constexpr std::size_t max_flat_nodes = 200'000;
constexpr int max_rounds = 64;  // nesting

bool has_subgraph(const GraphNode& n) {
  return std::any_of(n.attributes.begin(), n.attributes.end(),
                     [](const auto& a) { return std::holds_alternative<GraphId>(a.second); });
}

class Flattener {
 public:
  Flattener(const Model& model, const Symbols& symbols, std::vector<Note>& notes)
      : model_(model), symbols_(symbols), notes_(notes) {}

  std::optional<Graph> run() {
    const Graph& main = model_.graphs.front();
    if (std::none_of(main.nodes.begin(), main.nodes.end(), has_subgraph)) return std::nullopt;
    Graph current = main;
    for (int round = 0; round < max_rounds; ++round) {
      changed_ = false;
      const InferredValues inferred(current, symbols_, model_.opset);
      Graph next = current;
      next.nodes.clear();
      g_ = &next;
      names_.clear();
      for (std::size_t v = 0; v < next.values.size(); ++v)
        names_.emplace(next.values[v].name, static_cast<GraphValueId>(v));
      for (const GraphNode& n : current.nodes)
        if (!has_subgraph(n) || !expand(n, inferred)) next.nodes.push_back(n);
      current = std::move(next);
      if (!changed_) break;
    }
    return current;
  }

 private:
  const Graph* sub(const GraphNode& n, const char* name) const {
    const auto it = n.attributes.find(name);
    const auto* id = it == n.attributes.end() ? nullptr : std::get_if<GraphId>(&it->second);
    return id ? &model_.graphs[static_cast<std::size_t>(*id)] : nullptr;
  }

  bool expand(const GraphNode& n, const InferredValues& inferred) {
    if (n.op_type == "If") return expand_if(n, inferred);
    if (n.op_type == "Loop") return expand_loop(n, inferred);
    if (n.op_type == "Scan") return expand_scan(n, inferred);
    return false;
  }

  GraphValueId add(const std::string& name, std::optional<DType> dtype = {}) {
    GraphValue v;
    v.name = names_.count(name) ? fmt::format("{}#{}", name, ++fresh_) : name;
    v.dtype = dtype;
    g_->values.push_back(std::move(v));
    const auto id = static_cast<GraphValueId>(g_->values.size() - 1);
    names_.emplace(g_->values.back().name, id);
    return id;
  }

  void connect(GraphValueId from, GraphValueId to) {
    if (to < 0 || from < 0) return;
    GraphNode n;
    n.op_type = "Identity";
    n.inputs = {from};
    n.outputs = {to};
    g_->nodes.push_back(std::move(n));
  }

  GraphValueId constant(const std::string& name, std::int64_t value) {
    GraphNode n;
    n.op_type = "Constant";
    n.attributes["value_int"] = value;
    n.outputs = {add(name, DType::int64)};
    g_->nodes.push_back(n);
    return n.outputs[0];
  }

  GraphValueId apply(const char* op, std::vector<GraphValueId> inputs, const std::string& name,
                     std::map<std::string, Attribute> attributes) {
    GraphNode n;
    n.op_type = op;
    n.inputs = std::move(inputs);
    n.attributes = std::move(attributes);
    n.outputs = {add(name)};
    g_->nodes.push_back(n);
    return n.outputs[0];
  }

  /// Copies the nodes of a subgraph with its inputs bound; returns its outputs.
  std::vector<GraphValueId> inline_graph(const Graph& s, const std::vector<GraphValueId>& inputs) {
    std::unordered_map<GraphValueId, GraphValueId> map;
    for (std::size_t i = 0; i < s.inputs.size(); ++i) map[s.inputs[i]] = i < inputs.size() ? inputs[i] : -1;
    for (const auto& [id, tensor] : s.initializers) {
      const GraphValueId here = add(tensor.name, tensor.dtype);
      StoredTensor copy = tensor;
      copy.name = g_->values[static_cast<std::size_t>(here)].name;
      g_->initializers.emplace(here, std::move(copy));
      map[id] = here;
    }
    for (const GraphNode& n : s.nodes)
      for (GraphValueId id : n.outputs)
        if (id >= 0) {
          const GraphValue& v = s.values[static_cast<std::size_t>(id)];
          const GraphValueId here = add(v.name, v.dtype);
          g_->values[static_cast<std::size_t>(here)].shape = v.shape;
          map[id] = here;
        }
    auto outer = [&](GraphValueId id) -> GraphValueId {
      if (id < 0) return -1;
      if (auto it = map.find(id); it != map.end()) return it->second;
      const auto captured = names_.find(s.values[static_cast<std::size_t>(id)].name);
      return captured == names_.end() ? -1 : captured->second;
    };
    for (const GraphNode& n : s.nodes) {
      GraphNode copy = n;
      for (GraphValueId& id : copy.inputs) id = outer(id);
      for (GraphValueId& id : copy.outputs) id = outer(id);
      g_->nodes.push_back(std::move(copy));
    }
    std::vector<GraphValueId> outputs;
    for (GraphValueId id : s.outputs) outputs.push_back(outer(id));
    changed_ = true;
    return outputs;
  }

  bool expand_if(const GraphNode& n, const InferredValues& inferred) {
    const Graph *yes = sub(n, "then_branch"), *no = sub(n, "else_branch");
    if (!yes || !no || n.inputs.empty()) return false;
    const Inferred& condition = inferred[n.inputs[0]];
    const bool known = condition.is_one_number();
    const Graph* taken =
        known ? (condition.contents->number(0) != 0 ? yes : no) : (yes->nodes.size() >= no->nodes.size() ? yes : no);
    if (!known)
      notes_.push_back({"MP009",
                        fmt::format("the condition of node '{}' (If) depends on data; the {} branch is counted", n.name,
                                    taken == yes ? "then" : "else"),
                        Evidence::assumed, About::branch});
    if (g_->nodes.size() + taken->nodes.size() > max_flat_nodes) return false;
    const auto outputs = inline_graph(*taken, {});
    for (std::size_t i = 0; i < n.outputs.size() && i < outputs.size(); ++i) connect(outputs[i], n.outputs[i]);
    return true;
  }

  /// A body that holds subgraphs itself captures by name, which copies of it would confuse.
  bool can_repeat(const Graph& body, double times) const {
    return times >= 0 && times * static_cast<double>(body.nodes.size() + 1) < static_cast<double>(max_flat_nodes) &&
           std::none_of(body.nodes.begin(), body.nodes.end(), has_subgraph);
  }

  bool expand_loop(const GraphNode& n, const InferredValues& inferred) {
    const Graph* body = sub(n, "body");
    if (!body || n.inputs.size() < 2 || body->inputs.size() < 2 || n.inputs[0] < 0) return false;
    const Inferred& count = inferred[n.inputs[0]];
    if (!count.is_one_number() || !can_repeat(*body, count.contents->number(0))) return false;
    const auto times = static_cast<std::int64_t>(count.contents->number(0));
    const std::size_t carried = n.inputs.size() - 2;
    if (body->outputs.size() < 1 + carried) return false;
    if (n.inputs[1] >= 0 && !inferred[n.inputs[1]].is_one_number())
      notes_.push_back(
          {"MP009",
           fmt::format("node '{}' (Loop) may stop early, depending on data; all {} turns are counted", n.name, times),
           Evidence::assumed, About::branch});
    std::vector<GraphValueId> state(n.inputs.begin() + 2, n.inputs.end());
    std::vector<std::vector<GraphValueId>> scanned(body->outputs.size() - 1 - carried);
    for (std::int64_t t = 0; t < times; ++t) {
      std::vector<GraphValueId> inputs{constant(fmt::format("{}/turn_{}", n.name, t), t),
                                       constant(fmt::format("{}/go_{}", n.name, t), 1)};
      inputs.insert(inputs.end(), state.begin(), state.end());
      const auto outputs = inline_graph(*body, inputs);
      for (std::size_t i = 0; i < carried; ++i) state[i] = outputs[1 + i];
      for (std::size_t i = 0; i < scanned.size(); ++i) scanned[i].push_back(outputs[1 + carried + i]);
    }
    for (std::size_t i = 0; i < carried && i < n.outputs.size(); ++i) connect(state[i], n.outputs[i]);
    for (std::size_t i = 0; i < scanned.size() && carried + i < n.outputs.size(); ++i)
      stack(n, scanned[i], n.outputs[carried + i]);
    changed_ = true;
    return true;
  }

  bool expand_scan(const GraphNode& n, const InferredValues& inferred) {
    const Graph* body = sub(n, "body");
    const At at{n, inferred, model_.opset};
    const std::int64_t scans = at.integer("num_scan_inputs", 0);
    if (!body || scans < 1 || static_cast<std::size_t>(scans) > n.inputs.size() || at.attribute("scan_input_axes") ||
        at.attribute("scan_output_axes") || at.attribute("scan_input_directions") ||
        at.attribute("scan_output_directions"))
      return false;
    const std::size_t carried = n.inputs.size() - static_cast<std::size_t>(scans);
    const auto& first = inferred[n.inputs[carried]].sizes;
    if (!first || first->empty() || !can_repeat(*body, static_cast<double>(first->front())) ||
        body->outputs.size() < carried)
      return false;
    std::vector<GraphValueId> state(n.inputs.begin(), n.inputs.begin() + static_cast<std::ptrdiff_t>(carried));
    std::vector<std::vector<GraphValueId>> scanned(body->outputs.size() - carried);
    for (std::int64_t t = 0; t < first->front(); ++t) {
      std::vector<GraphValueId> inputs = state;
      const GraphValueId turn = constant(fmt::format("{}/turn_{}", n.name, t), t);
      for (std::size_t i = carried; i < n.inputs.size(); ++i)
        inputs.push_back(apply("Gather", {n.inputs[i], turn}, fmt::format("{}/slice_{}_{}", n.name, i, t),
                               {{"axis", std::int64_t{0}}}));
      const auto outputs = inline_graph(*body, inputs);
      for (std::size_t i = 0; i < carried; ++i) state[i] = outputs[i];
      for (std::size_t i = 0; i < scanned.size(); ++i) scanned[i].push_back(outputs[carried + i]);
    }
    for (std::size_t i = 0; i < carried && i < n.outputs.size(); ++i) connect(state[i], n.outputs[i]);
    for (std::size_t i = 0; i < scanned.size() && carried + i < n.outputs.size(); ++i)
      stack(n, scanned[i], n.outputs[carried + i]);
    changed_ = true;
    return true;
  }

  /// torch.stack(parts)
  void stack(const GraphNode& n, const std::vector<GraphValueId>& parts, GraphValueId to) {
    if (to < 0 || parts.empty()) return;
    std::vector<GraphValueId> rows;
    GraphNode axes;
    axes.op_type = "Constant";
    axes.attributes["value_ints"] = std::vector<std::int64_t>{0};
    axes.outputs = {add(n.name + "/axes", DType::int64)};
    const GraphValueId axis = axes.outputs[0];
    g_->nodes.push_back(std::move(axes));
    for (GraphValueId p : parts) rows.push_back(apply("Unsqueeze", {p, axis}, n.name + "/row", {}));
    connect(apply("Concat", rows, n.name + "/stacked", {{"axis", std::int64_t{0}}}), to);
  }

  const Model& model_;
  const Symbols& symbols_;
  std::vector<Note>& notes_;
  Graph* g_ = nullptr;
  std::unordered_map<std::string, GraphValueId> names_;
  std::int64_t fresh_ = 0;
  bool changed_ = false;
};

}  // namespace

std::optional<Graph> flatten(const Model& model, const Symbols& symbols, std::vector<Note>& notes) {
  return Flattener(model, symbols, notes).run();
}

}  // namespace memplan::onnx_format
