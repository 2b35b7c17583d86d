#include "estimators/frontends/onnx/roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "estimators/frontends/onnx/name_scopes.h"

namespace memplan::onnx_format {

namespace {

struct Use {
  std::int32_t node = -1;
  std::size_t input = 0;
};

struct Entry {
  GraphValueId id = -1;
  ValueKind kind = ValueKind::constant;
  std::string name;
  bool transposed = false;
  double place = 0;  ///< in the order of the file
};

/// Whether a tool made up the name: "onnx::MatMul_12", "/layer/Transpose_output_0", "val_3".
bool is_made_up(std::string_view name) {
  return name.find("::") != std::string_view::npos || (!name.empty() && name.front() == '/') ||
         name.rfind("val_", 0) == 0;
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// Inputs where ONNX ops take weights.
bool is_weight_input(const GraphNode& n, std::size_t input) {
  const std::string_view op = n.op_type;
  if (op == "Conv" || op == "ConvTranspose" || op == "Gemm" || op == "ConvInteger") return input == 1 || input == 2;
  if (op == "MatMul" || op == "Einsum") return true;
  if (op == "Gather") return input == 0;
  if (op == "LSTM" || op == "GRU" || op == "RNN") return input >= 1 && input <= 3;
  if (op == "BatchNormalization") return input == 1 || input == 2;
  if (op == "PRelu") return input == 1;
  if (has(op, "Normalization")) return input >= 1;
  return op == "Transpose" || op == "Identity" || op == "DequantizeLinear";
}

const char* leaf_of(const GraphNode& n, std::size_t input) {
  const std::string_view op = n.op_type;
  if (op == "LSTM" || op == "GRU" || op == "RNN") return input == 1 ? "weight_ih" : input == 2 ? "weight_hh" : "bias";
  return input == 2 || op == "Add" ? "bias" : "weight";
}

ValueKind kind_of(const StoredTensor& t, const Graph& g, const std::vector<Use>& uses) {
  if (!is_floating(t.dtype)) return guess_kind(t);
  for (const Use& u : uses)
    if (const GraphNode& n = g.nodes[static_cast<std::size_t>(u.node)];
        n.op_type == "BatchNormalization" && u.input >= 3)
      return ValueKind::buffer;
  if (t.sizes.empty()) return is_made_up(t.name) ? ValueKind::constant : guess_kind(t);
  if (is_made_up(t.name) || has(t.name, "const_fold") || has(t.name, "Constant")) {
    for (const Use& u : uses)
      if (is_weight_input(g.nodes[static_cast<std::size_t>(u.node)], u.input)) return ValueKind::parameter;
    return ValueKind::constant;
  }
  return guess_kind(t);
}

using Uses = std::unordered_map<GraphValueId, std::vector<Use>>;

Uses uses_of(const Graph& g, const std::vector<std::vector<GraphValueId>>& reads) {
  Uses uses;
  for (std::size_t i = 0; i < g.nodes.size(); ++i)
    for (GraphValueId id : reads[i]) {
      if (id < 0 || !g.initializers.count(id)) continue;
      const auto& inputs = g.nodes[i].inputs;
      const auto at = std::find(inputs.begin(), inputs.end(), id);
      uses[id].push_back(
          {static_cast<std::int32_t>(i), at == inputs.end() ? 99 : static_cast<std::size_t>(at - inputs.begin())});
    }
  return uses;
}

struct Entries {
  std::vector<Entry> all;
  std::vector<std::size_t> renamed;                            ///< weights whose own name an exporter made up
  std::map<std::string, double, std::less<>> place_of_module;  ///< first tensor of each module, by the file
};

Entries entries_of(const Graph& g, const Uses& uses, const Values& values) {
  Entries out;
  double place = 0;
  for (const auto& [id, t] : g.initializers) {
    place += 1;
    if (values.has(id) || values.is_folded_result(id) || !values.folded_parameter(id).empty() ||
        !values.folded_lines(id).empty())
      continue;  // told by the exporter
    const auto used = uses.find(id);
    const bool is_used = used != uses.end();
    // Numbers and sizes that no tensor is made of.
    if (!is_used && (!is_floating(t.dtype) || t.sizes.empty() || is_made_up(t.name))) continue;
    Entry e;
    e.id = id;
    e.kind = kind_of(t, g, is_used ? used->second : std::vector<Use>{});
    e.name = t.name;
    e.place = place;
    if (is_used && is_made_up(t.name) && e.kind == ValueKind::parameter) {
      const Use& u = used->second.front();
      const GraphNode& n = g.nodes[static_cast<std::size_t>(u.node)];
      if (const std::string module = module_of(n.name); !module.empty())
        e.name = fmt::format("{}.{}", module, leaf_of(n, u.input));
      // Exporters store the weight of nn.Linear transposed where no Transpose node does it.
      e.transposed = t.sizes.size() == 2 && std::all_of(used->second.begin(), used->second.end(), [&](const Use& k) {
                       return g.nodes[static_cast<std::size_t>(k.node)].op_type == "MatMul" && k.input == 1;
                     });
      out.renamed.push_back(out.all.size());
    } else if (const std::size_t dot = e.name.rfind('.'); dot != std::string::npos) {
      out.place_of_module.emplace(e.name.substr(0, dot), place);
    }
    out.all.push_back(std::move(e));
  }
  return out;
}

/// A renamed weight stands before its module's other tensors; without any, after what the nodes before it use.
void place_renamed(const Graph& g, const Uses& uses, Entries& e) {
  std::vector<std::pair<std::int32_t, std::size_t>> by_node;
  for (std::size_t i : e.renamed) by_node.emplace_back(uses.at(e.all[i].id).front().node, i);
  std::sort(by_node.begin(), by_node.end());
  if (by_node.empty()) return;
  std::vector<std::pair<std::int32_t, double>> last_place;  // after node n, the largest place used so far
  double largest = 0;
  for (const Entry& entry : e.all)
    if (auto it = uses.find(entry.id); it != uses.end() && !is_made_up(g.initializers.at(entry.id).name))
      last_place.emplace_back(it->second.front().node, entry.place);
  std::sort(last_place.begin(), last_place.end());
  std::size_t next = 0;
  double step = 0;
  for (const auto& [node, i] : by_node) {
    while (next < last_place.size() && last_place[next].first <= node)
      largest = std::max(largest, last_place[next++].second);
    const std::size_t dot = e.all[i].name.rfind('.');
    const auto module =
        dot == std::string::npos ? e.place_of_module.end() : e.place_of_module.find(e.all[i].name.substr(0, dot));
    step += 1e-7;
    e.all[i].place = module != e.place_of_module.end() ? module->second - 0.5 + step : largest + 0.25 + step;
  }
}

}  // namespace

void store_initializers(const InferredValues& inferred, const std::vector<std::vector<GraphValueId>>& reads,
                        Values& values, Tape& tape) {
  const Graph& g = inferred.graph();
  const Uses uses = uses_of(g, reads);
  Entries entries = entries_of(g, uses, values);
  place_renamed(g, uses, entries);
  std::stable_sort(entries.all.begin(), entries.all.end(),
                   [](const Entry& a, const Entry& b) { return a.place < b.place; });
  std::int64_t unused = 0;
  for (const Entry& e : entries.all) {
    values.store(e.id, e.kind, e.name, e.transposed);
    if (e.kind == ValueKind::parameter && !uses.count(e.id)) ++unused;
    // BatchNorm's step counter: training reads and writes it, but no ONNX node does.
    constexpr std::string_view tail = ".running_var";
    if (e.kind == ValueKind::buffer && e.name.size() > tail.size() && e.name.ends_with(tail) && !has(e.name, "/"))
      values.make(ValueKind::buffer, e.name.substr(0, e.name.size() - tail.size()) + ".num_batches_tracked",
                  DType::int64, {});
  }
  if (unused > 0)
    tape.notes.push_back(
        {"MP006",
         fmt::format("{} stored tensors are read by no node; they are counted as parameters without a gradient",
                     unused),
         Evidence::assumed, About::weights});
}

}  // namespace memplan::onnx_format
