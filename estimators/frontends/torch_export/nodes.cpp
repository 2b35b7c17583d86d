#include "estimators/frontends/torch_export/nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "estimators/base/error.h"
#include "estimators/base/whole_number.h"
#include "estimators/frontends/onnx/scopes.h"
#include "estimators/frontends/torch_export/expression.h"

namespace memplan::torch_export {

namespace {

using nlohmann::json;

constexpr int max_graph_depth = 16;
constexpr std::size_t max_rank = 64;  ///< PyTorch's own limit of a tensor's dimensions

/// torch/_export/serde/schema.py, ScalarType; not the numbers of c10.
std::optional<DType> dtype_of(std::int64_t n) {
  switch (n) {
    case 1:
      return DType::uint8;
    case 2:
      return DType::int8;
    case 3:
      return DType::int16;
    case 4:
      return DType::int32;
    case 5:
      return DType::int64;
    case 6:
      return DType::float16;
    case 7:
      return DType::float32;
    case 8:
      return DType::float64;
    case 10:
      return DType::complex64;
    case 11:
      return DType::complex128;
    case 12:
      return DType::boolean;
    case 13:
      return DType::bfloat16;
    case 28:
      return DType::uint16;
    case 29:
    case 31:
      return DType::float8_e4m3fn;
    case 30:
    case 32:
      return DType::float8_e5m2;
    default:
      return std::nullopt;
  }
}

constexpr const char* in_graph = "the graph";

const char* memory_format(std::int64_t n) {
  switch (n) {
    case 1:
      return "contiguous_format";
    case 2:
      return "channels_last";
    case 3:
      return "channels_last_3d";
    default:
      return "preserve_format";
  }
}

Dim dim_of(const json& j) {
  Dim d;
  if (const auto n = j.find("as_int"); n != j.end()) {
    d.size = whole_number_of(*n, in_graph);
  } else if (const auto e = j.find("as_expr"); e != j.end()) {
    d.symbol = infix(e->at("expr_str").get<std::string>());
  }
  return d;
}

double real_of(const json& j) {
  if (j.is_number()) return j.get<double>();
  const std::string text = j.is_string() ? j.get<std::string>() : std::string();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

TensorMeta tensor_meta(const json& j, const std::string& name, const std::string& where) {
  TensorMeta out;
  const auto dtype = dtype_of(whole_number_of(j.at("dtype"), in_graph));
  if (!dtype)
    fail_input(fmt::format("the tensor '{}' has an element type that memplan does not know (number {})", name,
                           j.at("dtype").dump()),
               where);
  out.dtype = *dtype;
  const json& sizes = j.at("sizes");
  if (sizes.size() > max_rank)
    fail_input(fmt::format("the tensor '{}' has {} dimensions, more than PyTorch allows", name, sizes.size()), where);
  for (const json& s : sizes) {
    out.sizes.push_back(dim_of(s));
    if (out.sizes.back().size < 0 && out.sizes.back().symbol.empty() && s.contains("as_int"))
      fail_input(fmt::format("the tensor '{}' has a negative size", name), where);
  }
  out.requires_grad = j.value("requires_grad", false);
  return out;
}

NameId Reader::intern(const std::string& name) {
  const auto [it, fresh] = names_.emplace(name, static_cast<NameId>(program_.names.size()));
  if (fresh) program_.names.push_back({name, std::nullopt, std::nullopt});
  return it->second;
}

/// {"as_name": "sym_size"} or {"as_int": 3}.
Arg Reader::named(const json& j, const char* key) {
  if (const auto n = j.find("as_name"); n != j.end()) return {ValueId{intern(n->get<std::string>())}};
  const json& literal = j.at(key);
  if (literal.is_boolean()) return {literal.get<bool>()};
  if (literal.is_number_integer()) return {whole_number_of(literal, in_graph)};
  return {real_of(literal)};
}

Arg Reader::argument(const json& j, int depth) {
  if (!j.is_object() || j.size() != 1 || depth > max_graph_depth)
    fail_input("an argument of a node has an unknown form", where_);
  const std::string& kind = j.begin().key();
  const json& v = j.begin().value();
  auto list = [&](auto&& item) {
    Arg::List out;
    out.reserve(v.size());
    for (const json& x : v) out.push_back(item(x));
    return Arg{std::move(out)};
  };
  auto tensor = [&](const json& x) { return Arg{ValueId{intern(x.at("name").get<std::string>())}}; };
  if (kind == "as_tensor") return tensor(v);
  if (kind == "as_none") return {};
  if (kind == "as_int") return {whole_number_of(v, in_graph)};
  if (kind == "as_float") return {real_of(v)};
  if (kind == "as_bool") return {v.get<bool>()};
  if (kind == "as_string") return {v.get<std::string>()};
  if (kind == "as_ints") return list([](const json& x) { return Arg{whole_number_of(x, in_graph)}; });
  if (kind == "as_floats") return list([](const json& x) { return Arg{real_of(x)}; });
  if (kind == "as_bools") return list([](const json& x) { return Arg{x.get<bool>()}; });
  if (kind == "as_strings") return list([](const json& x) { return Arg{x.get<std::string>()}; });
  if (kind == "as_tensors") return list(tensor);
  if (kind == "as_sym_int") return named(v, "as_int");
  if (kind == "as_sym_ints") return list([&](const json& x) { return named(x, "as_int"); });
  if (kind == "as_sym_bool") return named(v, "as_bool");
  if (kind == "as_sym_bools") return list([&](const json& x) { return named(x, "as_bool"); });
  if (kind == "as_sym_float") return named(v, "as_float");
  if (kind == "as_sym_floats") return list([&](const json& x) { return named(x, "as_float"); });
  if (kind == "as_scalar_type") {
    if (const auto d = dtype_of(whole_number_of(v, in_graph))) return {*d};
    fail_input(fmt::format("an argument names an element type that memplan does not know (number {})", v.dump()),
               where_);
  }
  if (kind == "as_memory_format") return {std::string(memory_format(whole_number_of(v, in_graph)))};
  if (kind == "as_layout") return {std::string(v == 7 ? "strided" : "sparse")};
  if (kind == "as_device") return {v.value("type", std::string("cpu"))};
  if (kind == "as_optional_tensor") return argument(v, depth + 1);
  if (kind == "as_optional_tensors") return list([&](const json& x) { return argument(x, depth + 1); });
  if (kind == "as_nested_tensors")
    return list([&](const json& x) {
      Arg::List inner;
      for (const json& t : x) inner.push_back(tensor(t));
      return Arg{std::move(inner)};
    });
  if (kind == "as_int_lists")
    return list([](const json& x) {
      Arg::List inner;
      for (const json& n : x) inner.push_back(Arg{whole_number_of(n, in_graph)});
      return Arg{std::move(inner)};
    });
  if (kind == "as_graph") return {std::string("graph")};
  return {kind};  // operators, custom objects, "as_complex": of complex numbers only that they are such
}

void Reader::outputs(const json& j, std::vector<NameId>& out, int depth) {
  auto add = [&](auto&& self, const Arg& a) -> void {
    if (const auto* list = std::get_if<Arg::List>(&a.value)) {
      for (const Arg& x : *list) self(self, x);
    } else {
      const auto* id = std::get_if<ValueId>(&a.value);
      out.push_back(id ? id->index : -1);
    }
  };
  for (const json& o : j) add(add, argument(o, depth));
}

/// "key,path,class;key,path,class": the path of a repeated call ends in "@1".
void Reader::module_stack(const std::string& text, Node& out) const {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(';', at), text.size());
    const std::string_view entry = std::string_view(text).substr(at, end - at);
    at = end + 1;
    const std::size_t first = entry.find(','), last = entry.rfind(',');
    if (first == std::string_view::npos || first == last) continue;
    std::string_view path = entry.substr(first + 1, last - first - 1);
    if (path.rfind("_empty_nn_module_stack", 0) == 0) return;
    if (path.rfind("L['self'].", 0) == 0) path.remove_prefix(10);
    if (path == "L['self']") path = {};
    out.paths.emplace_back(path.substr(0, path.find('@')));
    out.classes.emplace_back(entry.substr(last + 1));
  }
}

void Reader::node(const json& j, Node& out, int depth) {
  out.target = j.at("target").get<std::string>();
  for (const json& in : j.at("inputs")) {
    const json& value = in.at("arg");
    if (value.is_object() && value.size() == 1 && value.begin().key() == "as_graph") {
      // The subgraph has names of its own.
      std::unordered_map<std::string, NameId> outer;
      outer.swap(names_);
      out.graphs.push_back(graph(value.at("as_graph").at("graph"), depth + 1));
      names_.swap(outer);
      continue;
    }
    NodeInput input;
    input.name = in.value("name", std::string());
    input.value = argument(value, 0);
    if (const auto k = in.find("kind"); k != in.end() && k->is_number_integer())
      input.kind = *k == 1 ? ArgumentKind::positional : *k == 2 ? ArgumentKind::keyword : ArgumentKind::unknown;
    out.inputs.push_back(std::move(input));
  }
  outputs(j.at("outputs"), out.outputs, 0);
  const auto metadata = j.find("metadata");
  if (metadata == j.end() || !metadata->is_object()) return;
  if (const auto m = metadata->find("nn_module_stack"); m != metadata->end() && m->is_string())
    module_stack(m->get<std::string>(), out);
  if (const auto f = metadata->find("torch_fn"); f != metadata->end() && f->is_string()) {
    const auto& text = f->get_ref<const std::string&>();  // "float_1;method_descriptor.float"
    if (text.find(';') != std::string::npos && text.find("OpOverload") == std::string::npos)
      out.function = text.substr(text.rfind('.') + 1);
  }
  if (const auto s = metadata->find("stack_trace"); s != metadata->end() && s->is_string()) {
    const auto& trace = s->get_ref<const std::string&>();
    const auto [it, fresh] = traces_.try_emplace(trace);
    if (fresh) it->second = onnx_format::stack_lines(trace);
    out.lines = it->second;
    out.in_checkpoint = onnx_format::without_checkpoint_frames(out.lines);
  }
}

std::int32_t Reader::graph(const json& j, int depth) {
  if (depth > max_graph_depth)
    fail_input(fmt::format("subgraphs are nested deeper than {} levels", max_graph_depth), where_);
  const auto index = static_cast<std::int32_t>(program_.graphs.size());
  program_.graphs.emplace_back();
  Subgraph g;
  for (const json& in : j.at("inputs")) {
    const Arg a = argument(in, 0);
    const auto* id = std::get_if<ValueId>(&a.value);
    g.inputs.push_back(id ? id->index : -1);
  }
  const json& nodes = j.at("nodes");
  g.nodes.resize(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) node(nodes[i], g.nodes[i], depth);
  for (const json& out : j.at("outputs")) g.outputs.push_back(argument(out, 0));
  for (const auto& [name, meta] : j.at("tensor_values").items())
    program_.names[static_cast<std::size_t>(intern(name))].tensor = tensor_meta(meta, name, where_);
  if (const auto ints = j.find("sym_int_values"); ints != j.end())
    for (const auto& [name, size] : ints->items())
      program_.names[static_cast<std::size_t>(intern(name))].number = dim_of(size);
  program_.graphs[static_cast<std::size_t>(index)] = std::move(g);
  return index;
}

}  // namespace memplan::torch_export
