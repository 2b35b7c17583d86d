#include "memplan_torch/calls.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>

#include <cmath>
#include <map>
#include <optional>

#include "memplan_torch/commands.h"

namespace memplan::torch_side {

using c10::IValue;

namespace {

[[noreturn]] void refuse(const std::string& what) { throw Refusal("input", what); }

std::int64_t to_int(const IValue& v) {
  if (v.isInt()) return v.toInt();
  if (v.isBool()) return v.toBool();
  if (v.isDouble()) return static_cast<std::int64_t>(v.toDouble());
  refuse("a number was expected and there is a " + v.tagKind());
}

double to_double(const IValue& v) {
  if (v.isDouble()) return v.toDouble();
  return static_cast<double>(to_int(v));
}

/// An argument as a value without a type; lists become generic lists.
IValue plain(const Arg& arg, const Names& names) {
  struct Visitor {
    const Names& names;
    IValue operator()(Arg::None) const { return {}; }
    IValue operator()(ValueId id) const { return id.valid() ? names.at(static_cast<std::size_t>(id.index)) : IValue(); }
    IValue operator()(std::int64_t n) const { return n; }
    IValue operator()(double d) const { return d; }
    IValue operator()(bool b) const { return b; }
    IValue operator()(const std::string& s) const { return s; }
    IValue operator()(DType d) const { return static_cast<std::int64_t>(scalar_type(d)); }
    IValue operator()(const Arg::List& list) const {
      std::vector<IValue> out;
      for (const Arg& a : list) out.push_back(std::visit(*this, a.value));
      return c10::ivalue::Tuple::create(std::move(out));
    }
  };
  return std::visit(Visitor{names}, arg.value);
}

std::vector<IValue> items(const IValue& v) {
  if (v.isTuple()) return v.toTupleRef().elements().vec();
  if (v.isList()) return v.toListRef().vec();
  return {v};
}

at::Tensor as_tensor(const IValue& v) {
  if (v.isTensor()) return v.toTensor();
  if (v.isNone()) return {};
  // Python's numbers enter as tensors that do not take part in type promotion.
  if (v.isDouble()) return at::native::wrapped_scalar_tensor(v.toDouble());
  if (v.isBool()) return at::native::wrapped_scalar_tensor(v.toBool());
  if (v.isInt()) return at::native::wrapped_scalar_tensor(v.toInt());
  refuse("a tensor was expected and there is a " + v.tagKind());
}

std::int64_t enumerator(const std::string& word) {
  const auto ends = [&](const char* name) { return word.find(name) != std::string::npos; };
  if (ends("channels_last_3d")) return static_cast<std::int64_t>(c10::MemoryFormat::ChannelsLast3d);
  if (ends("channels_last")) return static_cast<std::int64_t>(c10::MemoryFormat::ChannelsLast);
  if (ends("preserve")) return static_cast<std::int64_t>(c10::MemoryFormat::Preserve);
  if (ends("contiguous")) return static_cast<std::int64_t>(c10::MemoryFormat::Contiguous);
  if (ends("strided")) return static_cast<std::int64_t>(c10::Layout::Strided);
  refuse("'" + word + "' is no number");
}

/// The value as the schema's type wants it.
IValue typed(const IValue& v, const c10::TypePtr& type, std::optional<std::int32_t> repeat,
             const CallSettings& settings) {
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
      if (v.isNone()) return v;
      return typed(v, type->castRaw<c10::OptionalType>()->getElementType(), repeat, settings);
    case c10::TypeKind::TensorType:
      return as_tensor(v);
    case c10::TypeKind::NumberType:
      if (v.isTensor()) return v.toTensor().item();
      if (v.isInt() || v.isDouble() || v.isBool()) return v;
      refuse("a number was expected and there is a " + v.tagKind());
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return v.isString() ? enumerator(v.toStringRef()) : to_int(v);
    case c10::TypeKind::FloatType:
      return to_double(v);
    case c10::TypeKind::BoolType:
      return v.isBool() ? v : IValue(to_int(v) != 0);
    case c10::TypeKind::DeviceObjType:
      return settings.device;
    case c10::TypeKind::ListType: {
      const c10::TypePtr& inner = type->castRaw<c10::ListType>()->getElementType();
      std::vector<IValue> values = items(v);
      // int[2] stride=1: one number stands for all.
      if (repeat && !v.isTuple() && !v.isList()) values.assign(static_cast<std::size_t>(*repeat), v);
      c10::impl::GenericList list(inner->kind() == c10::TypeKind::SymIntType ? c10::TypePtr(c10::IntType::get())
                                                                             : inner);
      for (const IValue& item : values) list.push_back(typed(item, inner, {}, settings));
      return list;
    }
    default:
      return v;
  }
}

/// Arithmetic on sizes, which exporters keep as nodes (estimators/runtime/torch/aten/rows/symbolic.cpp has the same
/// list).
std::optional<IValue> symbolic(const Call& call, const Names& names) {
  const auto a = [&](std::size_t i) { return plain(call.args.at(i), names); };
  const auto both_int = [&] { return a(0).isInt() && a(1).isInt(); };
  const auto floor_div = [](std::int64_t x, std::int64_t y) {
    if (y == 0) refuse("a size is divided by zero");
    const std::int64_t q = x / y;
    return x % y != 0 && (x < 0) != (y < 0) ? q - 1 : q;
  };
  const std::string& op = call.op;
  if (op == "_operator.add")
    return both_int() ? IValue(to_int(a(0)) + to_int(a(1))) : IValue(to_double(a(0)) + to_double(a(1)));
  if (op == "_operator.sub")
    return both_int() ? IValue(to_int(a(0)) - to_int(a(1))) : IValue(to_double(a(0)) - to_double(a(1)));
  if (op == "_operator.mul")
    return both_int() ? IValue(to_int(a(0)) * to_int(a(1))) : IValue(to_double(a(0)) * to_double(a(1)));
  if (op == "_operator.floordiv")
    return both_int() ? IValue(floor_div(to_int(a(0)), to_int(a(1))))
                      : IValue(std::floor(to_double(a(0)) / to_double(a(1))));
  if (op == "_operator.mod") return IValue(to_int(a(0)) - to_int(a(1)) * floor_div(to_int(a(0)), to_int(a(1))));
  if (op == "_operator.truediv") return IValue(to_double(a(0)) / to_double(a(1)));
  if (op == "_operator.pow") {
    const double p = std::pow(to_double(a(0)), to_double(a(1)));
    return both_int() ? IValue(static_cast<std::int64_t>(p)) : IValue(p);
  }
  if (op == "_operator.neg") return IValue(-to_int(a(0)));
  if (op == "torch.sym_max" || op == "builtins.max") return IValue(std::max(to_int(a(0)), to_int(a(1))));
  if (op == "torch.sym_min" || op == "builtins.min") return IValue(std::min(to_int(a(0)), to_int(a(1))));
  if (op == "math.trunc" || op == "math.floor" || op == "torch.sym_int")
    return IValue(static_cast<std::int64_t>(std::floor(to_double(a(0)))));
  if (op == "math.ceil") return IValue(static_cast<std::int64_t>(std::ceil(to_double(a(0)))));
  if (op == "torch.sym_float" || op == "aten::sym_float") return IValue(to_double(a(0)));
  if (op == "_operator.eq") return IValue(to_double(a(0)) == to_double(a(1)));
  if (op == "_operator.ne") return IValue(to_double(a(0)) != to_double(a(1)));
  if (op == "_operator.lt") return IValue(to_double(a(0)) < to_double(a(1)));
  if (op == "_operator.le") return IValue(to_double(a(0)) <= to_double(a(1)));
  if (op == "_operator.gt") return IValue(to_double(a(0)) > to_double(a(1)));
  if (op == "_operator.ge") return IValue(to_double(a(0)) >= to_double(a(1)));
  if (op == "_operator.getitem") return items(a(0)).at(static_cast<std::size_t>(to_int(a(1))));
  if (op == "aten::sym_numel") return IValue(as_tensor(a(0)).numel());
  if (op == "aten::sym_size.int" || op == "aten::sym_size") return IValue(as_tensor(a(0)).size(to_int(a(1))));
  return std::nullopt;
}

const Arg* argument(const Call& call, const std::string& name, std::size_t position) {
  for (const auto& [key, arg] : call.kwargs)
    if (key == name) return &arg;
  return position < call.args.size() ? &call.args[position] : nullptr;
}

/// What Python does beside calling an op.
std::optional<IValue> python_only(const Call& call, const Names& names, const CallSettings& settings) {
  if (call.op == "memplan::index_slice") {
    // x[a:b] leaves a slice that takes everything out (applySlice of python_variable_indexing.cpp); x itself comes
    // back as an alias.
    const at::Tensor x = as_tensor(plain(call.args.at(0), names));
    const auto number = [&](const char* name, std::size_t i, std::int64_t otherwise) {
      const Arg* a = argument(call, name, i);
      const IValue v = a ? plain(*a, names) : IValue();
      return v.isNone() ? otherwise : to_int(v);
    };
    const std::int64_t dim = number("dim", 1, 0), start = number("start", 2, 0), end = number("end", 3, INT64_MAX),
                       step = number("step", 4, 1);
    if (start == 0 && step == 1 && end >= x.size(dim)) return call_op("aten::alias", "", {x});
    return call_op("aten::slice", "Tensor", {x, dim, start, end, step});
  }
  if (call.op == "memplan::to_default_dtype") {
    const at::Tensor x = as_tensor(plain(call.args.at(0), names));
    return call_op("aten::to", "dtype", {x, static_cast<std::int64_t>(settings.model_dtype), false, false, IValue()});
  }
  return std::nullopt;
}

c10::OperatorHandle find_op(const std::string& text) {
  const auto dot = text.find('.', text.find("::") == std::string::npos ? 0 : text.find("::"));
  const std::string name = text.substr(0, dot), overload = dot == std::string::npos ? "" : text.substr(dot + 1);
  if (const auto op = c10::Dispatcher::singleton().findSchema({name, overload})) return *op;
  refuse("PyTorch has no op " + text);
}

/// The initial state of a recurrent layer: torch.zeros(…, dtype=input.dtype), of which a file of fp32 keeps float32.
bool initial_state(const Tape& tape, const Call& call) {
  if (call.op != "aten::zeros" || call.scope < 0) return false;
  const std::string& name = tape.scopes[static_cast<std::size_t>(call.scope)].module_class;
  return name.find("modules.rnn.") != std::string::npos;
}

std::vector<IValue> dispatch(const Tape& tape, const Call& call, const Names& names, const CallSettings& settings) {
  const c10::OperatorHandle op = find_op(call.op);
  const auto& arguments = op.schema().arguments();
  torch::jit::Stack stack;
  bool any_tensor = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& want = arguments[i];
    const Arg* given = nullptr;
    if (!want.kwarg_only() && i < call.args.size()) given = &call.args[i];
    if (!given) given = argument(call, want.name(), SIZE_MAX);
    if (given) {
      IValue value = plain(*given, names);
      // dtype=x.dtype
      if (want.name() == "dtype" && initial_state(tape, call)) value = static_cast<std::int64_t>(settings.model_dtype);
      if (want.name() == "dtype" && value.isTensor()) value = static_cast<std::int64_t>(value.toTensor().scalar_type());
      stack.push_back(typed(value, want.type(), want.N(), settings));
    } else if (want.name() == "dtype" && initial_state(tape, call)) {
      stack.emplace_back(static_cast<std::int64_t>(settings.model_dtype));
    } else if (want.name() == "device" && !any_tensor) {
      // Factories make their tensor where the model is.
      stack.emplace_back(settings.device);
    } else if (want.default_value()) {
      stack.push_back(*want.default_value());
    } else {
      refuse("the tape does not give '" + want.name() + "' of " + call.op);
    }
    any_tensor =
        any_tensor || (stack.back().isTensor() && stack.back().toTensor().defined()) || stack.back().isTensorList();
  }
  if (call.args.size() > arguments.size())
    refuse(call.op + " takes " + std::to_string(arguments.size()) + " arguments");
  op.callBoxed(stack);
  return stack;
}

