#include "estimators/frontends/onnx/copied_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "estimators/frontends/onnx/changed_graph.h"
#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/fx_rewrites.h"
#include "estimators/frontends/onnx/fx_text.h"
#include "estimators/frontends/onnx/metadata.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

std::string_view module_of_node(const GraphNode& node) {
  const auto scopes = parse_python_strings(note_at(node.metadata, scopes_key));
  return scopes.size() < 2 ? std::string_view{} : scopes[scopes.size() - 2];
}

std::string_view parent_of(std::string_view path) {
  const auto dot = path.rfind('.');
  return dot == path.npos ? std::string_view() : path.substr(0, dot);
}

bool is_within(std::string_view path, std::string_view root) {
  return root.empty() || path == root || (path.starts_with(root) && path[root.size()] == '.');
}

Parting parting(std::string_view path, std::string_view other) {
  const auto is_index = [](std::string_view s) { return !s.empty() && s.find_first_not_of("0123456789") == s.npos; };
  Parting found;
  std::size_t begin = 0, there = 0;  // of the parts that are compared
  while (begin < path.size()) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::size_t its_end = std::min(other.find('.', std::min(there, other.size())), other.size());
    const std::string_view part = path.substr(begin, end - begin);
    const std::string_view its = there < other.size() ? other.substr(there, its_end - there) : std::string_view{};
    if (part != its) {
      const bool both = is_index(part) && is_index(its);
      if (found.root.empty()) found = {path.substr(0, end), other.substr(0, its_end), both};
      if (!both) return found;
      found.inner = path.substr(0, end);
      found.inner_other = other.substr(0, its_end);
    }
    begin = end + 1;
    there = its_end + 1;
  }
  return found;
}

std::string moved(std::string_view path, const Parting& p) {
  if (is_within(path, p.inner)) return std::string(p.inner_other).append(path.substr(p.inner.size()));
  if (is_within(path, p.root)) return std::string(p.other).append(path.substr(p.root.size()));
  return std::string(path);
}

std::string with_module(const std::string& text, const Parting& p) {
  std::string out;
  std::size_t from = 0;
  for (std::size_t i = text.find(p.root); i != std::string::npos; i = text.find(p.root, std::max(i + 1, from))) {
    const std::size_t end = std::min(text.find('\'', i), text.size());
    const std::string_view path = std::string_view(text).substr(i, end - i);
    if ((i > 0 && text[i - 1] != '\'') || !is_within(path, p.root)) continue;
    out += text.substr(from, i - from);
    out += moved(path, p);
    from = end;
  }
  return out + text.substr(from);
}

std::string renamed(std::string_view text, const std::unordered_map<std::string, std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    out += text[i++];
    if (text[i - 1] != '%') continue;
    std::size_t end = i;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
    const std::string name(text.substr(i, end - i));
    const auto it = names.find(name);
    out += it == names.end() ? name : it->second;
    i = end;
  }
  return out;
}

bool may_do_nothing(std::string_view op) {
  for (std::string_view o : {"clone",
                             "alias",
                             "detach",
                             "detach_",
                             "dropout",
                             "native_dropout",
                             "contiguous",
                             "to",
                             "_to_copy",
                             "type_as",
                             "lift_fresh_copy",
                             "lift_fresh",
                             "view",
                             "_unsafe_view",
                             "reshape",
                             "expand",
                             "slice",
                             "select",
                             "unsqueeze",
                             "squeeze",
                             "permute",
                             "transpose",
                             "t",
                             "flatten",
                             "getitem",
                             "sym_size_int",
                             "scalar_tensor_default"})
    if (op == o) return true;
  return false;
}

std::optional<double> neutral_number(std::string_view op) {
  if (op == "mul" || op == "div") return 1.0;
  if (op == "add" || op == "sub") return 0.0;
  return std::nullopt;
}

std::string_view call_of_same(std::string_view op, const GraphNode& reader, bool bound) {
  if (op == "relu") return bound ? "relu.default" : "";
  if (op == "clamp") return bound ? "clamp.default , 0.0, 1.0" : "";
  if (op == "detach") return "detach.default";
  if (op == "view_as_real") return "view_as_real.default";
  if (op == "view_as_complex") return "view_as_complex.default";
  if (op != "pad" && op != "constant_pad_nd") return {};
  const auto pads = reader.attributes.find("pads");
  const auto* own = pads == reader.attributes.end() ? nullptr : std::get_if<std::vector<std::int64_t>>(&pads->second);
  const bool fused = own && std::ranges::any_of(*own, [](std::int64_t n) { return n != 0; });
  return fused ? "" : "constant_pad_nd.default , [0, 0]";
}

