#include "estimators/frontends/onnx/values.h"

#include <fmt/format.h>

#include <algorithm>

#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/metadata.h"
#include "estimators/graph/exporter_notes.h"

namespace memplan::onnx_format {

namespace {

std::optional<ValueKind> kind_of(std::string_view kind) {
  if (kind == "PARAMETER") return ValueKind::parameter;
  if (kind == "BUFFER") return ValueKind::buffer;
  if (kind == "CONSTANT_TENSOR") return ValueKind::constant;
  return std::nullopt;
}

/// A table's rows of all pairs of positions, or those with the heads first: […, heads, positions, positions]. Pairs
/// that no buffer of the module numbers are worked out in the forward pass: [rows, columns, features]; with a buffer
/// [heads, rows, columns] is a table whose columns were looked up.
bool is_looked_up(std::string_view op, const std::vector<std::int64_t>& sizes, bool by_buffer) {
  const std::size_t n = sizes.size();
  if (op == "index") return n == 3 || (by_buffer && n == 2);
  if (!by_buffer) return false;
  return (op == "unsqueeze" || op == "clone" || op == "contiguous" || op == "permute") && n >= 3 &&
         sizes[n - 1] == sizes[n - 2];
}

/// T5's biases of distances, `self.bias(buckets).permute(2, 0, 1)`: the table's rows, by numbers that the forward pass
/// works out, with the heads first.
bool is_embedded(std::string_view op, const std::vector<std::string_view>& from,
                 const std::vector<std::int64_t>& sizes) {
  return (op == "unsqueeze" || op == "clone" || op == "contiguous" || op == "permute") && sizes.size() >= 3 &&
         std::ranges::any_of(from, [](std::string_view name) { return op_of_name(name) == "embedding"; });
}

/// A layer's weight after a batch norm over it, one set of statistics for each of its outputs: StdConv2d and, with a
/// gain beside the weight, ScaledStdConv2d (timm 1.0.31, layers/std_conv.py).
bool is_standardized(std::string_view op, const std::vector<std::string_view>& from,
                     const std::vector<std::size_t>& lines, const Signature& signature) {
  const auto has = [&](std::string_view step) {
    return std::ranges::any_of(from, [&](std::string_view name) { return op_of_name(name) == step; });
  };
  if ((op != "view" && op != "reshape") || !has("getitem") || lines.empty() || lines.size() > 2) return false;
  const auto leaf = [&](std::size_t i) {
    const std::string_view path = signature.inputs[lines[i]].target;
    return path.substr(path.rfind('.') + 1);
  };
  return leaf(0) == "weight" && (lines.size() == 1 || (leaf(1) == "gain" && has("mul")));
}

/// The weight of weight_norm: a gain g and a direction v (torch/nn/utils/weight_norm.py), or what the parametrization
/// of that name calls original0 and original1 (torch/nn/utils/parametrizations.py). The signature has g first.
bool is_weight_normed(std::string_view op, const std::vector<std::string_view>& from,
                      const std::vector<std::size_t>& lines, const Signature& signature) {
  if (op != "mul" || lines.size() != 2) return false;
  const std::string_view g = signature.inputs[lines[0]].target, v = signature.inputs[lines[1]].target;
  const bool named =
      (g.ends_with("_g") && v.ends_with("_v")) || (g.ends_with(".original0") && v.ends_with(".original1"));
  return named && g.substr(0, g.rfind('.')) == v.substr(0, v.rfind('.')) &&
         std::ranges::any_of(from, [](std::string_view name) { return op_of_name(name) == "linalg_vector_norm"; });
}

}  // namespace

ValueKind guess_kind(const StoredTensor& t) {
  if (!is_floating(t.dtype)) return t.sizes.empty() ? ValueKind::constant : ValueKind::buffer;
  for (const char* end : {"running_mean", "running_var", "num_batches_tracked", "inv_freq", "position_ids", "mask"})
    if (t.name.ends_with(end)) return ValueKind::buffer;
  return t.sizes.empty() ? ValueKind::constant : ValueKind::parameter;
}

Values::Values(const Graph& graph, const Symbols& symbols, Tape& tape, std::int64_t opset)
    : graph_(graph), symbols_(symbols), tape_(tape), opset_(opset) {
  of_graph_.resize(graph.values.size());
  signature_ = parse_signature(note_at(graph.metadata, "pkg.torch.export.ExportedProgram.graph_signature"));
  std::vector<std::string_view> user_inputs;
  for (std::size_t i = 0; i < signature_.inputs.size(); ++i) {
    const SignatureLine& line = signature_.inputs[i];
    line_of_.emplace(line.name, i);
    if (!line.target.empty()) line_of_target_.emplace(line.target, i);
    if (line.kind == "USER_INPUT") user_inputs.push_back(line.name);
  }
  add_inputs(user_inputs);
  const std::unordered_set<std::size_t> present = add_described_initializers();
  find_folded(present);
  for (std::size_t i = 0; i < signature_.inputs.size(); ++i)
    if (kind_of(signature_.inputs[i].kind) && !present.count(i))
      missing_targets_.emplace(signature_.inputs[i].target, i);
}

void Values::add_inputs(const std::vector<std::string_view>& user_inputs) {
  // The user may have renamed inputs at export; the signature keeps the order.
  const bool same_count = user_inputs.size() == graph_.inputs.size();
  for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
    const GraphValueId id = graph_.inputs[i];
    const GraphValue& v = graph_.values[static_cast<std::size_t>(id)];
    std::vector<std::int64_t> sizes;
    if (v.shape)
      for (std::size_t axis = 0; axis < v.shape->size(); ++axis) {
        Dim d = (*v.shape)[axis];
        if (d.open()) d.symbol = dim_name(v, axis);
        const auto size = evaluate(d, symbols_);
        if (!size)
          fail_input(fmt::format("dimension {} of input '{}' cannot be computed from '{}'", axis, v.name, d.symbol),
                     v.name);
        sizes.push_back(*size);
      }
    else
      tape_.notes.push_back({"MP007",
                             fmt::format("the file gives no shape for input '{}'; it is taken as a scalar", v.name),
                             Evidence::assumed, About::shape});
    const ValueId t = add(ValueKind::user_input, v.name, v.dtype.value_or(DType::float32), std::move(sizes));
    tape_.inputs.push_back(t);
    set(id, t);
    set_name(v.name, t);
    if (same_count) set_name(user_inputs[i], t);
    if (auto n = note_at(v.metadata, original_name_key); !n.empty()) set_name(n, t);
  }
}

