#include "estimators/runtime/ort/shape_rules.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace memplan::ort {

namespace {

using Dims = std::vector<Dim>;
using Outputs = std::vector<KnownShape>;
using Numbers = std::vector<std::int64_t>;

std::optional<std::size_t> axis_in(std::int64_t axis, std::size_t rank) {
  const auto r = static_cast<std::int64_t>(rank);
  if (axis < -r || axis >= r) return std::nullopt;
  return static_cast<std::size_t>(axis < 0 ? axis + r : axis);
}

void same(const RuleInput& in, Outputs& out) { out[0] = in.in(0); }

/// All outputs that are there like the first input.
void all_same(const RuleInput& in, Outputs& out) { std::fill(out.begin(), out.end(), in.in(0)); }

/// multidirectionalBroadcastShapeInference (onnx/defs/shape_inference.cc).
KnownShape broadcast(const std::vector<KnownShape>& shapes) {
  std::size_t rank = 0;
  for (const KnownShape& s : shapes) {
    if (!s) return std::nullopt;
    rank = std::max(rank, s->size());
  }
  Dims out(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    std::int64_t size = 1;
    int names = 0;
    Dim name;
    for (const KnownShape& s : shapes) {
      if (i + s->size() < rank) continue;
      const Dim& d = (*s)[i + s->size() - rank];
      if (!d.open())
        size = d.size != 1 ? d.size : size;
      else if (names == 0)
        name = d, names = 1;
      else if (d.symbol != name.symbol)
        ++names;
    }
    if (size != 1 || names == 0)
      out[i] = {size, {}};
    else if (names == 1)
      out[i] = name;
  }
  return out;
}

void elementwise(const RuleInput& in, Outputs& out) {
  std::vector<KnownShape> shapes;
  for (std::size_t i = 0; i < in.node.inputs.size(); ++i) shapes.push_back(in.in(i));
  out[0] = broadcast(shapes);
}

void matmul_of(Dims a, Dims b, KnownShape& out) {
  const bool row = a.size() == 1, column = b.size() == 1;
  if (a.empty() || b.empty()) return;
  if (row) a.insert(a.begin(), Dim{1, {}});
  if (column) b.push_back({1, {}});
  const KnownShape batch = broadcast({Dims(a.begin(), a.end() - 2), Dims(b.begin(), b.end() - 2)});
  out = batch;
  if (!row) out->push_back(a[a.size() - 2]);
  if (!column) out->push_back(b.back());
}

void matmul(const RuleInput& in, Outputs& out) {
  if (in.in(0) && in.in(1)) matmul_of(*in.in(0), *in.in(1), out[0]);
}

void fused_matmul(const RuleInput& in, Outputs& out) {
  if (!in.in(0) || !in.in(1) || in.in(0)->size() < 2 || in.in(1)->size() < 2) return;
  Dims a = *in.in(0), b = *in.in(1);
  if (in.integer("transA", 0)) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (in.integer("transB", 0)) std::swap(b[b.size() - 1], b[b.size() - 2]);
  matmul_of(a, b, out[0]);
}

void gemm(const RuleInput& in, Outputs& out) {
  if (!in.in(0) || !in.in(1) || in.in(0)->size() != 2 || in.in(1)->size() != 2) return;
  out[0] = Dims{(*in.in(0))[in.integer("transA", 0) ? 1 : 0], (*in.in(1))[in.integer("transB", 0) ? 0 : 1]};
}

/// convPoolShapeInference (onnx/defs/nn/defs.cc): windows of known sizes only.
void windows(const RuleInput& in, Outputs& out, Dims head, const Numbers& kernel) {
  const Dims& x = *in.in(0);
  const std::size_t n = x.size() - 2;
  if (kernel.size() != n) return;
  const Numbers strides = in.list("strides").value_or(Numbers(n, 1)),
                dilations = in.list("dilations").value_or(Numbers(n, 1));
  const Numbers pads = in.list("pads").value_or(Numbers(2 * n, 0));
  if (strides.size() != n || dilations.size() != n || pads.size() != 2 * n) return;
  const auto automatic = in.node.attributes.find("auto_pad");
  const auto* pad = automatic == in.node.attributes.end() ? nullptr : std::get_if<std::string>(&automatic->second);
  const bool keeps = pad && pad->starts_with("SAME");
  for (std::size_t i = 0; i < n; ++i) {
    if (x[i + 2].open() || strides[i] < 1) {
      head.emplace_back();
      continue;
    }
    const std::int64_t room = x[i + 2].size + pads[i] + pads[i + n] - (dilations[i] * (kernel[i] - 1) + 1);
    const std::int64_t up = in.integer("ceil_mode", 0) ? strides[i] - 1 : 0;
    head.push_back({keeps ? (x[i + 2].size + strides[i] - 1) / strides[i] : (room + up) / strides[i] + 1, {}});
  }
  std::fill(out.begin(), out.end(), KnownShape(head));
}

void conv(const RuleInput& in, Outputs& out) {
  if (!in.in(0) || !in.in(1) || in.in(0)->size() < 3 || in.in(1)->size() != in.in(0)->size()) return;
  Numbers kernel;
  for (std::size_t i = 2; i < in.in(1)->size(); ++i) {
    if ((*in.in(1))[i].open()) return;
    kernel.push_back((*in.in(1))[i].size);
  }
  windows(in, out, {(*in.in(0))[0], (*in.in(1))[0]}, kernel);
}

void pool(const RuleInput& in, Outputs& out) {
  const auto kernel = in.list("kernel_shape");
  if (kernel && in.in(0) && in.in(0)->size() > 2) windows(in, out, {(*in.in(0))[0], (*in.in(0))[1]}, *kernel);
}

void global_pool(const RuleInput& in, Outputs& out) {
  if (!in.in(0)) return;
  out[0] = in.in(0);
  for (std::size_t i = 2; i < out[0]->size(); ++i) (*out[0])[i] = {1, {}};
}

void conv_transpose(const RuleInput& in, Outputs& out) {
  if (!in.in(0) || !in.in(1) || in.in(0)->size() < 3) return;
  const std::size_t n = in.in(0)->size() - 2;
  const Numbers strides = in.list("strides").value_or(Numbers(n, 1)),
                dilations = in.list("dilations").value_or(Numbers(n, 1));
  const Numbers pads = in.list("pads").value_or(Numbers(2 * n, 0)),
                extra = in.list("output_padding").value_or(Numbers(n, 0));
  Dims sizes{(*in.in(0))[0], Dim{(*in.in(1))[1].size * in.integer("group", 1), {}}};
  for (std::size_t i = 0; i < n; ++i) {
    const Dim& x = (*in.in(0))[i + 2];
    const Dim& k = (*in.in(1))[i + 2];
    if (x.open())
      sizes.emplace_back();
    else
      sizes.push_back(
          {strides[i] * (x.size - 1) + extra[i] + (k.size - 1) * dilations[i] + 1 - pads[i] - pads[i + n], {}});
  }
  out[0] = sizes;
}

void transpose(const RuleInput& in, Outputs& out) {
  if (!in.in(0)) return;
  const std::size_t rank = in.in(0)->size();
  const auto perm = in.list("perm");
  Dims dims(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    const auto from = perm && i < perm->size() ? axis_in((*perm)[i], rank) : std::optional(rank - 1 - i);
    if (!from) return;
    dims[i] = (*in.in(0))[*from];
  }
  out[0] = dims;
}

void reshape(const RuleInput& in, Outputs& out) {
  const auto asked = in.list("shape", 1);
  if (!asked) return;
  Dims dims;
  std::int64_t inputs = 1, outputs = 1;
  std::optional<std::size_t> open;
  std::vector<bool> copied(in.in(0) ? in.in(0)->size() : 0, false);
  bool told = in.in(0).has_value();
  for (std::size_t i = 0; i < asked->size(); ++i) {
    Dim d;
    if ((*asked)[i] == -1) {
      open = i;
    } else if ((*asked)[i] == 0 && !in.integer("allowzero", 0)) {
      if (i < copied.size()) d = (*in.in(0))[i];
      if (!d.open())
        outputs *= d.size;
      else if (i < copied.size())
        copied[i] = true;
      else
        told = false;
    } else {
      d.size = (*asked)[i];
      outputs *= d.size;
    }
    dims.push_back(d);
  }
  if (open && told) {
    for (std::size_t i = 0; i < in.in(0)->size(); ++i) {
      if (!(*in.in(0))[i].open())
        inputs *= (*in.in(0))[i].size;
      else if (!copied[i])
        told = false;
    }
    if (told && outputs > 0) dims[*open].size = inputs / outputs;
  }
  out[0] = dims;
}

void flatten(const RuleInput& in, Outputs& out) {
  if (!in.in(0)) return;
  const auto rank = static_cast<std::int64_t>(in.in(0)->size());
  std::int64_t axis = in.integer("axis", 1);
  if (axis < 0) axis += rank;
  const auto product = [&](std::int64_t from, std::int64_t to) {
    Dim all{1, {}};
    for (std::int64_t i = from; i < to; ++i) {
      const Dim& d = (*in.in(0))[static_cast<std::size_t>(i)];
      if (to - from == 1) return d;
      if (d.open()) return Dim{};
      all.size *= d.size;
    }
    return all;
  };
  out[0] = Dims{product(0, axis), product(axis, rank)};
}

void squeeze(const RuleInput& in, Outputs& out) {
  const auto axes = in.list("axes", 1);
  if (!in.in(0) || !axes) return;
  Dims dims;
  std::vector<bool> drop(in.in(0)->size(), false);
  for (const std::int64_t a : *axes)
    if (const auto i = axis_in(a, drop.size())) drop[*i] = true;
  for (std::size_t i = 0; i < drop.size(); ++i)
    if (!drop[i]) dims.push_back((*in.in(0))[i]);
  out[0] = dims;
}

void unsqueeze(const RuleInput& in, Outputs& out) {
  const auto axes = in.list("axes", 1);
  if (!in.in(0) || !axes) return;
  const std::size_t rank = in.in(0)->size() + axes->size();
  std::vector<bool> added(rank, false);
  for (const std::int64_t a : *axes)
    if (const auto i = axis_in(a, rank)) added[*i] = true;
  Dims dims;
  std::size_t from = 0;
  for (std::size_t i = 0; i < rank; ++i) {
    if (!added[i] && from >= in.in(0)->size()) return;
    dims.push_back(added[i] ? Dim{1, {}} : (*in.in(0))[from++]);
  }
  out[0] = dims;
}

void concat(const RuleInput& in, Outputs& out) {
  if (!in.in(0)) return;
  Dims dims = *in.in(0);
  const auto axis = axis_in(in.integer("axis", 0), dims.size());
  if (!axis) return;
  std::int64_t total = 0;
  bool told = true;
  for (std::size_t k = 0; k < in.node.inputs.size(); ++k) {
    if (!in.in(k) || in.in(k)->size() != dims.size()) return;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const Dim& d = (*in.in(k))[i];
      if (i == *axis) {
        told = told && !d.open();
        total += d.size;
      } else if (!d.open() || (dims[i].open() && dims[i].symbol.empty())) {
        dims[i] = d;
      }
    }
  }
  dims[*axis] = in.node.inputs.size() == 1 ? (*in.in(0))[*axis] : told ? Dim{total, {}} : Dim{};
  out[0] = dims;
}

