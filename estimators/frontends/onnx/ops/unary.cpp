// Ops of one operand that work element by element: mathematical functions and activations.
#include <cmath>

#include "estimators/frontends/onnx/ops/common.h"
#include "estimators/frontends/onnx/ops/contents.h"
#include "estimators/frontends/onnx/table.h"
#include "estimators/frontends/onnx/tensors.h"

namespace memplan::onnx_format {

namespace {

double unary_value(std::string_view op, double x) {
  if (op == "Sqrt") return std::sqrt(x);
  if (op == "Neg") return -x;
  if (op == "Abs") return std::fabs(x);
  if (op == "Floor") return std::floor(x);
  if (op == "Ceil") return std::ceil(x);
  if (op == "Round") return std::nearbyint(x);
  if (op == "Reciprocal") return 1 / x;
  if (op == "Exp") return std::exp(x);
  if (op == "Log") return std::log(x);
  if (op == "Not") return x == 0;
  return std::nan("");
}

void infer_unary(const At& at, std::vector<Inferred>& out) {
  infer_same(at, out);
  const Inferred& x = at.in(0);
  if (!x.contents) return;
  const std::string_view op = at.node.op_type;
  Contents c;
  c.floating = x.contents->floating;
  for (double v : x.contents->floats) c.floats.push_back(unary_value(op, v));
  for (std::int64_t v : x.contents->integers) {
    const double r = unary_value(op, static_cast<double>(v));
    if (!std::isfinite(r) || std::fabs(r) > 9e15) return;
    c.integers.push_back(static_cast<std::int64_t>(r));
  }
  out[0].contents = std::move(c);
}

void infer_predicate(const At& at, std::vector<Inferred>& out) {
  infer_unary(at, out);
  out[0].dtype = DType::boolean;
  if (at.node.op_type != "Not") out[0].contents.reset();
}

/// What a scale turns into integers of the zero point's type, and back into the scale's.
void infer_quantize(const At& at, std::vector<Inferred>& out) {
  infer_same(at, out);
  const bool back = at.node.op_type == "DequantizeLinear";
  out[0].dtype = back ? at.in(1).dtype : at.has(2) ? at.in(2).dtype : DType::uint8;
  out[0].contents.reset();
}

struct Unary {
  std::string_view onnx;
  const char* aten;
};

constexpr Unary unary_ops[] = {
    {"Relu", "relu"},
    {"Sigmoid", "sigmoid"},
    {"Tanh", "tanh"},
    {"Erf", "erf"},
    {"Exp", "exp"},
    {"Log", "log"},
    {"Sqrt", "sqrt"},
    {"Reciprocal", "reciprocal"},
    {"Abs", "abs"},
    {"Neg", "neg"},
    {"Floor", "floor"},
    {"Ceil", "ceil"},
    {"Round", "round"},
    {"Sign", "sign"},
    {"Sin", "sin"},
    {"Cos", "cos"},
    {"Tan", "tan"},
    {"Asin", "asin"},
    {"Acos", "acos"},
    {"Atan", "atan"},
    {"Sinh", "sinh"},
    {"Cosh", "cosh"},
    {"Asinh", "asinh"},
    {"Acosh", "acosh"},
    {"Atanh", "atanh"},
    {"Softplus", "softplus"},
    {"HardSwish", "hardswish"},
    {"HardSigmoid", "hardsigmoid"},
    {"Mish", "mish"},
    {"Swish", "silu"},
    {"QuickGelu", "silu"},
    {"Not", "logical_not"},
    {"IsNaN", "isnan"},
    {"IsInf", "isinf"},
    {"BitwiseNot", "bitwise_not"},
    {"Det", "det"},
};

const char* aten_of(std::string_view op) {
  for (const Unary& p : unary_ops)
    if (p.onnx == op) return p.aten;
  return "";
}

bool lower_unary(const At& at, Emit& e) {
  e.call_for(at, std::string("aten::") + aten_of(at.node.op_type), {{e.tensor(at.id(0))}});
  return true;
}

bool lower_clip(const At& at, Emit& e) {
  auto bound = [&](std::size_t input, const char* name) -> Arg {
    if (at.has(input)) return e.operand(at.id(input));
    return at.attribute(name) ? Arg{at.real(name, 0)} : Arg{};
  };
  const Arg low = bound(1, "min"), high = bound(2, "max");
  const Arg x{e.tensor(at.id(0))};
  const auto lo = at.has(1) ? at.number(1) : at.attribute("min") ? std::optional(at.real("min", 0)) : std::nullopt;
  const auto hi = at.has(2) ? at.number(2) : at.attribute("max") ? std::optional(at.real("max", 0)) : std::nullopt;
  if (lo == 0.0 && hi == 6.0)
    e.call_for(at, "aten::hardtanh", {x, {0.0}, {6.0}});  // nn.ReLU6
  else
    e.call_for(at,
               std::holds_alternative<ValueId>(low.value) || std::holds_alternative<ValueId>(high.value)
                   ? "aten::clamp.Tensor"
                   : "aten::clamp",
               {x, low, high});
  return true;
}

bool lower_gelu(const At& at, Emit& e) {
  const bool tanh = at.text("approximate", "none") == "tanh" || at.node.op_type == "FastGelu";
  Kwargs kwargs;
  if (tanh) kwargs.push_back({"approximate", {std::string("tanh")}});
  Arg x{e.tensor(at.id(0))};
  if (at.has(1)) x = {e.call("aten::add.Tensor", {x, {e.tensor(at.id(1))}})};  // com.microsoft::BiasGelu, FastGelu
  e.call_for(at, "aten::gelu", {x}, std::move(kwargs));
  return true;
}

bool lower_activation(const At& at, Emit& e) {
  const std::string& op = at.node.op_type;
  const Arg x{e.tensor(at.id(0))};
  if (op == "LeakyRelu")
    e.call_for(at, "aten::leaky_relu", {x, {at.real("alpha", 0.01)}});
  else if (op == "Elu")
    e.call_for(at, "aten::elu", {x, {at.real("alpha", 1.0)}});
  else if (op == "Celu")
    e.call_for(at, "aten::celu", {x, {at.real("alpha", 1.0)}});
  else if (op == "Selu")
    e.call_for(at, "aten::elu",
               {x, {at.real("alpha", 1.6732632)}, {at.real("gamma", 1.050701)}});  // selu is elu with two constants
  else if (op == "ThresholdedRelu")
    e.call_for(at, "aten::threshold", {x, {at.real("alpha", 1.0)}, {0.0}});
  else if (op == "PRelu")
    e.call_for(at, "aten::prelu", {x, {e.tensor(at.id(1))}});
  else if (op == "Shrink")
    e.call_for(at, "aten::softshrink", {x, {at.real("lambd", 0.5)}});
  else if (op == "Softsign")
    e.call_for(at, "aten::div.Tensor",
               {x, {e.call("aten::add.Tensor", {{e.call("aten::abs", {x})}, {std::int64_t{1}}})}});
  else
    return false;
  return true;
}

constexpr OpRow rows[] = {
    {"Relu", infer_unary, lower_unary},
    {"Sigmoid", infer_same, lower_unary},
    {"Tanh", infer_same, lower_unary},
    {"Erf", infer_same, lower_unary},
    {"Exp", infer_unary, lower_unary},
    {"Log", infer_unary, lower_unary},
    {"Sqrt", infer_unary, lower_unary},
    {"Reciprocal", infer_unary, lower_unary},
    {"Abs", infer_unary, lower_unary},
    {"Neg", infer_unary, lower_unary},
    {"Floor", infer_unary, lower_unary},
    {"Ceil", infer_unary, lower_unary},
    {"Round", infer_unary, lower_unary},
    {"Sign", infer_same, lower_unary},
    {"Sin", infer_same, lower_unary},
    {"Cos", infer_same, lower_unary},
    {"Tan", infer_same, lower_unary},
    {"Asin", infer_same, lower_unary},
    {"Acos", infer_same, lower_unary},
    {"Atan", infer_same, lower_unary},
    {"Sinh", infer_same, lower_unary},
    {"Cosh", infer_same, lower_unary},
    {"Asinh", infer_same, lower_unary},
    {"Acosh", infer_same, lower_unary},
    {"Atanh", infer_same, lower_unary},
    {"Softplus", infer_same, lower_unary},
    {"HardSwish", infer_same, lower_unary},
    {"HardSigmoid", infer_same, lower_unary},
    {"Mish", infer_same, lower_unary},
    {"Swish", infer_same, lower_unary},
    {"com.microsoft::QuickGelu", infer_same, lower_unary},
    {"Not", infer_predicate, lower_unary},
    {"IsNaN", infer_predicate, lower_unary},
    {"IsInf", infer_predicate, lower_unary},
    {"BitwiseNot", infer_same, lower_unary},
    {"LeakyRelu", infer_same, lower_activation},
    {"Elu", infer_same, lower_activation},
    {"Celu", infer_same, lower_activation},
    {"Selu", infer_same, lower_activation},
    {"ThresholdedRelu", infer_same, lower_activation},
    {"PRelu", infer_same, lower_activation},
    {"Shrink", infer_same, lower_activation},
    {"Softsign", infer_same, lower_activation},
    {"Gelu", infer_same, lower_gelu},
    {"com.microsoft::Gelu", infer_same, lower_gelu},
    {"com.microsoft::FastGelu", infer_same, lower_gelu},
    {"com.microsoft::BiasGelu", infer_same, lower_gelu},
    {"Clip", infer_same, lower_clip, bits({1, 2})},
    {"QuantizeLinear", infer_quantize},
    {"DequantizeLinear", infer_quantize},
    // ONNX Runtime's copies between host and device.
    {"MemcpyFromHost", infer_same},
    {"MemcpyToHost", infer_same},
};

}  // namespace

Rows unary_rows() { return {rows, std::size(rows)}; }

}  // namespace memplan::onnx_format
