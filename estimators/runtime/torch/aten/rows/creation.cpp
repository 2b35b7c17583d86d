// Ops that make tensors from nothing or copy one.
#include <cmath>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/aten/whole_number.h"
#include "estimators/setup/setup.h"

namespace memplan {
namespace op {

Tensor zeros_like(Run& r, const Tensor& t) { return r.empty_like(t); }

namespace {
Tensor empty_in(Run& r, const Tensor& t, Format format) {
  if (t->on_host) return r.host(t->sizes, t->dtype);
  switch (format) {
    case Format::preserve:
      return r.empty_like(t);
    case Format::contiguous:
      return r.empty(t->sizes, t->dtype);
    case Format::channels_last:
      return r.empty_strided(t->sizes, channels_last_strides(t->sizes), t->dtype);
  }
  return {};
}
}  // namespace

Tensor clone(Run& r, const Tensor& t, Format format) {
  Tensor y = empty_in(r, t, format);
  r.record({t}, {y}, [](Run&, Node&, TensorList& g) { return TensorList{g[0]}; });
  return y;
}

Tensor contiguous(Run& r, const Tensor& t, Format format) {
  if (format == Format::channels_last ? is_channels_last(*t) : is_contiguous(*t)) return t;
  return clone(r, t, format);
}

Tensor read_as(Run& r, const Tensor& t, Format format) {
  ScopedValue<bool> no_grad(r.grad_mode, false);
  return contiguous(r, t, format);
}

Format format_of(const TensorBody& t) {
  return t.rank() == 4 && suggests_channels_last(t) ? Format::channels_last : Format::contiguous;
}

Tensor empty_as(Run& r, Format format, const Dims& sizes, DType dtype) {
  return format == Format::channels_last ? r.empty_strided(sizes, channels_last_strides(sizes), dtype)
                                         : r.empty(sizes, dtype);
}

Tensor to(Run& r, const Tensor& t, DType dtype, Format format) {
  if (t->dtype == dtype) return t;
  Tensor y = format == Format::preserve ? r.empty_like(t, dtype) : empty_as(r, format, t->sizes, dtype);
  r.record({t}, {y}, [from = t->dtype](Run& r, Node&, TensorList& g) { return TensorList{to(r, g[0], from)}; });
  return y;
}

}  // namespace op

namespace {

DType scalar_dtype(const Value& v) {
  if (std::holds_alternative<double>(v.v)) return DType::float32;
  if (std::holds_alternative<bool>(v.v)) return DType::boolean;
  return DType::int64;
}

ValueList make(Run& r, const Dims& sizes, DType dtype) { return {r.empty(sizes, dtype)}; }

/// arange(n) and its overloads: an empty result, filled by a kernel. Length as in RangeFactories.cpp.
ValueList arange(Run& r, const Value& start, const Value& end, const Value& step, const Value& dtype) {
  const double a = to_double(start, "aten::arange"), b = to_double(end, "aten::arange"),
               s = to_double(step, "aten::arange");
  if (s == 0) fail_input("aten::arange has a step of zero", "aten::arange");
  const std::int64_t n = whole_number(std::max(0.0, std::ceil((b - a) / s)), "aten::arange");
  DType d = DType::int64;
  if (auto* given = std::get_if<DType>(&dtype.v))
    d = *given;
  else if (std::holds_alternative<double>(start.v) || std::holds_alternative<double>(end.v) ||
           std::holds_alternative<double>(step.v))
    d = DType::float32;
  return {r.empty({n}, d)};
}

op::Format format_of(const Args& a, std::size_t i, op::Format fallback) {
  const std::string s = a.string_or(i, "");
  if (s.find("channels_last") != std::string::npos) return op::Format::channels_last;
  if (s.find("contiguous") != std::string::npos) return op::Format::contiguous;
  if (s.find("preserve") != std::string::npos) return op::Format::preserve;
  return fallback;
}

void register_casts(OpTable& t) {
  // x.clone().detach(), as the ONNX reader writes it down.
  t.add("aten::detach_copy", "self", [](Run& r, Args& a) -> ValueList {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    return {op::clone(r, a.tensor(0), op::Format::preserve)};
  });
  auto to = [](Run& r, Args& a) -> ValueList {
    Tensor x = a.tensor(0);
    return {op::to(r, x, a.dtype_or(1, x->dtype), format_of(a, 4, op::Format::preserve))};
  };
  for (const char* name : {"aten::to.dtype", "aten::to.dtype_layout", "aten::to", "aten::type_as.dtype"})
    t.add(name, "self, dtype=None, non_blocking=False, copy=False, memory_format=None", to);
  t.add("aten::_to_copy", "self, dtype=None", [](Run& r, Args& a) -> ValueList {
    Tensor x = a.tensor(0);
    const DType d = a.dtype_or(1, x->dtype);
    return {d == x->dtype ? op::clone(r, x) : op::to(r, x, d)};
  });
  // The dtype that the model was converted to: model.bfloat16() changes what x.dtype is.
  t.add("memplan::to_default_dtype", "self",
        [](Run& r, Args& a) -> ValueList { return {op::to(r, a.tensor(0), r.options.default_dtype)}; });
  t.add("aten::type_as", "self, other",
        [](Run& r, Args& a) -> ValueList { return {op::to(r, a.tensor(0), a.tensor(1)->dtype)}; });
  t.add("aten::to.other", "self, other, non_blocking=False, copy=False, memory_format=None",
        [](Run& r, Args& a) -> ValueList {
          return {op::to(r, a.tensor(0), a.tensor(1)->dtype, format_of(a, 4, op::Format::preserve))};
        });
  for (auto [name, dtype] : {std::pair{"aten::float", DType::float32},
                             {"aten::half", DType::float16},
                             {"aten::bfloat16", DType::bfloat16}}) {
    // The dtype is in the name, so a row needs it as default of a hidden argument.
    Row& row = t.add(name, "self, dtype=None", to);
    row.defaults[1] = Value(dtype);
  }
}

/// derivatives.yaml: zeros_like(grad), so that what the draw is made of gets gradients all the same.
ValueList run_bernoulli(Run& r, Args& a) {
  Tensor y = r.empty_like(a.tensor(0));
  r.record({a.tensor(0)}, {y}, [](Run& r, Node&, TensorList& g) { return TensorList{r.empty_like(g[0])}; });
  return {y};
}

}  // namespace

void register_creation(OpTable& t) {
  for (const char* name :
       {"aten::empty.memory_format", "aten::empty", "aten::zeros", "aten::ones", "aten::rand", "aten::randn"})
    t.add(name, "size, dtype=None", [](Run& r, Args& a) { return make(r, a.dims(0), a.dtype_or(1, DType::float32)); });
  t.add("memplan::on_cpu", "size, dtype=None",
        [](Run& r, Args& a) -> ValueList { return {r.host(a.dims(0), a.dtype_or(1, DType::float32))}; });
  for (const char* name : {"aten::full"})
    t.add(name, "size, fill_value, dtype=None",
          [](Run& r, Args& a) { return make(r, a.dims(0), a.dtype_or(2, scalar_dtype(a[1]))); });
  for (const char* name :
       {"aten::empty_like", "aten::zeros_like", "aten::ones_like", "aten::rand_like", "aten::randn_like"})
    t.add(name, "self, dtype=None", [](Run& r, Args& a) -> ValueList {
      Tensor x = a.tensor(0);
      return {r.empty_like(x, a.dtype_or(1, x->dtype))};
    });
  for (const char* name : {"aten::randint_like"})
    t.add(name, "self, a=None, b=None", [](Run& r, Args& a) -> ValueList { return {r.empty_like(a.tensor(0))}; });
  t.add("aten::empty_strided", "size, stride, dtype=None", [](Run& r, Args& a) -> ValueList {
    return {r.empty_strided(a.dims(0), a.dims(1), a.dtype_or(2, DType::float32))};
  });
  t.add("aten::full_like", "self, fill_value, dtype=None", [](Run& r, Args& a) -> ValueList {
    Tensor x = a.tensor(0);
    return {r.empty_like(x, a.dtype_or(2, x->dtype))};
  });
  for (const char* name : {"aten::new_empty", "aten::new_zeros", "aten::new_ones"})
    t.add(name, "self, size, dtype=None",
          [](Run& r, Args& a) { return make(r, a.dims(1), a.dtype_or(2, a.tensor(0)->dtype)); });
  t.add("aten::new_full", "self, size, fill_value, dtype=None",
        [](Run& r, Args& a) { return make(r, a.dims(1), a.dtype_or(3, a.tensor(0)->dtype)); });
  t.add("aten::scalar_tensor", "s, dtype=None",
        [](Run& r, Args& a) { return make(r, {}, a.dtype_or(1, scalar_dtype(a[0]))); });
  t.add("aten::eye", "n, dtype=None", [](Run& r, Args& a) {
    return make(r, {a.integer(0), a.integer(0)}, a.dtype_or(1, DType::float32));
  });
  t.add("aten::linspace", "start, end, steps, dtype=None",
        [](Run& r, Args& a) { return make(r, {a.integer(2)}, a.dtype_or(3, DType::float32)); });
  t.add("aten::arange", "end, dtype=None", [](Run& r, Args& a) { return arange(r, 0, a[0], 1, a[1]); });
  t.add("aten::arange.start", "start, end, dtype=None", [](Run& r, Args& a) { return arange(r, a[0], a[1], 1, a[2]); });
  t.add("aten::arange.start_step", "start, end, step=1, dtype=None",
        [](Run& r, Args& a) { return arange(r, a[0], a[1], a[2], a[3]); });
  for (const char* name : {"aten::fill.Scalar", "aten::fill.Tensor"})
    t.add(name, "self, value", [](Run& r, Args& a) -> ValueList {
      Tensor x = a.tensor(0), y = r.empty_like(x);
      r.record({x}, {y}, [](Run& r, Node&, TensorList& g) { return TensorList{op::zeros_like(r, g[0])}; });
      return {y};
    });
  t.add("aten::clone", "self, memory_format=None", [](Run& r, Args& a) -> ValueList {
    return {op::clone(r, a.tensor(0), format_of(a, 1, op::Format::preserve))};
  });
  for (const char* name :
       {"aten::bernoulli_.float", "aten::exponential_", "aten::log_normal_", "aten::geometric_", "aten::cauchy_"})
    t.add(name, "self, p=0.5", [](Run&, Args& a) -> ValueList { return {a.tensor(0)}; });
  t.add("aten::bernoulli.p", "self, p", run_bernoulli);
  t.add("aten::bernoulli", "self", run_bernoulli);
  t.add("aten::contiguous", "self, memory_format=None", [](Run& r, Args& a) -> ValueList {
    return {op::contiguous(r, a.tensor(0), format_of(a, 1, op::Format::contiguous))};
  });
  register_casts(t);
}

}  // namespace memplan