void split(const RuleInput& in, Outputs& out) {
  if (!in.in(0)) return;
  const auto axis = axis_in(in.integer("axis", 0), in.in(0)->size());
  if (!axis) return;
  const auto parts = in.list("split", 1);
  const Dim whole = (*in.in(0))[*axis];
  const auto n = static_cast<std::int64_t>(out.size());
  for (std::size_t k = 0; k < out.size(); ++k) {
    Dims dims = *in.in(0);
    dims[*axis] = {};
    if (parts && k < parts->size())
      dims[*axis].size = (*parts)[k];
    else if (!in.has(1) && !whole.open()) {
      const std::int64_t piece = (whole.size + n - 1) / n;
      dims[*axis].size = static_cast<std::int64_t>(k) + 1 < n ? piece : whole.size - piece * (n - 1);
    }
    out[k] = dims;
  }
}

void slice(const RuleInput& in, Outputs& out) {
  if (!in.in(0)) return;
  const auto starts = in.list("starts", 1), ends = in.list("ends", 2);
  if (!starts || !ends) {
    out[0] = Dims(in.in(0)->size());
    return;
  }
  const auto axes = in.list("axes", 3), steps = in.stored(4);
  Dims dims = *in.in(0);
  for (std::size_t k = 0; k < starts->size() && k < ends->size(); ++k) {
    const auto axis = axis_in(axes && k < axes->size() ? (*axes)[k] : static_cast<std::int64_t>(k), dims.size());
    if (!axis) return;
    const std::int64_t step = steps && k < steps->size() ? (*steps)[k] : 1;
    Dim& d = dims[*axis];
    if (d.open() || step == 0) {
      d = {};
      continue;
    }
    const auto clamp = [&](std::int64_t v, std::int64_t low, std::int64_t high) {
      return std::clamp(v < 0 ? v + d.size : v, low, high);
    };
    const std::int64_t down = step < 0 ? 1 : 0;
    const std::int64_t first = clamp((*starts)[k], 0, d.size - down), last = clamp((*ends)[k], -down, d.size);
    d.size = std::max<std::int64_t>(0, (last - first + step + (step < 0 ? 1 : -1)) / step);
  }
  out[0] = dims;
}