ValueId Values::parameter_like(const StoredTensor& t) const {
  ValueId found;
  if (t.sizes.size() < 2 || !is_floating(t.dtype)) return found;
  for (const ValueId id : tape_.parameters) {
    const TapeValue& p = tape_.values[static_cast<std::size_t>(id.index)];
    if (p.sizes != t.sizes || p.dtype != t.dtype) continue;
    if (found.valid()) return {};  // one of several
    found = id;
  }
  return found;
}

std::unordered_set<std::size_t> Values::add_described_initializers() {
  std::unordered_set<std::size_t> present;
  std::vector<GraphValueId> lifted;
  for (const auto& [id, tensor] : graph_.initializers) {
    const GraphValue& v = graph_.values[static_cast<std::size_t>(id)];
    const auto& metadata = tensor.metadata.count(input_kind_key) ? tensor.metadata : v.metadata;
    auto kind = kind_of(note_at(metadata, input_kind_key));
    const std::string_view fx = note_at(metadata, original_name_key);
    std::optional<std::size_t> line;
    if (auto it = line_of_.find(fx); it != line_of_.end())
      line = it->second;
    else if (auto t = line_of_target_.find(tensor.name); t != line_of_target_.end())
      line = t->second;
    if (line && !kind) kind = kind_of(signature_.inputs[*line].kind);
    if (!kind) continue;
    if (kind == ValueKind::constant && line && tensor.name.starts_with("lifted_tensor_")) {
      lifted.push_back(id);
      present.insert(*line);
      continue;
    }
    const ValueId value = add_initializer(
        id, tensor, *kind,
        line && !signature_.inputs[*line].target.empty() ? std::string(signature_.inputs[*line].target) : tensor.name);
    if (!fx.empty()) set_name(fx, value);
    if (line) {
      set_name(signature_.inputs[*line].name, value);
      position_[value.index] = *line;
      present.insert(*line);
    }
  }
  for (const GraphValueId id : lifted) add_lifted(id);
  return present;
}

