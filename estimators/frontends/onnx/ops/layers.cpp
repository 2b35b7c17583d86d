// Convolutions, normalizations, pooling and the other layers that ONNX has an op for.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "estimators/frontends/onnx/table.h"

namespace memplan::onnx_format {

namespace {

void infer_same(const At& at, std::vector<Fact>& out) {
  out[0].dtype = at.in(0).dtype;
  out[0].sizes = at.sizes(0);
}

// --- windows: convolution and pooling --------------------------------------------------------------------------------

struct Window {
  Sizes kernel, strides, dilations, before, after;
  bool even() const { return before == after; }
};

/// None where sizes are unknown. Attributes of the wrong length are the file's fault.
std::optional<Window> window(const At& at, Sizes kernel, bool transposed = false) {
  const std::size_t n = kernel.size();
  if (!at.sizes(0) || at.sizes(0)->size() != n + 2 || n == 0) return std::nullopt;
  Window w;
  w.strides = at.list("strides").value_or(Sizes(n, 1));
  w.dilations = at.list("dilations").value_or(Sizes(n, 1));
  Sizes pads = at.list("pads").value_or(Sizes(2 * n, 0));
  auto positive = [](const Sizes& v) {
    return std::all_of(v.begin(), v.end(), [](std::int64_t x) { return x > 0 && x < (std::int64_t{1} << 40); });
  };
  if (w.strides.size() != n || w.dilations.size() != n || pads.size() != 2 * n || !positive(w.strides) ||
      !positive(w.dilations) || !positive(kernel))
    fail_input("node '" + at.node.name + "' (" + at.node.op_type + ") has a window that does not fit its input",
               at.node.name, "the file is damaged");
  const std::string automatic = at.text("auto_pad", "NOTSET");
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t size = (*at.sizes(0))[i + 2], span = checked_mul(kernel[i] - 1, w.dilations[i]) + 1;
    if (automatic == "VALID") pads[i] = pads[i + n] = 0;
    if ((automatic == "SAME_UPPER" || automatic == "SAME_LOWER") && !transposed) {
      const std::int64_t outputs = (size + w.strides[i] - 1) / w.strides[i];
      const std::int64_t total = std::max<std::int64_t>((outputs - 1) * w.strides[i] + span - size, 0);
      pads[i] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      pads[i + n] = total - pads[i];
    }
  }
  w.kernel = std::move(kernel);
  w.before.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(n));
  w.after.assign(pads.begin() + static_cast<std::ptrdiff_t>(n), pads.end());
  return w;
}

std::int64_t windows_in(const At& at, const Window& w, std::size_t i, bool ceil) {
  const std::int64_t size = (*at.sizes(0))[i + 2], span = checked_mul(w.kernel[i] - 1, w.dilations[i]) + 1;
  const std::int64_t room = checked_add(checked_add(size, checked_add(w.before[i], w.after[i])), -span);
  if (room < 0)
    fail_input("the window of node '" + at.node.name + "' (" + at.node.op_type + ") is larger than its input",
               at.node.name, "the dimensions given are too small for this model");
  std::int64_t n = (room + (ceil ? w.strides[i] - 1 : 0)) / w.strides[i] + 1;
  // A window must begin inside the input or its padding before (PyTorch and ONNX agree).
  if (ceil && (n - 1) * w.strides[i] >= size + w.before[i]) --n;
  return n;
}

/// Uneven padding is an op of its own in PyTorch: F.pad in front of the layer.
ValueId padded(const At& at, Emit& e, Window& w) {
  const ValueId x = e.tensor(at.id(0));
  if (w.even()) return x;
  Sizes pad;
  for (std::size_t i = w.before.size(); i-- > 0;) pad.push_back(w.before[i]), pad.push_back(w.after[i]);
  w.before.assign(w.before.size(), 0);
  w.after = w.before;
  return e.call("aten::constant_pad_nd", {{x}, list_of(pad)});
}