void gather(const RuleInput& in, Outputs& out) {
  if (!in.in(0) || !in.in(1)) return;
  const auto axis = axis_in(in.integer("axis", 0), in.in(0)->size());
  if (!axis) return;
  Dims dims(in.in(0)->begin(), in.in(0)->begin() + static_cast<std::ptrdiff_t>(*axis));
  dims.insert(dims.end(), in.in(1)->begin(), in.in(1)->end());
  dims.insert(dims.end(), in.in(0)->begin() + static_cast<std::ptrdiff_t>(*axis) + 1, in.in(0)->end());
  out[0] = dims;
}

void reduce(const RuleInput& in, Outputs& out) {
  if (!in.in(0) || (in.has(1) && !in.stored(1))) return;
  const auto axes = in.list("axes", 1);
  const bool keep = in.integer("keepdims", 1) != 0;
  std::vector<bool> gone(in.in(0)->size(), !axes || axes->empty());
  for (const std::int64_t a : axes.value_or(Numbers{}))
    if (const auto i = axis_in(a, gone.size())) gone[*i] = true;
  Dims dims;
  for (std::size_t i = 0; i < gone.size(); ++i) {
    if (!gone[i])
      dims.push_back((*in.in(0))[i]);
    else if (keep)
      dims.push_back({1, {}});
  }
  out[0] = dims;
}