void Values::add_lifted(GraphValueId id) {
  const StoredTensor& tensor = graph_.initializers.at(id);
  const std::size_t line = line_of_target_.at(tensor.name);
  const ValueId twin = parameter_like(tensor);
  const ValueId value = twin.valid() ? twin : add_initializer(id, tensor, ValueKind::constant, tensor.name);
  set_name(signature_.inputs[line].name, value);
  if (!twin.valid()) {
    position_[value.index] = line;
    return;
  }
  set(id, value);
  tape_.notes.push_back(
      {"MP005",
       fmt::format("'{}' is taken for the parameter '{}', which an attribute refers to, and counted once", tensor.name,
                   tape_.values[static_cast<std::size_t>(twin.index)].name),
       Evidence::told_by_pattern, About::weights});
}

void Values::find_folded(const std::unordered_set<std::size_t>& present) {
  for (const auto& [id, tensor] : graph_.initializers) {
    const auto from = folded_from(graph_, id);
    if (from.empty()) continue;
    std::vector<std::size_t> parameters, all;
    for (const std::string_view name : from)
      if (const auto line = line_of_target_.find(name); line != line_of_target_.end()) {
        all.push_back(line->second);
        if (signature_.inputs[line->second].kind == "PARAMETER") parameters.push_back(line->second);
      }
    std::ranges::sort(all);
    const bool gone = std::ranges::none_of(all, [&](std::size_t line) { return present.count(line) > 0; });
    const std::string_view op = op_of_name(tensor.name);
    // A view of what other calls made of the parameter is more than a view, unless these are views: `w[:, None, None]`.
    const bool alone = std::ranges::all_of(from, [&](std::string_view name) {
      return name.starts_with("val_") || line_of_target_.count(name) > 0 || op_of_name(name) == "unsqueeze";
    });
    if (tensor.sizes.empty() && parameters.empty()) continue;  // a number, which may be on the CPU
    // How many rows a table had is not told.
    const char* made_by = op == "select" && !tensor.sizes.empty() ? nullptr : folded_op(tensor.name);
    if (parameters.empty() || (!gone && all.size() == 1 && !(made_by && alone)))
      folded_results_.insert(id);
    else if (parameters.size() == 1 && all.size() == 1 && (gone || alone) && made_by &&
             (alone || step_before(tensor.name, from) || made_by != std::string_view("aten::view")))
      folded_parameters_.emplace(id, signature_.inputs[parameters[0]].name);
    else if (gone && (op == "cat" || is_standardized(op, from, all, signature_) ||
                      is_weight_normed(op, from, all, signature_) ||
                      (parameters.size() == 1 && all.size() <= 2 && is_looked_up(op, tensor.sizes, all.size() == 2)) ||
                      (all.size() == 1 && is_embedded(op, from, tensor.sizes))))
      folded_lines_.emplace(id, std::move(all));
  }
}

ValueId Values::add(ValueKind kind, std::string name, DType dtype, std::vector<std::int64_t> sizes) {
  TapeValue v;
  v.name = std::move(name);
  v.kind = kind;
  v.dtype = dtype;
  v.sizes = std::move(sizes);
  v.requires_grad = kind == ValueKind::parameter && (is_floating(dtype) || is_complex(dtype));
  const ValueId id = tape_.add_value(std::move(v));
  if (kind == ValueKind::parameter) tape_.parameters.push_back(id);
  if (kind == ValueKind::buffer || kind == ValueKind::constant) tape_.buffers.push_back(id);
  return id;
}