Sizes kernel_of(const At& at, std::size_t weight) {
  if (at.has(weight) && at.sizes(weight) && at.sizes(weight)->size() > 2)
    return Sizes(at.sizes(weight)->begin() + 2, at.sizes(weight)->end());
  return at.list("kernel_shape").value_or(Sizes{});
}

void infer_conv(const At& at, std::vector<Fact>& out) {
  out[0].dtype = at.in(0).dtype;
  const auto w = window(at, kernel_of(at, 1));
  if (!w || !at.sizes(1)) return;
  const std::int64_t group = at.integer("group", 1);
  if (group < 1 || (*at.sizes(0))[1] != checked_mul((*at.sizes(1))[1], group))
    fail_input("the channels of node '" + at.node.name + "' (Conv) do not fit its weight", at.node.name,
               "the file is damaged");
  Sizes sizes{(*at.sizes(0))[0], (*at.sizes(1))[0]};
  for (std::size_t i = 0; i < w->kernel.size(); ++i) sizes.push_back(windows_in(at, *w, i, false));
  out[0].sizes = std::move(sizes);
}

bool lower_conv(const At& at, Emit& e) {
  auto w = window(at, kernel_of(at, 1));
  if (!w || w->kernel.size() > 3) return false;
  const ValueId x = padded(at, e, *w);
  const std::string op = "aten::conv" + std::to_string(w->kernel.size()) + "d";
  e.call_for(at, op,
             {{x},
              {e.tensor(at.id(1))},
              e.optional(at, 2),
              list_of(w->strides),
              list_of(w->before),
              list_of(w->dilations),
              {at.integer("group", 1)}});
  return true;
}

void infer_conv_transpose(const At& at, std::vector<Fact>& out) {
  out[0].dtype = at.in(0).dtype;
  const auto w = window(at, kernel_of(at, 1), true);
  if (!w || !at.sizes(1)) return;
  Sizes sizes{(*at.sizes(0))[0], checked_mul((*at.sizes(1))[1], at.integer("group", 1))};
  const Sizes extra = at.list("output_padding").value_or(Sizes(w->kernel.size(), 0));
  const auto given = at.list("output_shape");
  for (std::size_t i = 0; i < w->kernel.size(); ++i) {
    if (given && given->size() >= w->kernel.size()) {
      sizes.push_back((*given)[given->size() - w->kernel.size() + i]);
    } else if (at.text("auto_pad", "NOTSET").substr(0, 4) == "SAME") {
      sizes.push_back(checked_mul((*at.sizes(0))[i + 2], w->strides[i]));
    } else {
      const std::int64_t reach = checked_mul((*at.sizes(0))[i + 2] - 1, w->strides[i]);
      sizes.push_back(checked_add(reach, (w->kernel[i] - 1) * w->dilations[i] + 1 + (i < extra.size() ? extra[i] : 0) -
                                             w->before[i] - w->after[i]));
    }
  }
  out[0].sizes = std::move(sizes);
}

bool lower_conv_transpose(const At& at, Emit& e) {
  const auto w = window(at, kernel_of(at, 1), true);
  if (!w || w->kernel.size() > 3) return false;
  const std::string op =
      "aten::conv_transpose" + std::to_string(w->kernel.size()) + (w->kernel.size() == 1 ? "d" : "d.input");
  const Sizes extra = at.list("output_padding").value_or(Sizes(w->kernel.size(), 0));
  e.call_for(at, op,
             {{e.tensor(at.id(0))},
              {e.tensor(at.id(1))},
              e.optional(at, 2),
              list_of(w->strides),
              list_of(w->before),
              list_of(extra),
              {at.integer("group", 1)},
              list_of(w->dilations)});
  return true;
}