bool asks_for_copy(const GraphNode& maker) {
  return last_frame(note_at(maker.metadata, stack_trace_key)).find(".clone()") != std::string_view::npos;
}

bool copies_before_detach(const GraphNode& reader) {
  const std::string_view lines = note_at(reader.metadata, stack_trace_key);
  for (auto at = lines.find(copying_detach); at != lines.npos; at = lines.find(copying_detach, at + 1)) {
    const auto begin = lines.rfind('\n', at), end = lines.find('\n', at);
    const std::string_view line = lines.substr(0, end).substr(begin == lines.npos ? 0 : begin);
    if (line.find(".detach()") == line.rfind(".detach()")) return true;
  }
  return false;
}

bool is_bound(const Graph& graph, const FxGroup& call) {
  const std::string& op = graph.nodes[at(call.nodes.back())].op_type;
  return call.nodes.size() == 1 && (op == "Clip" || op == "Relu");
}

bool gives_one(const FxGroup& call) {
  const std::string_view target = call.text.target;
  const bool norm = target.find("native_batch_norm") != target.npos;
  return (norm || outputs_of(op_of_target(target)) == 1) && target.find("aten") != target.npos;
}

bool counts_sizes(std::string_view op) {
  for (std::string_view o : {"mul", "add", "sub", "floordiv", "mod", "pow", "neg", "eq", "ge", "gt", "le", "lt", "ne"})
    if (op == o) return true;
  return false;
}

bool converts(const Graph& graph, const FxGroup& call) {
  const GraphNode& node = graph.nodes[at(call.nodes.back())];
  if (node.op_type != "Cast" || node.inputs.empty() || node.outputs.empty() || node.inputs[0] < 0) return false;
  const auto from = graph.values[at(node.inputs[0])].dtype, to = graph.values[at(node.outputs[0])].dtype;
  return from && to && *from != *to;
}

std::vector<bool> known_names(const Graph& graph, const FxProgram& program, const Signature& signature) {
  std::vector<bool> known(program.names.size(), false);
  const auto know = [&](std::string_view name) {
    if (const std::int32_t n = program.find(name); n >= 0) known[at(n)] = true;
  };
  for (const FxGroup& call : program.groups) {
    bool convolves = false;
    for (std::int32_t n : call.nodes) {
      convolves = convolves || graph.nodes[at(n)].op_type == "Conv";
      for (GraphValueId id : graph.nodes[at(n)].outputs)
        if (id >= 0) know(graph.values[at(id)].name);
    }
    if (call.name < 0) continue;
    known[at(call.name)] = true;
    // A convolution that became one node with the norm behind it: the norm's text alone names it.
    if (convolves && call.text.target.find("batch_norm") != std::string_view::npos && !call.text.args.empty())
      if (const auto* layer = std::get_if<ValueId>(&call.text.args[0].value)) known[at(layer->index)] = true;
  }
  const auto know_value = [&](GraphValueId id) {
    know(graph.values[at(id)].name);
    know(note_at(graph.values[at(id)].metadata, original_name_key));
  };
  for (GraphValueId id : graph.inputs) know_value(id);
  for (const auto& [id, t] : graph.initializers) {
    know_value(id);
    know(t.name);
    know(note_at(t.metadata, original_name_key));
  }
  for (const SignatureLine& line : signature.inputs) know(line.name);
  return known;
}

bool is_turned(std::string_view target) {
  for (std::string_view op : {"permute.", "transpose.", "t.default", "expand.", "squeeze.", "select.", "slice."})
    if (target.find(op) != target.npos && target.starts_with("torch.ops.aten.")) return true;
  return false;
}