void bind(const Call& call, std::vector<IValue> results, Names& names) {
  // An op that returns one list (split, unbind, chunk) may be bound to several names.
  if (results.size() == 1 && results[0].isList() && call.outputs.size() != 1) {
    std::vector<IValue> inner = items(results[0]);
    results = std::move(inner);
  }
  for (std::size_t o = 0; o < call.outputs.size(); ++o)
    if (call.outputs[o].valid())
      names[static_cast<std::size_t>(call.outputs[o].index)] = o < results.size() ? std::move(results[o]) : IValue();
}

}  // namespace

c10::ScalarType scalar_type(DType dtype) {
  using S = c10::ScalarType;
  static const std::map<std::string, S, std::less<>> types{{"float32", S::Float},
                                                           {"float64", S::Double},
                                                           {"float16", S::Half},
                                                           {"bfloat16", S::BFloat16},
                                                           {"int64", S::Long},
                                                           {"int32", S::Int},
                                                           {"int16", S::Short},
                                                           {"int8", S::Char},
                                                           {"uint8", S::Byte},
                                                           {"bool", S::Bool},
                                                           {"complex64", S::ComplexFloat},
                                                           {"complex128", S::ComplexDouble},
                                                           {"complex32", S::ComplexHalf},
                                                           {"uint16", S::UInt16},
                                                           {"uint32", S::UInt32},
                                                           {"uint64", S::UInt64},
                                                           {"float8_e4m3fn", S::Float8_e4m3fn},
                                                           {"float8_e5m2", S::Float8_e5m2},
                                                           {"float8_e4m3fnuz", S::Float8_e4m3fnuz},
                                                           {"float8_e5m2fnuz", S::Float8_e5m2fnuz}};
  const auto it = types.find(name_of(dtype));
  if (it == types.end()) throw Refusal("input", "PyTorch has no dtype " + std::string(name_of(dtype)));
  return it->second;
}

IValue call_op(const char* name, const char* overload, std::vector<IValue> arguments) {
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  op.callBoxed(arguments);
  return arguments.empty() ? IValue() : std::move(arguments.front());
}

void run_call(const Tape& tape, const Call& call, Names& names, const CallSettings& settings) {
  try {
    if (call.unknown) refuse("PyTorch has no op " + call.op);
    std::vector<IValue> results;
    if (auto number = symbolic(call, names))
      results.push_back(std::move(*number));
    else if (auto value = python_only(call, names, settings))
      results.push_back(std::move(*value));
    else
      results = dispatch(tape, call, names, settings);
    bind(call, std::move(results), names);
    for (ValueId id : call.last_uses)
      if (id.valid()) names[static_cast<std::size_t>(id.index)] = IValue();
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& e) {
    const std::string module = call.scope >= 0 ? tape.scopes[static_cast<std::size_t>(call.scope)].path : "";
    std::string text = e.what();
    text = text.substr(0, text.find('\n'));
    throw Refusal("input", "PyTorch does not run " + call.op + ": " + text, module.empty() ? call.source : module,
                  "this op of the model cannot be checked by a dry run");
  }
}

}  // namespace memplan::torch_side