void infer_pool(const At& at, std::vector<Fact>& out) {
  for (Fact& f : out) f.dtype = at.in(0).dtype;
  if (out.size() > 1) out[1].dtype = DType::int64;
  const auto w = window(at, kernel_of(at, 99));
  if (!w) return;
  Sizes sizes{(*at.sizes(0))[0], (*at.sizes(0))[1]};
  for (std::size_t i = 0; i < w->kernel.size(); ++i)
    sizes.push_back(windows_in(at, *w, i, at.integer("ceil_mode", 0) != 0));
  for (Fact& f : out) f.sizes = sizes;
}

bool lower_pool(const At& at, Emit& e) {
  auto w = window(at, kernel_of(at, 99));
  if (!w || w->kernel.size() > 3) return false;
  const ValueId x = padded(at, e, *w);
  const std::string n = std::to_string(w->kernel.size());
  const Arg ceil{at.integer("ceil_mode", 0) != 0};
  if (at.node.op_type == "MaxPool") {
    const bool indices = at.node.outputs.size() > 1 && at.node.outputs[1] >= 0;
    e.call_for(at, "aten::max_pool" + n + (indices ? "d_with_indices" : "d"),
               {{x}, list_of(w->kernel), list_of(w->strides), list_of(w->before), list_of(w->dilations), ceil}, {},
               indices ? 2 : 1);
  } else {
    e.call_for(at, "aten::avg_pool" + n + "d",
               {{x},
                list_of(w->kernel),
                list_of(w->strides),
                list_of(w->before),
                ceil,
                {at.integer("count_include_pad", 0) != 0}});
  }
  return true;
}

void infer_global_pool(const At& at, std::vector<Fact>& out) {
  infer_same(at, out);
  if (out[0].sizes)
    for (std::size_t i = 2; i < out[0].sizes->size(); ++i) (*out[0].sizes)[i] = 1;
}

bool lower_global_pool(const At& at, Emit& e) {
  if (!at.sizes(0) || at.sizes(0)->size() < 3) return false;
  Sizes axes;
  for (std::size_t i = at.sizes(0)->size(); i-- > 2;)
    axes.push_back(static_cast<std::int64_t>(i) - static_cast<std::int64_t>(at.sizes(0)->size()));
  std::sort(axes.rbegin(), axes.rend());
  // nn.AdaptiveAvgPool2d(1) runs mean((-1, -2), keepdim=True).
  e.call_for(at, at.node.op_type == "GlobalAveragePool" ? "aten::mean.dim" : "aten::amax",
             {{e.tensor(at.id(0))}, list_of(axes), {true}});
  return true;
}

// --- normalization ---------------------------------------------------------------------------------------------------

void infer_first_same(const At& at, std::vector<Fact>& out) { infer_same(at, out); }

bool lower_batch_norm(const At& at, Emit& e) {
  if (at.node.inputs.size() < 5) return false;
  // The file's momentum weighs the old statistics, PyTorch's the new ones.
  const double momentum = std::round((1.0 - at.real("momentum", 0.9)) * 1e6) / 1e6;
  e.call_for(at, "aten::batch_norm",
             {{e.tensor(at.id(0))},
              e.optional(at, 1),
              e.optional(at, 2),
              e.optional(at, 3),
              e.optional(at, 4),
              {e.training()},
              {momentum},
              {at.real("epsilon", 1e-5)},
              {true}});
  return true;
}

bool lower_instance_norm(const At& at, Emit& e) {
  // nn.InstanceNorm runs batch_norm over [1, N * C, ...] (aten/src/ATen/native/Normalization.cpp).
  if (!at.sizes(0) || at.sizes(0)->size() < 3) return false;
  const Sizes& s = *at.sizes(0);
  Sizes merged{1, checked_mul(s[0], s[1])};
  merged.insert(merged.end(), s.begin() + 2, s.end());
  auto repeated = [&](std::size_t input) {
    return at.has(input) ? Arg{e.call("aten::repeat", {{e.tensor(at.id(input))}, list_of({s[0]})})} : Arg{};
  };
  const Arg weight = repeated(1), bias = repeated(2);
  const Arg x{e.call("aten::view", {{e.tensor(at.id(0))}, list_of(merged)})};
  const Arg y{e.call("aten::batch_norm", {x, weight, bias, {}, {}, {true}, {0.0}, {at.real("epsilon", 1e-5)}, {true}})};
  e.call_for(at, "aten::view", {y, list_of(s)});
  return true;
}