ValueId Values::add_initializer(GraphValueId id, const StoredTensor& t, ValueKind kind, std::string name) {
  const ValueId value = add(kind, std::move(name), t.dtype, t.sizes);
  TapeValue& v = tape_.values[static_cast<std::size_t>(value.index)];
  if (t.integers.size() == 1 && t.sizes.size() <= 1) v.number = t.integers[0];
  // torch.tensor(3.0) in a forward pass makes a CPU tensor, and an op takes a 0-dim one without copying it.
  v.on_host = kind == ValueKind::constant && t.sizes.empty();
  set(id, value);
  return value;
}

const InferredValues& Values::inferred() {
  if (!inferred_) inferred_ = std::make_unique<InferredValues>(graph_, symbols_, opset_);
  return *inferred_;
}

ValueId Values::store(GraphValueId id, ValueKind kind, std::string name, bool transposed) {
  const StoredTensor& t = graph_.initializers.at(id);
  const ValueId value = add_initializer(id, t, kind, std::move(name));
  if (transposed) {
    std::swap(tape_.values[static_cast<std::size_t>(value.index)].sizes.at(0),
              tape_.values[static_cast<std::size_t>(value.index)].sizes.at(1));
    transposed_.insert(id);
  }
  return value;
}

ValueId Values::of(GraphValueId id, bool as_parameter) {
  if (id < 0) return {};
  const ValueId known = of_graph_[static_cast<std::size_t>(id)];
  if (known.valid()) return known;
  const auto it = graph_.initializers.find(id);
  if (it == graph_.initializers.end()) return {};
  const bool trained = as_parameter && is_floating(it->second.dtype) && !it->second.sizes.empty();
  return add_initializer(id, it->second, trained ? ValueKind::parameter : ValueKind::constant,
                         graph_.values[static_cast<std::size_t>(id)].name);
}

ValueId Values::of_name(std::string_view name) const {
  const auto it = of_name_.find(name);
  return it == of_name_.end() ? ValueId{} : it->second;
}

const SignatureLine* Values::missing(std::string_view fx_name) const {
  const auto it = line_of_.find(fx_name);
  if (it == line_of_.end() || !missing_targets_.count(signature_.inputs[it->second].target)) return nullptr;
  return &signature_.inputs[it->second];
}

ValueId Values::make_missing(std::string_view fx_name, DType dtype, std::vector<std::int64_t> sizes) {
  const std::size_t line = line_of_.at(fx_name);
  const SignatureLine& s = signature_.inputs[line];
  if (const ValueId there = of_name(s.name); there.valid() && !missing_targets_.count(s.target)) return there;
  const ValueId value =
      add(kind_of(s.kind).value_or(ValueKind::constant), std::string(s.target), dtype, std::move(sizes));
  position_[value.index] = line;
  missing_targets_.erase(s.target);
  set_name(s.name, value);
  return value;
}

/// "encoder.norm.weight" of any parameter called "….weight" that is used in "encoder.norm", where the signature has it
/// and the file has no tensor for it; else empty.
std::string Values::missing_in(ValueId value, std::string_view scope) const {
  if (missing_targets_.empty() || !value.valid()) return {};
  const TapeValue& v = tape_.values[static_cast<std::size_t>(value.index)];
  if (v.kind != ValueKind::parameter) return {};
  const std::string leaf = v.name.substr(v.name.rfind('.') + 1);
  std::string here = scope.empty() ? leaf : fmt::format("{}.{}", scope, leaf);
  return here != v.name && missing_targets_.count(here) ? here : std::string();
}