std::vector<ValueId> tensors_of(const FxGroup& group) {
  std::vector<ValueId> out;
  const std::string_view t = group.text.target;
  const bool of_tensors = t.find("aten.cat.") != t.npos || t.find("aten.stack.") != t.npos ||
                          t.find("aten.index.") != t.npos || t.find("aten.index_put.") != t.npos;
  for (const Arg& a : group.text.args)
    if (of_tensors || std::holds_alternative<ValueId>(a.value))
      for_each_value(a, [&](ValueId id) { out.push_back(id); });
  return out;
}

bool is_dropped_out(const GraphNode& here, const GraphNode& view, std::string_view name, std::string_view target) {
  const std::string_view op = op_of_name(name);
  if (note_at(here.metadata, stack_trace_key).find("contiguous") != std::string_view::npos) return false;
  if (target.find("aten.matmul.") != target.npos && op == "slice") return true;
  if (module_of_node(here) == module_of_node(view)) return false;
  if (target.find("aten.linear.") != target.npos && (op == "select" || op == "slice")) return true;
  const std::string_view trace = note_at(view.metadata, stack_trace_key);
  const auto line = trace.rfind("    return ");
  return line != trace.npos && trace.substr(line).find(fmt::format(".{}(", op)) != trace.npos;
}

std::int64_t number_of_name(std::string_view name) {
  const std::string_view op = op_of_name(name);
  if (op.size() == name.size()) return 0;
  std::int64_t n = 0;
  for (char c : name.substr(op.size() + 1)) n = n < 100'000'000 ? n * 10 + (c - '0') : n;
  return n;
}

bool gives_item(const FxGroup& g) {
  return g.text.target.find("native_dropout") != std::string_view::npos ||
         g.text.target.find("native_batch_norm") != std::string_view::npos;
}

bool takes_any_layout(std::string_view target) {
  return target.find("aten._unsafe_view.") != target.npos || target.find("aten.reshape.") != target.npos;
}

namespace {

/// Replaces the last occurrence.
bool replace_last(std::string& text, const std::string& what, const std::string& by) {
  const auto at = what.empty() ? text.npos : text.rfind(what);
  if (at == text.npos) return false;
  text.replace(at, what.size(), by);
  return true;
}

/// "x = self.bn3(x)" -> "x = self.conv3(x)". What the norm's line names is what the line before it bound. One line for
/// both, "self.bn3(self.conv3(x))", or one that calls modules by another name, is the layer's line as well.
void write_own_line(std::string& trace, std::string_view norm, std::string_view layer) {
  const std::string call = "self." + std::string(norm) + "(", own = "self." + std::string(layer) + "(";
  const auto at = trace.rfind(call);
  if (at == trace.npos) return;
  const auto line = trace.rfind('\n', at), end = std::min(trace.find('\n', at), trace.size());
  if (line == trace.npos || trace.substr(line, end - line).find(own) != trace.npos) return;
  const auto first = at + call.size(), last = trace.find_first_of(",)", first);
  const std::string name = trace.substr(first, last == trace.npos ? 0 : last - first);
  const bool plain = !name.empty() && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  });
  const auto text = trace.find_first_not_of(' ', line + 1);
  if (plain) trace.replace(text, end - text, name + " = " + own + name + ")");
}

std::string class_of_layer(const GraphNode& node) {
  return std::string("torch.nn.modules.") + (node.op_type == "Gemm"   ? "linear.Linear"
                                             : node.op_type == "Conv" ? "conv.Conv2d"
                                                                      : "conv.ConvTranspose2d");
}

/// A frame further out calls the layer before it calls what has the norm, `x = self.conv1(x)` before `x =
/// self.block1(x)`: the second line stands for the first, since one name holds what the layer made until the other call
/// returns.
void move_out(GraphNode& node, std::string_view layer) {
  const auto scopes = parse_python_strings(note_at(node.metadata, scopes_key));
  const auto classes = parse_python_strings(note_at(node.metadata, classes_key));
  const auto caller = static_cast<std::size_t>(std::ranges::find(scopes, parent_of(layer)) - scopes.begin());
  if (caller + 3 >= scopes.size() || scopes.size() != classes.size()) return;
  const auto list = [&](const std::vector<std::string_view>& names, const std::string& own) {
    const std::vector<std::string_view> outer(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(caller) + 1);
    return fmt::format("['{}', '{}', '{}']", fmt::join(outer, "', '"), own, names.back());
  };
  std::string trace(note_at(node.metadata, stack_trace_key));
  trace.resize(frame_at(trace, caller + 1));
  const std::string now = list(scopes, std::string(layer)), kinds = list(classes, class_of_layer(node));
  node.metadata[scopes_key] = now;
  node.metadata[classes_key] = kinds;
  node.metadata[stack_trace_key] =
      trace + "File \"torch/nn/modules/conv.py\", line 553, in forward\n    return self._conv_forward(input)";
}

