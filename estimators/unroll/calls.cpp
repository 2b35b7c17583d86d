#include "estimators/unroll/calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "estimators/base/error.h"
#include "estimators/frontends/onnx/fx_rewrites.h"
#include "estimators/frontends/onnx/fx_text.h"
#include "estimators/runtime/torch/aten/arguments.h"
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/setup/field.h"

namespace memplan::torchscript {

namespace {

/// Each is a node in memory; the largest models have some 100,000.
constexpr std::size_t most_calls = 500'000;

/// c10/core/ScalarType.h
constexpr std::pair<std::int64_t, DType> scalar_types[] = {
    {0, DType::uint8},        {1, DType::int8},           {2, DType::int16},    {3, DType::int32},
    {4, DType::int64},        {5, DType::float16},        {6, DType::float32},  {7, DType::float64},
    {9, DType::complex64},    {10, DType::complex128},    {11, DType::boolean}, {15, DType::bfloat16},
    {23, DType::float8_e5m2}, {24, DType::float8_e4m3fn}, {27, DType::uint16},  {28, DType::uint32},
    {29, DType::uint64}};

std::int64_t number_of(DType dtype) {
  for (const auto& [n, d] : scalar_types)
    if (d == dtype) return n;
  return 6;
}

std::optional<DType> dtype_of(std::int64_t number) {
  for (const auto& [n, d] : scalar_types)
    if (n == number) return d;
  return std::nullopt;
}

const char* memory_format(std::int64_t n) {
  constexpr const char* names[] = {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"};
  return names[n >= 0 && n < 4 ? n : 1];
}

/// As in lower_program: where a tensor is and how it is laid out is the planned device's business.
bool is_placement(std::string_view name) { return name == "device" || name == "pin_memory" || name == "layout"; }

bool is_literal(const V& v, const Literal& l) {
  struct Visitor {
    const V& v;
    bool operator()(const Literal::None&) const { return v.is_none(); }
    bool operator()(bool b) const { return v.get<bool>() && *v.get<bool>() == b; }
    bool operator()(std::int64_t n) const { return v.get<std::int64_t>() && *v.get<std::int64_t>() == n; }
    bool operator()(double d) const { return v.get<double>() && *v.get<double>() == d; }
    bool operator()(const std::string& s) const { return v.get<std::string>() && *v.get<std::string>() == s; }
    bool operator()(const Literal::List& list) const {
      const auto* items = v.get<ListV>();
      return items && std::equal((*items)->begin(), (*items)->end(), list.items.begin(), list.items.end(), is_literal);
    }
    bool operator()(const Literal::TensorNo&) const { return false; }
    bool operator()(const Literal::Training&) const { return false; }
    bool operator()(const Literal::Device&) const { return false; }
    bool operator()(const Literal::Object&) const { return false; }
    bool operator()(const Literal::Dictionary&) const { return false; }
  };
  return std::visit(Visitor{v}, l.value);
}

}  // namespace

Calls::Calls(const Script& script, torch_export::Program& program) : script_(script), program_(program) {
  setup_.mode = Mode::inference;
  run_ = std::make_unique<Run>(run_options(setup_), device_);
  run_->grad_mode = false;
  run_->phantom = true;
}

torch_export::NameId Calls::add_name(std::string text, DType dtype, const std::vector<std::int64_t>& sizes,
                                     bool requires_grad) {
  torch_export::Name name;
  name.text = std::move(text);
  name.tensor = torch_export::TensorMeta{dtype, {}, requires_grad};
  for (std::int64_t s : sizes) name.tensor->sizes.push_back({s, {}});
  program_.names.push_back(std::move(name));
  return static_cast<torch_export::NameId>(program_.names.size() - 1);
}

TensorV Calls::stored(const std::string& name, DType dtype, const std::vector<std::int64_t>& sizes,
                      bool requires_grad) {
  for (std::int64_t s : sizes)
    if (s < 0) fail_input(fmt::format("the tensor '{}' has a negative size", name));
  TensorV out;
  out.name = add_name(name, dtype, sizes, requires_grad);
  run_->begin_op("input");
  out.tensor = run_->empty(Dims(sizes), dtype);
  tensors_.resize(program_.names.size());
  tensors_.back() = out.tensor;
  return out;
}

std::optional<V> Calls::about_tensor(std::string_view op, const std::vector<V>& args) const {
  const std::string_view base = op.substr(0, op.find('.'));
  // Questions about the world around the program.
  if (base == "aten::is_grad_enabled") return V(true);
  if (base == "aten::is_autocast_enabled" || base == "aten::is_autocast_cpu_enabled" ||
      base == "aten::_get_tracing_state" || base == "aten::has_torch_function")
    return V(false);
  if (base == "aten::cudnn_is_acceptable" || base == "prim::is_cuda") return V(true);
  if (base == "aten::device" || base == "aten::get_device") return V(DeviceV{"cuda"});
  if (base == "prim::type" && !args.empty() && args[0].get<DeviceV>()) return V("cuda");
  if (base == "prim::index" && !args.empty() && args[0].get<DeviceV>()) return V(std::int64_t{0});
  if (args.empty() || !args[0].tensor()) return std::nullopt;
  const TensorBody& t = *args[0].tensor()->tensor;
  const auto numbers = [](const Dims& d) {
    std::vector<V> out;
    for (std::int64_t n : d) out.emplace_back(n);
    return make_list(std::move(out));
  };
  const auto at = [&](const Dims& d) -> V {
    const auto i = args.at(1).integer();
    if (!i || *i < -d.size() || *i >= d.size())
      fail_input("the TorchScript program asks for a dimension that a tensor does not have", {},
                 "other sizes for " + setting(Field::inputs) + " may suit it");
    return d[static_cast<int>(*i < 0 ? *i + d.size() : *i)];
  };
  if (base == "aten::size" || base == "prim::shape") return args.size() > 1 ? at(t.sizes) : numbers(t.sizes);
  if (base == "aten::stride") return args.size() > 1 ? at(t.strides) : numbers(t.strides);
  if (base == "aten::dim" || base == "aten::ndimension") return V(static_cast<std::int64_t>(t.rank()));
  if (base == "aten::numel") return V(t.numel());
  if (base == "aten::len") return t.rank() > 0 ? V(t.sizes[0]) : V();
  if (base == "aten::is_floating_point") return V(is_floating(t.dtype));
  if (base == "aten::is_complex") return V(is_complex(t.dtype));
  if (base == "aten::is_contiguous") return V(is_contiguous(t));
  if (base == "aten::element_size") return V(static_cast<std::int64_t>(bits_of(t.dtype) / 8));
  if (base == "prim::dtype") return V(number_of(t.dtype));
  if (base == "prim::device") return V(DeviceV{"cuda"});
  if (base == "prim::layout") return V(std::int64_t{0});
  if (base == "prim::requires_grad") return V(true);
  if (base.substr(0, 9) == "prim::is_" && base != "prim::isinstance") return V(false);
  // A number out of a tensor.
  if (!args[0].tensor()->number &&
      (base == "aten::item" || base == "aten::Int" || base == "aten::Float" || base == "aten::Bool" ||
       base == "aten::is_nonzero" || base == "aten::IntImplicit" || base == "aten::FloatImplicit" ||
       base == "aten::ScalarImplicit" || base == "aten::equal" || base == "aten::allclose"))
    return V(UnknownV{std::string(base)});
  return std::nullopt;
}

Arg Calls::argument(const V& v, const SchemaArgument* schema, const Node& node) const {
  struct Visitor {
    const Calls& c;
    const SchemaArgument* schema;
    const Node& node;
    Arg operator()(std::monostate) const { return {}; }
    Arg operator()(bool b) const { return {b}; }
    Arg operator()(std::int64_t n) const {
      if (!schema || schema->kind.empty()) return {n};
      if (schema->kind == "memory_format") return {std::string(memory_format(n))};
      if (schema->kind == "layout") return {std::string("strided")};
      const auto d = dtype_of(n);
      if (!d) fail_input(fmt::format("'{}' wants an element type that memplan does not know (number {})", node.op, n));
      return {*d};
    }
    Arg operator()(double d) const { return {d}; }
    Arg operator()(const std::string& s) const { return {s}; }
    Arg operator()(const TensorV& t) const { return {ValueId{t.name}}; }
    Arg operator()(const ListV& list) const { return items(*list); }
    Arg operator()(const TupleV& tuple) const { return items(tuple.items); }
    Arg operator()(const DictV&) const { return wrong("a dictionary"); }
    Arg operator()(const DeviceV&) const { return {std::string("cuda")}; }
    Arg operator()(const ObjectV&) const { return wrong("an object"); }
    Arg operator()(const UnknownV& u) const { return wrong(u.why); }
    Arg items(const std::vector<V>& values) const {
      Arg::List out;
      for (const V& item : values) out.push_back(c.argument(item, schema, node));
      return {std::move(out)};
    }
    Arg wrong(const std::string& what) const {
      const auto* stack = node.stack < 0 ? nullptr : &c.script_.stacks[static_cast<std::size_t>(node.stack)];
      fail_input(fmt::format("'{}' works with {}, which only data decide", node.op, what),
                 stack && !stack->paths.empty() ? stack->paths.back() : std::string(),
                 "export the model with torch.export.save");
    }
  };
  return std::visit(Visitor{*this, schema, node}, v.v);
}

Value Calls::on_paper(const Arg& arg) const {
  return value_of(arg, [&](ValueId id) { return tensors_[static_cast<std::size_t>(id.index)]; });
}

ValueList Calls::run(const torch_export::Node& node, const std::vector<V>& args) {
  Call call;
  call.op = onnx_format::op_of_target(node.target);
  for (const auto& in : node.inputs)
    if (in.kind == torch_export::ArgumentKind::positional)
      call.args.push_back(in.value);
    else if (!is_placement(in.name))
      call.kwargs.emplace_back(in.name, in.value);
  run_->begin_op(call.op);
  if (call.op.rfind("aten::to.", 0) == 0 || call.op.rfind("aten::type_as", 0) == 0) {
    // Every form of the cast: to an element type, to another tensor's, to a device.
    DType dtype = args.at(0).tensor()->tensor->dtype;
    for (std::size_t i = 1; i < args.size(); ++i)
      if (args[i].tensor()) dtype = args[i].tensor()->tensor->dtype;
    for (const auto& in : node.inputs)
      if (const auto* d = std::get_if<DType>(&in.value.value)) dtype = *d;
    return {dtype == args[0].tensor()->tensor->dtype ? args[0].tensor()->tensor
                                                     : run_->empty_like(args[0].tensor()->tensor, dtype)};
  }
  onnx_format::rewrite(call, setup_);
  const Row* row = run_->profile.ops->find(call.op);
  if (!row) return {};
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;
  for (const Arg& a : call.args) values.push_back(on_paper(a));
  for (const auto& [name, a] : call.kwargs) named.emplace_back(name, on_paper(a));
  return call_op(*run_, *row, std::move(values), named);
}

V Calls::named(const Value& result, const std::string& op, torch_export::Node& out) {
  if (result.is_list()) {
    std::vector<V> items;
    for (const Value& item : result.list()) items.push_back(named(item, op, out));
    return make_list(std::move(items));
  }
  if (result.is_tensor() && result.tensor()) {
    TensorV t;
    const std::int64_t n = counts_[op]++;
    t.name = add_name(n == 0 ? op : fmt::format("{}_{}", op, n), result.tensor()->dtype,
                      result.tensor()->sizes.vector(), false);
    t.tensor = result.tensor();
    tensors_.resize(program_.names.size());
    tensors_.back() = t.tensor;
    out.outputs.push_back(t.name);
    return t;
  }
  out.outputs.push_back(-1);
  if (const auto* n = std::get_if<std::int64_t>(&result.v)) return *n;
  if (const auto* d = std::get_if<double>(&result.v)) return *d;
  if (const auto* b = std::get_if<bool>(&result.v)) return *b;
  return {};
}

void Calls::put_arguments(const Node& node, const std::vector<V>& args, torch_export::Node& out) {
  const auto schema = script_.schemas.find(node.op);
  const auto* named_args = schema == script_.schemas.end() ? nullptr : &schema->second;
  const auto argument_at = [&](std::size_t i) {
    return named_args && i < named_args->size() ? &(*named_args)[i] : nullptr;
  };
  // torch.export leaves out what the schema says anyway; behind the last given one, only names can follow.
  std::size_t positional = 0;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const SchemaArgument* a = argument_at(i);
    if (!(a && a->keyword) && !(a && a->standard && is_literal(args[i], *a->standard))) positional = i + 1;
  }
  for (std::size_t i = 0; i < args.size(); ++i) {
    const SchemaArgument* a = argument_at(i);
    const bool keyword = a && a->keyword;
    if (keyword ? a->standard && is_literal(args[i], *a->standard) : i >= positional) continue;
    if (a && a->kind == "device") {
      if (keyword) continue;
      out.inputs.push_back({a->name, {std::string("cuda")}, torch_export::ArgumentKind::positional});
      continue;
    }
    out.inputs.push_back({a ? a->name : fmt::format("arg{}", i), argument(args[i], a, node),
                          keyword ? torch_export::ArgumentKind::keyword : torch_export::ArgumentKind::positional});
  }
}

ValueList Calls::run_named(const Node& node, const torch_export::Node& out, const std::vector<V>& args) {
  try {
    return run(out, args);
  } catch (const Failure& failure) {
    Error e = failure.error();
    e.where = fmt::format("{}{}{}", node.op, out.paths.empty() || out.paths.back().empty() ? "" : " in ",
                          out.paths.empty() ? "" : out.paths.back());
    if (e.hint.empty()) e.hint = "the sizes given with " + setting(Field::inputs) + " may not be the model's";
    throw Failure(std::move(e));
  }
}

std::vector<V> Calls::results_of(const Node& node, const std::string& base, ValueList results,
                                 const std::vector<V>& args, torch_export::Node& out) {
  std::vector<V> values;
  if (results.empty() && !node.outputs.empty()) {
    // An op without a row: as large as its first tensor, and the estimate names it.
    const auto first = std::find_if(args.begin(), args.end(), [](const V& v) { return v.tensor() != nullptr; });
    if (first == args.end())
      fail_input(fmt::format("the TorchScript program uses '{}', which memplan does not follow", node.op),
                 out.paths.empty() ? "" : out.paths.back(), "export the model with torch.export.save");
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const Tensor like = run_->empty_like(first->tensor()->tensor);
      values.push_back(named(Value(like), base, out));
    }
  } else if (results.size() > 1 && node.outputs.size() == 1) {
    values.push_back(named(Value(std::move(results)), base, out));
  } else {
    for (const Value& r : results) values.push_back(named(r, base, out));
  }
  return values;
}

std::vector<V> Calls::call(const Node& node, const std::vector<V>& args) {
  const std::size_t colon = node.op.find("::"), dot = node.op.find('.');
  const std::string space = node.op.substr(0, colon),
                    base = node.op.substr(colon + 2, dot == std::string::npos ? dot : dot - colon - 2);
  torch_export::Node out;
  out.target =
      fmt::format("torch.ops.{}.{}.{}", space, base, dot == std::string::npos ? "default" : node.op.substr(dot + 1));
  if (node.stack >= 0) {
    const Stack& s = script_.stacks[static_cast<std::size_t>(node.stack)];
    out.paths = s.paths, out.classes = s.classes, out.lines = s.lines;
  }
  put_arguments(node, args, out);
  std::vector<V> values = results_of(node, base, run_named(node, out, args), args, out);
  auto& nodes = program_.graphs.front().nodes;
  if (nodes.size() >= most_calls)
    fail_input("the TorchScript program makes more calls in more steps than memplan follows", {},
               "export the model with torch.export.save");
  nodes.push_back(std::move(out));
  return values;
}

}  // namespace memplan::torchscript