void Values::use_in_scope(ValueId value, std::string_view scope) {
  const std::string here = missing_in(value, scope);
  if (here.empty()) return;
  TapeValue& v = tape_.values[static_cast<std::size_t>(value.index)];
  const auto it = missing_targets_.find(here);
  const std::size_t line = it->second;
  missing_targets_.erase(it);
  const std::string other = v.name;
  // named_parameters() lists a tied parameter once, under its first name.
  if (auto p = position_.find(value.index); p == position_.end() || line < p->second) {
    v.name = here;
    position_[value.index] = line;
  }
  tape_.notes.push_back({"MP005", fmt::format("parameters '{}' and '{}' are tied and counted once", here, other),
                         Evidence::told_by_name, About::weights});
}

ValueId Values::of_module(ValueId value, std::string_view scope) {
  const std::string here = missing_in(value, scope);
  if (here.empty()) return value;
  const TapeValue merged = tape_.values[static_cast<std::size_t>(value.index)];
  return make_missing(signature_.inputs[missing_targets_.at(here)].name, merged.dtype, merged.sizes);
}

ValueId Values::lost_of_module(GraphValueId like, std::string_view scope) {
  if (lost_of_.empty())
    for (std::size_t i = signature_.inputs.size(); i-- > 0;)
      if (const SignatureLine& line = signature_.inputs[i]; line.kind == "PARAMETER") {
        const auto dot = line.target.rfind('.');
        lost_of_[line.target.substr(0, dot == line.target.npos ? 0 : dot)].push_back(i);
      }
  const auto lines = lost_of_.find(scope);
  const StoredTensor& t = graph_.initializers.at(like);
  while (lines != lost_of_.end() && !lines->second.empty()) {
    const SignatureLine& line = signature_.inputs[lines->second.back()];
    lines->second.pop_back();
    if (missing_targets_.contains(line.target)) return make_missing(line.name, t.dtype, t.sizes);
  }
  return {};
}

bool may_be_merged(const std::vector<std::int64_t>& sizes) { return count_of(sizes) <= 1024; }

std::vector<const SignatureLine*> Values::folded_lines(GraphValueId id) const {
  std::vector<const SignatureLine*> out;
  if (const auto it = folded_lines_.find(id); it != folded_lines_.end())
    for (std::size_t line : it->second) out.push_back(&signature_.inputs[line]);
  return out;
}

ValueId Values::viewed_buffer(GraphValueId id) {
  const auto keeps_all = [](std::string_view op) {
    return op == "view" || op == "unsqueeze" || op == "squeeze" || op == "reshape";
  };
  const auto is_view = [&](std::string_view op) { return op == "slice" || op == "expand" || keeps_all(op); };
  const std::string_view result = op_of_name(graph_.values[static_cast<std::size_t>(id)].name);
  const bool compares = result == "eq";  // "self.mask[:, :, :n, :n] == 0"
  if (!compares && !is_view(result)) return {};
  const SignatureLine* buffer = nullptr;
  bool all = compares || keeps_all(result);
  for (const std::string_view name : folded_from(graph_, id)) {
    const std::string_view op = op_of_name(name);
    // The numbers of the slice, and what is compared with.
    if (name.starts_with("val_") || op.starts_with("scalar_tensor") || op == "alias") continue;
    if (is_view(op)) {
      all = all && keeps_all(op);
      continue;
    }
    const auto line = line_of_target_.find(name);
    if (line == line_of_target_.end() || buffer || signature_.inputs[line->second].kind != "BUFFER") return {};
    buffer = &signature_.inputs[line->second];
  }
  if (!buffer || (compares && !missing_targets_.count(buffer->target))) return {};
  if (missing_targets_.count(buffer->target)) {
    if (const auto sizes = sizes_of_positions(buffer->target)) return make_missing(buffer->name, DType::int64, *sizes);
    // It has the elements of what became of it.
    if (const auto stored = graph_.initializers.find(id); (all || compares) && stored != graph_.initializers.end())
      return make_missing(buffer->name, compares ? DType::float32 : stored->second.dtype, stored->second.sizes);
  }
  return of_name(buffer->name);
}

}  // namespace memplan::onnx_format
