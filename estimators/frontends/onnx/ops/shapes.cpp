// Ops that make tensors out of sizes and numbers.
#include <cmath>
#include <limits>

#include "estimators/frontends/onnx/ops/contents.h"
#include "estimators/frontends/onnx/table.h"
#include "estimators/frontends/onnx/tensors.h"

namespace memplan::onnx_format {

namespace {

void infer_shape(const At& at, std::vector<Inferred>& out) {
  out[0].dtype = DType::int64;
  if (!at.sizes(0)) return;
  Sizes sizes = *at.sizes(0);
  const auto rank = static_cast<std::int64_t>(sizes.size());
  auto bound = [&](std::int64_t v) { return std::clamp<std::int64_t>(v < 0 ? v + rank : v, 0, rank); };
  const std::int64_t start = bound(at.integer("start", 0)), end = bound(at.integer("end", rank));
  Contents c;
  if (start < end) c.integers.assign(sizes.begin() + start, sizes.begin() + end);
  out[0].sizes = Sizes{static_cast<std::int64_t>(c.integers.size())};
  out[0].contents = std::move(c);
}

void infer_size(const At& at, std::vector<Inferred>& out) {
  out[0].dtype = DType::int64;
  out[0].sizes = Sizes{};
  if (at.sizes(0)) out[0].contents = Contents{false, {count_of(*at.sizes(0))}, {}};
}

/// Contents become a tensor only where something other than arithmetic on sizes reads them.
bool lower_contents(const At& at, Emit& e) {
  if (!e.inferred[at.node.outputs[0]].contents) return false;
  e.tensor(at.node.outputs[0]);
  return true;
}

void infer_constant(const At& at, std::vector<Inferred>& out) {
  Inferred& f = out[0];
  auto set = [&](DType dtype, bool list, Contents c) {
    f.dtype = dtype;
    f.sizes = list ? Sizes{static_cast<std::int64_t>(c.size())} : Sizes{};
    f.contents = std::move(c);
  };
  for (const char* name : {"value", "sparse_value"})
    if (const Attribute* a = at.attribute(name))
      if (const auto* t = std::get_if<StoredTensor>(a)) {
        f.dtype = t->dtype;
        f.sizes = t->sizes;
        if (static_cast<std::int64_t>(std::max(t->integers.size(), t->floats.size())) == count_of(t->sizes))
          f.contents = Contents{is_floating(t->dtype), t->integers, t->floats};
        return;
      }
  if (const Attribute* a = at.attribute("value_int"))
    set(DType::int64, false, {false, {std::get<std::int64_t>(*a)}, {}});
  else if (const Attribute* a = at.attribute("value_float"))
    set(DType::float32, false, {true, {}, {std::get<double>(*a)}});
  else if (const auto ints = at.list("value_ints"))
    set(DType::int64, true, {false, *ints, {}});
  else if (const Attribute* a = at.attribute("value_floats"))
    if (const auto* v = std::get_if<std::vector<double>>(a)) set(DType::float32, true, {true, {}, *v});
}

bool lower_constant(const At& at, Emit& e) {
  if (!e.inferred[at.node.outputs[0]].sizes) return false;
  e.tensor(at.node.outputs[0]);
  return true;
}

Contents fill_value(const At& at, DType& dtype) {
  dtype = DType::float32;
  const Attribute* a = at.attribute("value");
  const auto* t = a ? std::get_if<StoredTensor>(a) : nullptr;
  if (!t) return {true, {}, {0.0}};
  dtype = t->dtype;
  return {is_floating(t->dtype), t->integers, t->floats};
}

void infer_constant_of_shape(const At& at, std::vector<Inferred>& out) {
  DType dtype;
  const Contents value = fill_value(at, dtype);
  out[0].dtype = dtype;
  const auto sizes = at.integers(0);
  if (!sizes) return;
  out[0].sizes = *sizes;
  const std::int64_t count = count_of(*sizes);
  if (count > max_followed || value.size() != 1) return;
  Contents c;
  c.floating = value.floating;
  value.floating ? c.floats.assign(static_cast<std::size_t>(count), value.floats[0])
                 : c.integers.assign(static_cast<std::size_t>(count), value.integers[0]);
  out[0].contents = std::move(c);
}

bool lower_constant_of_shape(const At& at, Emit& e) {
  const auto sizes = at.integers(0);
  if (!sizes) return false;
  DType dtype;
  const Contents value = fill_value(at, dtype);
  const double v = value.size() == 1 ? value.number(0) : 0;
  if (v == 0)
    e.call_for(at, "aten::zeros", {list_of(*sizes)}, {{"dtype", {dtype}}});
  else if (v == 1)
    e.call_for(at, "aten::ones", {list_of(*sizes)}, {{"dtype", {dtype}}});
  else
    e.call_for(at, "aten::full", {list_of(*sizes), {v}}, {{"dtype", {dtype}}});
  return true;
}

void infer_range(const At& at, std::vector<Inferred>& out) {
  out[0].dtype = at.in(0).dtype;
  const auto start = at.number(0), limit = at.number(1), step = at.number(2);
  if (!start || !limit || !step || *step == 0) return;
  const double count = std::max(0.0, std::ceil((*limit - *start) / *step));
  if (!std::isfinite(count) || count > 9e15) fail_input("a Range has no end", at.node.name, "the file is damaged");
  out[0].sizes = Sizes{static_cast<std::int64_t>(count)};
  if (count > max_followed) return;
  Contents c;
  c.floating = at.in(0).contents->floating;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(count); ++i) {
    const double v = *start + static_cast<double>(i) * *step;
    c.floating ? c.floats.push_back(v) : c.integers.push_back(whole_number(v, "a Range"));
  }
  out[0].contents = std::move(c);
}

bool lower_range(const At& at, Emit& e) {
  if (!at.number(0) || !at.number(1) || !at.number(2)) return false;
  const Kwargs dtype =
      at.in(0).dtype && *at.in(0).dtype != DType::int64 ? Kwargs{{"dtype", {*at.in(0).dtype}}} : Kwargs{};
  if (at.number(0) == 0.0 && at.number(2) == 1.0)
    e.call_for(at, "aten::arange", {e.operand(at.id(1))}, dtype);
  else
    e.call_for(at, "aten::arange.start_step", {e.operand(at.id(0)), e.operand(at.id(1)), e.operand(at.id(2))}, dtype);
  return true;
}

void infer_nonzero(const At& at, std::vector<Inferred>& out) {
  out[0].dtype = DType::int64;
  const Inferred& x = at.in(0);
  if (!x.contents || x.rank() > 1) return;  // how many are not zero is only known from the data
  Contents c;
  for (std::size_t i = 0; i < x.contents->size(); ++i)
    if (x.contents->number(i) != 0) c.integers.push_back(static_cast<std::int64_t>(i));
  out[0].sizes = Sizes{static_cast<std::int64_t>(x.rank()), static_cast<std::int64_t>(c.integers.size())};
  if (x.rank() == 1) out[0].contents = std::move(c);
}

void infer_like(const At& at, std::vector<Inferred>& out) {
  out[0].sizes = at.has(0) ? at.sizes(0) : at.list("shape");
  const auto n = at.integer("dtype", 0);
  out[0].dtype = n ? dtype_of(static_cast<int>(n)) : at.has(0) ? at.in(0).dtype : std::optional(DType::float32);
}

bool lower_like(const At& at, Emit& e) {
  const Inferred& f = e.inferred[at.node.outputs[0]];
  if (!f.sizes) return false;
  const bool normal = at.node.op_type.find("Normal") != std::string::npos;
  const char* op = at.node.op_type == "EyeLike" ? "aten::zeros" : normal ? "aten::randn" : "aten::rand";
  e.call_for(at, op, {list_of(*f.sizes)}, {{"dtype", {f.dtype.value_or(DType::float32)}}});
  return true;
}

constexpr OpRow rows[] = {
    {"Shape", infer_shape, lower_contents, 0, 0, bits({0})},
    {"Size", infer_size, lower_contents, 0, 0, bits({0})},
    {"Constant", infer_constant, lower_constant},
    {"ConstantOfShape", infer_constant_of_shape, lower_constant_of_shape, 0, bits({0})},
    {"Range", infer_range, lower_range, 0, bits({0, 1, 2})},
    {"NonZero", infer_nonzero, lower_contents},
    {"EyeLike", infer_like, lower_like, 0, 0, bits({0})},
    {"RandomNormal", infer_like, lower_like},
    {"RandomUniform", infer_like, lower_like},
    {"RandomNormalLike", infer_like, lower_like, 0, 0, bits({0})},
    {"RandomUniformLike", infer_like, lower_like, 0, 0, bits({0})},
    {"Bernoulli", infer_like, lower_like, 0, 0, bits({0})},
};

}  // namespace

Rows shape_rows() { return {rows, std::size(rows)}; }

}  // namespace memplan::onnx_format
