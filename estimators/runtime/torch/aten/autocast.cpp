#include "estimators/runtime/torch/aten/autocast.h"

#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

namespace {

bool eligible(const Tensor& t) { return t && !t->on_host && is_floating(t->dtype) && t->dtype != DType::float64; }

/// Applies `f` to every tensor among the arguments, lists included; from the last argument to the first, as the
/// compiler that builds PyTorch's wheels evaluates `f(cached_cast(a), cached_cast(b))`.
template <class F>
void for_each_tensor(Args& args, F f) {
  for (std::size_t i = args.size(); i-- > 0;) {
    if (auto* t = std::get_if<Tensor>(&args[i].v)) f(*t);
    if (auto* list = std::get_if<ValueList>(&args[i].v))
      for (Value& v : *list)
        if (auto* t = std::get_if<Tensor>(&v.v)) f(*t);
  }
}

}  // namespace

void apply_autocast_lists(OpTable& table, const AutocastLists& lists) {
  for (Row& row : table.rows()) {
    std::string_view base = row.name;
    if (base.substr(0, 6) == "aten::") base.remove_prefix(6);
    base = base.substr(0, base.find('.'));
    row.autocast = Autocast::none;
    if (lists.lower.count(base)) row.autocast = Autocast::lower;
    if (lists.fp32.count(base)) row.autocast = Autocast::fp32;
    if (lists.fp32_dtype_argument.count(base)) row.autocast = Autocast::fp32_dtype_argument;
    if (lists.promote.count(base)) row.autocast = Autocast::promote;
  }
}

Tensor cached_cast(Run& run, const Tensor& t, DType dtype) {
  if (!eligible(t) || t->dtype == dtype) return t;
  // Only casts of fp32 leaves to the lower type are cached; a view or a computed tensor is cast again each time.
  const bool cache = dtype == run.autocast_dtype && t->dtype == DType::float32 && t->requires_grad_leaf && !t->is_view;
  if (cache) {
    if (Tensor known = run.cast_cache.find(t)) return known;
  }
  Tensor cast = op::to(run, t, dtype);
  // A cached cast of a parameter still wants a gradient under no_grad; matmul asks (should_fold).
  if (cache && !run.grad_mode) cast->requires_grad_leaf = true;
  if (cache) run.cast_cache.add(t, cast);
  return cast;
}

void cast_arguments(Run& run, const Row& row, Args& args) {
  switch (row.autocast) {
    case Autocast::none:
      return;
    case Autocast::lower:
      for_each_tensor(args, [&](Tensor& t) { t = cached_cast(run, t, run.autocast_dtype); });
      return;
    case Autocast::fp32:
      for_each_tensor(args, [&](Tensor& t) { t = cached_cast(run, t, DType::float32); });
      return;
    case Autocast::promote: {
      DType widest = run.autocast_dtype;
      for_each_tensor(args, [&](Tensor& t) {
        if (eligible(t)) widest = promote(widest, t->dtype);
      });
      for_each_tensor(args, [&](Tensor& t) { t = cached_cast(run, t, widest); });
      return;
    }
    case Autocast::fp32_dtype_argument: {
      bool any = false;
      for_each_tensor(args, [&](Tensor& t) { any = any || eligible(t); });
      for (std::size_t i = 0; any && i < row.arguments.size(); ++i)
        if (row.arguments[i] == "dtype" && args[i].is_none()) args[i] = Value(DType::float32);
      return;
    }
  }
}

}  // namespace memplan