bool lower_layer_norm(const At& at, Emit& e) {
  if (!at.sizes(0)) return false;
  const Sizes& s = *at.sizes(0);
  const std::size_t axis = axis_of(at.integer("axis", -1), s.size(), at.node);
  const Sizes shape(s.begin() + static_cast<std::ptrdiff_t>(axis), s.end());
  if (at.node.op_type == "LayerNormalization")
    e.call_for(at, "aten::layer_norm",
               {{e.tensor(at.id(0))},
                list_of(shape),
                e.optional(at, 1),
                e.optional(at, 2),
                {at.real("epsilon", 1e-5)},
                {false}});
  else  // RMSNormalization, SimplifiedLayerNormalization
    e.call_for(at, "aten::rms_norm",
               {{e.tensor(at.id(0))}, list_of(shape), e.optional(at, 1), {at.real("epsilon", 1e-5)}});
  return true;
}

/// com.microsoft's residual additions in front of a norm: y = norm(x + skip + bias).
bool lower_skip_norm(const At& at, Emit& e) {
  if (!at.sizes(0)) return false;
  const bool simple = at.node.op_type == "SkipSimplifiedLayerNormalization";
  Arg sum{e.call("aten::add.Tensor", {{e.tensor(at.id(0))}, {e.tensor(at.id(1))}})};
  const std::size_t bias = simple ? 3 : 4;
  if (at.has(bias)) sum = {e.call("aten::add.Tensor", {sum, {e.tensor(at.id(bias))}})};
  if (at.node.outputs.size() > 3) e.bind(at.node.outputs[3], std::get<ValueId>(sum.value));
  const Arg shape = list_of({at.sizes(0)->back()});
  if (simple)
    e.call_for(at, "aten::rms_norm", {sum, shape, e.optional(at, 2), {at.real("epsilon", 1e-5)}});
  else
    e.call_for(at, "aten::layer_norm",
               {sum, shape, e.optional(at, 2), e.optional(at, 3), {at.real("epsilon", 1e-5)}, {false}});
  return true;
}

void infer_skip_norm(const At& at, std::vector<Fact>& out) {
  infer_same(at, out);
  if (out.size() > 3) out[3] = out[0];
}

bool lower_group_norm(const At& at, Emit& e) {
  e.call_for(at, "aten::group_norm",
             {{e.tensor(at.id(0))},
              {at.integer("num_groups", 1)},
              e.optional(at, 1),
              e.optional(at, 2),
              {at.real("epsilon", 1e-5)},
              {true}});
  return true;
}

bool lower_softmax(const At& at, Emit& e) {
  if (!at.sizes(0)) return false;
  const std::int64_t axis = at.integer("axis", at.opset >= 13 ? -1 : 1);
  axis_of(axis, at.sizes(0)->size(), at.node);
  e.call_for(at, at.node.op_type == "LogSoftmax" ? "aten::log_softmax.int" : "aten::softmax.int",
             {{e.tensor(at.id(0))}, {axis}});
  return true;
}

// --- others ----------------------------------------------------------------------------------------------------------

void infer_dropout(const At& at, std::vector<Fact>& out) {
  infer_same(at, out);
  if (out.size() > 1) out[1].dtype = DType::boolean, out[1].sizes = at.sizes(0);
}

bool lower_dropout(const At& at, Emit& e) {
  const double p = at.has(1) ? at.number(1).value_or(0.5) : at.real("ratio", 0.5);
  e.call_for(at, "aten::dropout", {{e.tensor(at.id(0))}, {std::round(p * 1e6) / 1e6}, {e.training()}});
  return true;
}