void expand(const RuleInput& in, Outputs& out) {
  const auto asked = in.stored(1);
  if (!asked) return;
  Dims dims;
  for (const std::int64_t n : *asked) dims.push_back({n, {}});
  out[0] = broadcast({in.in(0), dims});
}

void of_shape(const RuleInput& in, Outputs& out) {
  if (const auto asked = in.stored(0)) {
    Dims dims;
    for (const std::int64_t n : *asked) dims.push_back({n, {}});
    out[0] = dims;
  }
}

void shape_of(const RuleInput& in, Outputs& out) {
  if (!in.in(0)) return;
  const auto rank = static_cast<std::int64_t>(in.in(0)->size());
  const auto bound = [&](const char* name, std::int64_t fallback) {
    const std::int64_t v = in.integer(name, fallback);
    return std::clamp<std::int64_t>(v < 0 ? v + rank : v, 0, rank);
  };
  out[0] = Dims{{std::max<std::int64_t>(bound("end", rank) - bound("start", 0), 0), {}}};
}

void pad(const RuleInput& in, Outputs& out) {
  const auto pads = in.list("pads", 1);
  if (!in.in(0) || !pads || in.has(3)) return;
  Dims dims = *in.in(0);
  for (std::size_t i = 0; i < dims.size() && i + dims.size() < pads->size(); ++i) {
    const std::int64_t added = (*pads)[i] + (*pads)[i + dims.size()];
    if (!dims[i].open())
      dims[i].size += added;
    else if (added != 0)
      dims[i] = {};
  }
  out[0] = dims;
}

void skip_norm(const RuleInput& in, Outputs& out) {
  out[0] = in.in(0);
  if (out.size() > 3) out[3] = in.in(0);
}

void batch_norm(const RuleInput& in, Outputs& out) { out[0] = in.in(0); }

struct Rule {
  std::string_view op;
  void (*infer)(const RuleInput&, Outputs&);
};

