// Convolutions and pooling: ops with a window that moves over the input.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "estimators/frontends/onnx/metadata.h"
#include "estimators/frontends/onnx/ops/common.h"
#include "estimators/frontends/onnx/ops/contents.h"
#include "estimators/frontends/onnx/table.h"
#include "estimators/frontends/onnx/tensors.h"

namespace memplan::onnx_format {

namespace {

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

/// Uneven padding is an op of its own in PyTorch, as is what an optimizer moved into the layer: F.pad in front of it.
ValueId padded(const At& at, Emit& e, Window& w) {
  const ValueId x = e.tensor(at.id(0));
  const bool none = std::ranges::all_of(w.before, [](std::int64_t n) { return n == 0; });
  if (w.even() && (none || !has_fused_pad(at.node.metadata))) return x;
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

void infer_conv(const At& at, std::vector<Inferred>& out) {
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

void infer_conv_transpose(const At& at, std::vector<Inferred>& out) {
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

void infer_pool(const At& at, std::vector<Inferred>& out) {
  for (Inferred& f : out) f.dtype = at.in(0).dtype;
  if (out.size() > 1) out[1].dtype = DType::int64;
  const auto w = window(at, kernel_of(at, 99));
  if (!w) return;
  Sizes sizes{(*at.sizes(0))[0], (*at.sizes(0))[1]};
  for (std::size_t i = 0; i < w->kernel.size(); ++i)
    sizes.push_back(windows_in(at, *w, i, at.integer("ceil_mode", 0) != 0));
  for (Inferred& f : out) f.sizes = sizes;
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

void infer_global_pool(const At& at, std::vector<Inferred>& out) {
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

/// Samples of a window, and from one window to the next; none where they are not known.
std::optional<std::pair<std::int64_t, std::int64_t>> short_time_windows(const At& at) {
  const auto step = at.integers(1), length = at.has(3) ? at.integers(3) : std::nullopt;
  std::int64_t samples = length && length->size() == 1 ? (*length)[0] : 0;
  if (!at.has(3) && at.has(2) && at.sizes(2) && at.sizes(2)->size() == 1) samples = (*at.sizes(2))[0];
  const bool known = step && step->size() == 1 && (*step)[0] > 0 && samples > 0 && at.sizes(0);
  if (!known || at.sizes(0)->size() != 3 || at.sizes(0)->back() != 1 || (*at.sizes(0))[1] < samples)
    return std::nullopt;
  return std::make_pair(samples, (*step)[0]);
}

/// [batch, windows, frequencies, 2]
void infer_stft(const At& at, std::vector<Inferred>& out) {
  out[0].dtype = at.in(0).dtype;
  const auto w = short_time_windows(at);
  if (!w) return;
  const auto [samples, step] = *w;
  const std::int64_t frequencies = at.integer("onesided", 1) != 0 ? samples / 2 + 1 : samples;
  out[0].sizes = Sizes{(*at.sizes(0))[0], 1 + ((*at.sizes(0))[1] - samples) / step, frequencies, 2};
}

/// PyTorch's comes with frequencies before windows, and its numbers are complex.
bool lower_stft(const At& at, Emit& e) {
  const auto w = short_time_windows(at);
  if (!w) return false;
  const auto [samples, step] = *w;
  if (at.has(2) && at.sizes(2) && (at.sizes(2)->size() != 1 || (*at.sizes(2))[0] > samples)) return false;
  const Arg x{e.call("aten::squeeze.dim", {{e.tensor(at.id(0))}, {std::int64_t{2}}})},
      window = at.has(2) ? Arg{e.tensor(at.id(2))} : Arg{};
  const std::int64_t length = at.has(2) && at.sizes(2) ? (*at.sizes(2))[0] : samples;
  const Arg y{e.call("aten::stft",
                     {x, {samples}, {step}, {length}, window, {false}, {at.integer("onesided", 1) != 0}, {true}})};
  e.call_for(at, "aten::transpose.int", {{e.call("aten::view_as_real", {y})}, {std::int64_t{1}}, {std::int64_t{2}}});
  return true;
}

constexpr OpRow rows[] = {
    {"Conv", infer_conv, lower_conv},
    {"ConvTranspose", infer_conv_transpose, lower_conv_transpose},
    {"MaxPool", infer_pool, lower_pool},
    {"AveragePool", infer_pool, lower_pool},
    {"GlobalAveragePool", infer_global_pool, lower_global_pool},
    {"GlobalMaxPool", infer_global_pool, lower_global_pool},
    {"STFT", infer_stft, lower_stft, 0, bits({1, 3})},
};

}  // namespace

Rows window_rows() { return {rows, std::size(rows)}; }

}  // namespace memplan::onnx_format