std::optional<Sizes> resized(const At& at) {
  if (!at.sizes(0)) return std::nullopt;
  const std::size_t rank = at.sizes(0)->size();
  const bool upsample = at.node.op_type == "Upsample" || at.opset < 11;
  if (!upsample && at.has(3)) {
    const auto sizes = at.integers(3);
    return sizes && sizes->size() == rank ? sizes : std::nullopt;
  }
  std::vector<double> scales;
  const std::size_t input = upsample ? 1 : 2;
  if (at.has(input)) {
    const Fact& f = at.in(input);
    if (!f.contents || !f.contents->floating) return std::nullopt;
    scales = f.contents->floats;
  } else if (const Attribute* a = at.attribute("scales")) {
    if (const auto* v = std::get_if<std::vector<double>>(a)) scales = *v;
  }
  if (scales.size() != rank) return std::nullopt;
  Sizes out;
  for (std::size_t i = 0; i < rank; ++i) {
    const double size = std::floor(static_cast<double>((*at.sizes(0))[i]) * scales[i]);
    if (!(size >= 0) || size > 9e15)
      fail_input("a Resize has an impossible scale", at.node.name, "the file is damaged");
    out.push_back(static_cast<std::int64_t>(size));
  }
  return out;
}

void infer_resize(const At& at, std::vector<Fact>& out) {
  out[0].dtype = at.in(0).dtype;
  out[0].sizes = resized(at);
}

bool lower_resize(const At& at, Emit& e) {
  const auto sizes = resized(at);
  if (!sizes || sizes->size() < 3 || sizes->size() > 5 || (*sizes)[0] != (*at.sizes(0))[0] ||
      (*sizes)[1] != (*at.sizes(0))[1])
    return false;
  const Arg output = list_of(Sizes(sizes->begin() + 2, sizes->end())), x{e.tensor(at.id(0))};
  const std::string mode = at.text("mode", "nearest"), n = std::to_string(sizes->size() - 2);
  if (mode == "nearest") {
    e.call_for(at, "aten::upsample_nearest" + n + "d.vec", {x, output, {}});
    return true;
  }
  const Arg corners{at.text("coordinate_transformation_mode", "half_pixel") == "align_corners"};
  const char* linear[] = {"linear1d", "bilinear2d", "trilinear3d"};
  if (mode == "cubic" && sizes->size() != 4) return false;
  e.call_for(at, std::string("aten::upsample_") + (mode == "cubic" ? "bicubic2d" : linear[sizes->size() - 3]) + ".vec",
             {x, output, corners, {}});
  return true;
}

std::optional<Sizes> pads_of(const At& at) {
  if (!at.sizes(0)) return std::nullopt;
  const auto given = at.list("pads", 1);
  const std::size_t rank = at.sizes(0)->size();
  const auto axes = at.integers(3);
  if (!given || (at.has(3) && !axes)) return std::nullopt;
  const std::size_t n = axes ? axes->size() : rank;
  if (given->size() != 2 * n) fail_input("a Pad has the wrong number of pads", at.node.name, "the file is damaged");
  Sizes out(2 * rank, 0);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t axis = axes ? axis_of((*axes)[i], rank, at.node) : i;
    out[axis] = (*given)[i];
    out[axis + rank] = (*given)[i + n];
  }
  return out;
}

void infer_pad(const At& at, std::vector<Fact>& out) {
  out[0].dtype = at.in(0).dtype;
  const auto pads = pads_of(at);
  if (!pads) return;
  Sizes sizes = *at.sizes(0);
  for (std::size_t i = 0; i < sizes.size(); ++i)
    sizes[i] = checked_add(sizes[i], checked_add((*pads)[i], (*pads)[i + sizes.size()]));
  out[0].sizes = std::move(sizes);
}