constexpr std::array rules{
    Rule{"MatMul", matmul},
    Rule{"FusedMatMul", fused_matmul},
    Rule{"Gemm", gemm},
    Rule{"Conv", conv},
    Rule{"FusedConv", conv},
    Rule{"MaxPool", pool},
    Rule{"AveragePool", pool},
    Rule{"GlobalAveragePool", global_pool},
    Rule{"GlobalMaxPool", global_pool},
    Rule{"ConvTranspose", conv_transpose},
    Rule{"Transpose", transpose},
    Rule{"Reshape", reshape},
    Rule{"Flatten", flatten},
    Rule{"Squeeze", squeeze},
    Rule{"Unsqueeze", unsqueeze},
    Rule{"Concat", concat},
    Rule{"Split", split},
    Rule{"Slice", slice},
    Rule{"Gather", gather},
    Rule{"Expand", expand},
    Rule{"ConstantOfShape", of_shape},
    Rule{"Shape", shape_of},
    Rule{"Pad", pad},
    Rule{"ReduceMean", reduce},
    Rule{"ReduceSum", reduce},
    Rule{"ReduceMax", reduce},
    Rule{"ReduceMin", reduce},
    Rule{"ReduceProd", reduce},
    Rule{"ReduceL2", reduce},
    Rule{"BatchNormalization", batch_norm},
    Rule{"SkipLayerNormalization", skip_norm},
    Rule{"SkipSimplifiedLayerNormalization", skip_norm},
    Rule{"Dropout", all_same},
    Rule{"Add", elementwise},
    Rule{"Sub", elementwise},
    Rule{"Mul", elementwise},
    Rule{"Div", elementwise},
    Rule{"Pow", elementwise},
    Rule{"Where", elementwise},
    Rule{"Equal", elementwise},
    Rule{"Greater", elementwise},
    Rule{"GreaterOrEqual", elementwise},
    Rule{"Less", elementwise},
    Rule{"LessOrEqual", elementwise},
    Rule{"And", elementwise},
    Rule{"Or", elementwise},
    Rule{"Xor", elementwise},
    Rule{"Min", elementwise},
    Rule{"Max", elementwise},
    Rule{"Mod", elementwise},
    Rule{"PRelu", elementwise},
    Rule{"Sum", elementwise},
    Rule{"Mean", elementwise},
    Rule{"Relu", same},
    Rule{"Sigmoid", same},
    Rule{"Tanh", same},
    Rule{"Softmax", same},
    Rule{"LogSoftmax", same},
    Rule{"Erf", same},
    Rule{"Sqrt", same},
    Rule{"Exp", same},
    Rule{"Log", same},
    Rule{"Neg", same},
    Rule{"Abs", same},
    Rule{"Cast", same},
    Rule{"Identity", same},
    Rule{"Clip", same},
    Rule{"HardSigmoid", same},
    Rule{"HardSwish", same},
    Rule{"LeakyRelu", same},
    Rule{"Elu", same},
    Rule{"Selu", same},
    Rule{"Softplus", same},
    Rule{"Softsign", same},
    Rule{"ThresholdedRelu", same},
    Rule{"Gelu", same},
    Rule{"FastGelu", same},
    Rule{"BiasGelu", same},
    Rule{"QuickGelu", same},
    Rule{"Mish", same},
    Rule{"Reciprocal", same},
    Rule{"Sin", same},
    Rule{"Cos", same},
    Rule{"Floor", same},
    Rule{"Ceil", same},
    Rule{"Round", same},
    Rule{"Sign", same},
    Rule{"Not", same},
    Rule{"IsNaN", same},
    Rule{"Trilu", same},
    Rule{"CumSum", same},
    Rule{"ScatterND", same},
    Rule{"InstanceNormalization", same},
    Rule{"LayerNormalization", same},
    Rule{"SimplifiedLayerNormalization", same},
    Rule{"RMSNormalization", same},
    Rule{"GroupNormalization", same},
    Rule{"LRN", same},
    Rule{"BiasSoftmax", same},
    Rule{"MemcpyFromHost", same},
    Rule{"MemcpyToHost", same},
};

}  // namespace

const KnownShape& RuleInput::in(std::size_t i) const {
  static const KnownShape none;
  return has(i) ? shapes[static_cast<std::size_t>(node.inputs[i])] : none;
}

std::optional<Numbers> RuleInput::stored(std::size_t i) const {
  if (!has(i)) return std::nullopt;
  const auto it = graph.initializers.find(node.inputs[i]);
  if (it == graph.initializers.end()) return std::nullopt;
  std::int64_t count = 1;
  for (const std::int64_t n : it->second.sizes) count *= n;
  if (static_cast<std::int64_t>(it->second.integers.size()) != count) return std::nullopt;
  return it->second.integers;
}

std::int64_t RuleInput::integer(const char* name, std::int64_t fallback) const {
  const auto it = node.attributes.find(name);
  const auto* v = it == node.attributes.end() ? nullptr : std::get_if<std::int64_t>(&it->second);
  return v ? *v : fallback;
}

std::optional<Numbers> RuleInput::list(const char* name) const {
  const auto it = node.attributes.find(name);
  const auto* v = it == node.attributes.end() ? nullptr : std::get_if<Numbers>(&it->second);
  return v ? std::optional(*v) : std::nullopt;
}

std::optional<Numbers> RuleInput::list(const char* name, std::size_t input) const {
  return has(input) ? stored(input) : list(name);
}

void infer_shapes(const RuleInput& in, Outputs& outputs) {
  if (outputs.empty()) return;
  const auto rule = std::find_if(rules.begin(), rules.end(), [&](const Rule& r) { return r.op == in.node.op_type; });
  if (rule != rules.end()) rule->infer(in, outputs);
}

}  // namespace memplan::ort