/// The layer and its norm are parts of one module: the node has the norm's place.
void name_after_layer(GraphNode& node, std::string_view layer) {
  const std::string norm(module_of_node(node));
  if (norm.empty() || norm == layer ||
      !replace_last(node.metadata[scopes_key], "'" + norm + "'", "'" + std::string(layer) + "'"))
    return;
  const std::vector<std::string_view> classes = parse_python_strings(note_at(node.metadata, classes_key));
  if (classes.size() > 1) {
    const std::string before = "'" + std::string(classes[classes.size() - 2]) + "'";
    replace_last(node.metadata[classes_key], before, "'" + class_of_layer(node) + "'");
  }
  write_own_line(node.metadata[stack_trace_key], memplan::leaf_of(norm), memplan::leaf_of(layer));
}

}  // namespace

void lead_with(GraphNode& node, const GraphNode& reader, std::size_t frames) {
  const auto trace = node.metadata.find(stack_trace_key);
  if (trace == node.metadata.end()) return;
  const std::string_view lines = note_at(reader.metadata, stack_trace_key);
  trace->second =
      std::string(lines.substr(0, frame_at(lines, frames))) + trace->second.substr(frame_at(trace->second, frames));
}

void move_to_twin(GraphNode& node, const GraphNode& reader) {
  const auto mine = parse_python_strings(note_at(node.metadata, scopes_key));
  const auto its = parse_python_strings(note_at(reader.metadata, scopes_key));
  const auto kinds = parse_python_strings(note_at(node.metadata, classes_key));
  const auto its_kinds = parse_python_strings(note_at(reader.metadata, classes_key));
  const std::size_t common = std::min({mine.size(), its.size(), kinds.size(), its_kinds.size()});
  std::size_t i = 0;
  while (i < common && mine[i] == its[i]) ++i;
  if (i + 1 >= common || kinds[i] != its_kinds[i]) return;  // the last one is the node itself
  const std::string scopes = with_module(node.metadata[scopes_key], {mine[i], its[i]});
  lead_with(node, reader, i);
  node.metadata[scopes_key] = scopes;
}

void move_lines(GraphNode& node, const GraphNode& reader) {
  const auto mine = parse_python_strings(note_at(node.metadata, scopes_key));
  const auto its = parse_python_strings(note_at(reader.metadata, scopes_key));
  std::size_t common = 0;  // without the nodes themselves
  while (common + 1 < std::min(mine.size(), its.size()) && mine[common] == its[common]) ++common;
  if (common >= 2 && !note_at(reader.metadata, stack_trace_key).empty()) lead_with(node, reader, common - 1);
}

void move_home(Graph& g, std::size_t conv, std::string_view layer) {
  GraphNode& node = g.nodes[conv];
  if (layer.empty()) return;
  if (parent_of(layer) == parent_of(module_of_node(node))) return name_after_layer(node, layer);
  if (parent_of(layer).empty()) return move_out(node, layer);
  constexpr std::size_t near = 8;  // the nodes of the layer beside it
  for (std::size_t i = conv; i-- > 0 && i + near > conv;) {
    const std::string beside(module_of_node(g.nodes[i]));
    if (parent_of(beside) != parent_of(layer)) continue;
    for (const char* key : {scopes_key, classes_key, stack_trace_key})
      if (const auto from = g.nodes[i].metadata.find(key); from != g.nodes[i].metadata.end())
        node.metadata[key] = from->second;
    std::string& scopes = node.metadata[scopes_key];
    const std::string quoted = "'" + beside + "'";
    if (const auto at = scopes.rfind(quoted); at != scopes.npos)
      scopes.replace(at, quoted.size(), "'" + std::string(layer) + "'");
    return;
  }
  move_out(node, layer);
}

}  // namespace memplan::onnx_format
