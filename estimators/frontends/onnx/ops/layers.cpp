// Normalizations and the other layers that ONNX has an op for.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "estimators/frontends/onnx/ops/common.h"
#include "estimators/frontends/onnx/table.h"

namespace memplan::onnx_format {

namespace {

// --- normalization ---------------------------------------------------------------------------------------------------

void infer_first_same(const At& at, std::vector<Inferred>& out) { infer_same(at, out); }

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
              {e.norm_trains(at.node)},
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

void infer_skip_norm(const At& at, std::vector<Inferred>& out) {
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

void infer_dropout(const At& at, std::vector<Inferred>& out) {
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
    const Inferred& f = at.in(input);
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

void infer_resize(const At& at, std::vector<Inferred>& out) {
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

void infer_pad(const At& at, std::vector<Inferred>& out) {
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

void infer_shuffle(const At& at, std::vector<Inferred>& out) {
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
