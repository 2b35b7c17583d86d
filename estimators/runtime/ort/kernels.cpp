#include "estimators/runtime/ort/kernels.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <unordered_map>

namespace memplan::ort {

namespace {

constexpr std::uint32_t inputs(std::initializer_list<int> numbers) {
  std::uint32_t out = 0;
  for (const int n : numbers) out |= 1u << n;
  return out;
}
constexpr Kernel plain(std::string_view op) { return {op}; }
constexpr Kernel on_host(std::string_view op, std::initializer_list<int> numbers) { return {op, inputs(numbers)}; }
constexpr Kernel view(std::string_view op, std::initializer_list<int> numbers) {
  return {op, inputs(numbers), false, true};
}
constexpr Kernel in_place(std::string_view op) { return {op, 0, false, false, true}; }
constexpr Kernel to_host(std::string_view op) { return {op, 0, true}; }

constexpr std::array kernels{
    view("Reshape", {1}),
    view("Squeeze", {1}),
    view("Unsqueeze", {1}),
    view("Flatten", {}),
    view("Identity", {}),
    to_host("Shape"),
    to_host("Size"),
    in_place("Relu"),
    in_place("Elu"),
    in_place("LeakyRelu"),
    in_place("Selu"),
    in_place("Sigmoid"),
    in_place("Softplus"),
    in_place("Softsign"),
    in_place("Tanh"),
    in_place("HardSigmoid"),
    in_place("ThresholdedRelu"),
    in_place("QuickGelu"),
    in_place("HardSwish"),
    on_host("Expand", {1}),
    on_host("Slice", {1, 2, 3, 4}),
    on_host("Split", {1}),
    on_host("Tile", {1}),
    on_host("Pad", {1, 2, 3}),
    on_host("ReduceMean", {1}),
    on_host("ReduceSum", {1}),
    on_host("ReduceMax", {1}),
    on_host("ReduceMin", {1}),
    on_host("ReduceProd", {1}),
    on_host("ReduceL1", {1}),
    on_host("ReduceL2", {1}),
    on_host("ReduceLogSumExp", {1}),
    on_host("ReduceSumSquare", {1}),
    on_host("Range", {0, 1, 2}),
    on_host("Trilu", {1}),
    on_host("ConstantOfShape", {0}),
    on_host("TopK", {1}),
    on_host("Resize", {1, 2, 3}),
    on_host("Upsample", {1}),
    on_host("OneHot", {1}),
    on_host("CumSum", {1}),
    plain("MatMul"),
    plain("FusedMatMul"),
    plain("Gemm"),
    plain("Conv"),
    plain("FusedConv"),
    plain("ConvTranspose"),
    plain("MaxPool"),
    plain("AveragePool"),
    plain("GlobalAveragePool"),
    plain("GlobalMaxPool"),
    plain("Transpose"),
    plain("Concat"),
    plain("Gather"),
    plain("GatherElements"),
    plain("GatherND"),
    plain("ScatterND"),
    plain("ScatterElements"),
    plain("BatchNormalization"),
    plain("InstanceNormalization"),
    plain("LayerNormalization"),
    plain("SimplifiedLayerNormalization"),
    plain("SkipLayerNormalization"),
    plain("SkipSimplifiedLayerNormalization"),
    plain("GroupNorm"),
    plain("LRN"),
    plain("Softmax"),
    plain("LogSoftmax"),
    plain("Add"),
    plain("Sub"),
    plain("Mul"),
    plain("Div"),
    plain("Pow"),
    plain("Where"),
    plain("Equal"),
    plain("Greater"),
    plain("GreaterOrEqual"),
    plain("Less"),
    plain("LessOrEqual"),
    plain("And"),
    plain("Or"),
    plain("Xor"),
    plain("Not"),
    plain("Min"),
    plain("Max"),
    plain("Mod"),
    plain("PRelu"),
    plain("Sum"),
    plain("Erf"),
    plain("Sqrt"),
    plain("Exp"),
    plain("Log"),
    plain("Neg"),
    plain("Abs"),
    plain("Cast"),
    plain("Reciprocal"),
    plain("Sin"),
    plain("Cos"),
    plain("Floor"),
    plain("Ceil"),
    plain("Round"),
    plain("Clip"),
    plain("QuantizeLinear"),
    plain("DequantizeLinear"),
    plain("Sign"),
    plain("IsNaN"),
    plain("IsInf"),
    plain("Gelu"),
    plain("FastGelu"),
    plain("BiasGelu"),
    plain("BiasSoftmax"),
    plain("ArgMax"),
    plain("ArgMin"),
    plain("NonZero"),
    plain("Einsum"),
    plain("DepthToSpace"),
    plain("SpaceToDepth"),
    plain("LSTM"),
    plain("GRU"),
    plain("RNN"),
    on_host("MemcpyFromHost", {0}),
    plain("Dropout"),
    to_host("MemcpyToHost"),
};

constexpr std::array<std::string_view, 8> on_cpu{"ATen", "Acos",    "Asin",   "Atan",
                                                 "Celu", "Hardmax", "Unique", "NonMaxSuppression"};

/// Of ops that only the CPU provider has, for images in blocks of channels.
constexpr std::string_view blocked_domain = "com.microsoft.nchwc";

}  // namespace

bool takes_types(const Graph& graph, const GraphNode& node) {
  if (node.op_type != "DequantizeLinear" || node.inputs.empty()) return true;
  const auto stored = graph.initializers.find(node.inputs[0]);
  return stored == graph.initializers.end() || stored->second.dtype != DType::int32;
}

bool known_without_kernel(const GraphNode& node) {
  return node.domain == blocked_domain || std::find(on_cpu.begin(), on_cpu.end(), node.op_type) != on_cpu.end();
}

const Kernel* kernel_of(const GraphNode& node) {
  if (node.metadata.count(on_cpu_key) > 0 || node.domain == blocked_domain) return nullptr;
  static const auto by_op = [] {
    std::unordered_map<std::string_view, const Kernel*> out;
    for (const Kernel& k : kernels) out.emplace(k.op, &k);
    return out;
  }();
  const auto it = by_op.find(node.op_type);
  return it == by_op.end() ? nullptr : it->second;
}

}  // namespace memplan::ort