bool lower_pad(const At& at, Emit& e) {
  const auto pads = pads_of(at);
  if (!pads) return false;
  const std::size_t rank = pads->size() / 2;
  Sizes pad;  // from the last dimension on, as F.pad takes them
  for (std::size_t i = rank; i-- > 0;) pad.push_back((*pads)[i]), pad.push_back((*pads)[i + rank]);
  while (pad.size() > 2 && pad[pad.size() - 1] == 0 && pad[pad.size() - 2] == 0) pad.resize(pad.size() - 2);
  const std::string mode = at.text("mode", "constant");
  const std::string n = std::to_string(pad.size() / 2);
  if (mode == "constant")
    e.call_for(at, "aten::constant_pad_nd", {{e.tensor(at.id(0))}, list_of(pad), {at.number(2).value_or(0)}});
  else
    e.call_for(at, (mode == "reflect" ? "aten::reflection_pad" : "aten::replication_pad") + n + "d",
               {{e.tensor(at.id(0))}, list_of(pad)});
  return true;
}

void infer_shuffle(const At& at, std::vector<Fact>& out) {
  out[0].dtype = at.in(0).dtype;
  const std::int64_t block = at.integer("blocksize", 1);
  if (!at.sizes(0) || at.sizes(0)->size() != 4 || block < 1 || block > 65536) return;
  Sizes s = *at.sizes(0);
  const std::int64_t square = block * block;
  if (at.node.op_type == "DepthToSpace")
    s = {s[0], s[1] / square, checked_mul(s[2], block), checked_mul(s[3], block)};
  else
    s = {s[0], checked_mul(s[1], square), s[2] / block, s[3] / block};
  out[0].sizes = std::move(s);
}

bool lower_shuffle(const At& at, Emit& e) {
  e.call_for(at, at.node.op_type == "DepthToSpace" ? "aten::pixel_shuffle" : "aten::pixel_unshuffle",
             {{e.tensor(at.id(0))}, {at.integer("blocksize", 1)}});
  return true;
}

constexpr OpRow rows[] = {
    {"Conv", infer_conv, lower_conv},
    {"ConvTranspose", infer_conv_transpose, lower_conv_transpose},
    {"MaxPool", infer_pool, lower_pool},
    {"AveragePool", infer_pool, lower_pool},
    {"GlobalAveragePool", infer_global_pool, lower_global_pool},
    {"GlobalMaxPool", infer_global_pool, lower_global_pool},
    {"BatchNormalization", infer_first_same, lower_batch_norm},
    {"InstanceNormalization", infer_same, lower_instance_norm},
    {"LayerNormalization", infer_first_same, lower_layer_norm},
    {"RMSNormalization", infer_same, lower_layer_norm},
    {"SimplifiedLayerNormalization", infer_same, lower_layer_norm},
    {"com.microsoft::SimplifiedLayerNormalization", infer_same, lower_layer_norm},
    {"com.microsoft::SkipLayerNormalization", infer_skip_norm, lower_skip_norm},
    {"com.microsoft::SkipSimplifiedLayerNormalization", infer_skip_norm, lower_skip_norm},
    {"GroupNormalization", infer_same, lower_group_norm},
    {"Softmax", infer_same, lower_softmax},
    {"LogSoftmax", infer_same, lower_softmax},
    {"Dropout", infer_dropout, lower_dropout, 0, bits({1, 2})},
    {"Resize", infer_resize, lower_resize, 0, bits({1, 2, 3})},
    {"Upsample", infer_resize, lower_resize, 0, bits({1})},
    {"Pad", infer_pad, lower_pad, bits({2}), bits({1, 3})},
    {"DepthToSpace", infer_shuffle, lower_shuffle},
    {"SpaceToDepth", infer_shuffle, lower_shuffle},
};

}  // namespace

Rows layer_rows() { return {rows, std::size(rows)}; }

}  // namespace memplan::onnx_format
