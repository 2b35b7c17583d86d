// Views and what puts tensors together. Sizes come from the eager rows, which know every form of the arguments.
#include <algorithm>

#include "estimators/runtime/torch/compiled/op_table.h"

namespace memplan::compiled {

namespace {

Tensor shown(Tracer& t, const Items& a) { return call_op(t.run, a.row(), a.values(), {})[0].tensor(); }

/// As it is written, -1 included: two views that are written differently are two nodes.
Vars view_op(Tracer& t, const Items& a) {
  const Var x = a.var(0);
  if (a.size() > 1 && !a.none(1) && std::holds_alternative<DType>(a[1].constant.v))
    return {grad::convert(t, x, a.dtype_or(1, x.t->dtype))};
  return {grad::view(t, x, a.dims(1))};
}
Vars reshape_op(Tracer& t, const Items& a) {
  const Var x = a.var(0);
  const Dims sizes = a.dims(1);
  if (op::view_strides(*x.t, op::infer_size(sizes, x.t->numel()))) return {grad::view(t, x, sizes)};
  return {grad::reshape(t, x, sizes)};
}
Vars reshape_to_result(Tracer& t, const Items& a) {
  const Tensor made = shown(t, a);
  return {made->sizes == a.var(0).t->sizes ? a.var(0) : grad::reshape(t, a.var(0), made->sizes)};
}

Vars permute_op(Tracer& t, const Items& a) { return {grad::permute(t, a.var(0), a.dims(1))}; }
Vars transpose_op(Tracer& t, const Items& a) {
  return {grad::transpose(t, a.var(0), static_cast<int>(a.integer(1)), static_cast<int>(a.integer(2)))};
}
Vars t_op(Tracer& t, const Items& a) { return {grad::transpose(t, a.var(0), 0, 1)}; }
Vars expand_op(Tracer& t, const Items& a) { return {grad::expand(t, a.var(0), a.dims(1))}; }
Vars expand_as_op(Tracer& t, const Items& a) { return {grad::expand(t, a.var(0), a.var(1).t->sizes)}; }
Vars unsqueeze_op(Tracer& t, const Items& a) { return {grad::unsqueeze(t, a.var(0), static_cast<int>(a.integer(1)))}; }

Vars squeeze_op(Tracer& t, const Items& a) {
  Var x = a.var(0);
  std::vector<std::int64_t> dims = a.integers(1);
  if (a.none(1))
    for (int d = 0; d < x.t->rank(); ++d)
      if (x.t->sizes[d] == 1) dims.push_back(d);
  for (std::int64_t& d : dims) d = op::wrap_dim(d, x.t->rank());
  std::sort(dims.begin(), dims.end(), std::greater<>());
  for (const std::int64_t d : dims) x = grad::squeeze(t, x, static_cast<int>(d));
  return {x};
}

Vars slice_op(Tracer& t, const Items& a) {
  return {grad::slice(t, a.var(0), static_cast<int>(a.integer_or(1, 0)), a.integer_or(2, 0), a.integer_or(3, INT64_MAX),
                      a.integer_or(4, 1))};
}
/// x[a:b] of Python leaves out a slice that takes everything.
Vars index_slice_op(Tracer& t, const Items& a) {
  const Var x = a.var(0);
  const int dim = op::wrap_dim(a.integer_or(1, 0), x.t->rank());
  if (a.integer_or(2, 0) == 0 && a.integer_or(3, INT64_MAX) >= x.t->sizes[dim] && a.integer_or(4, 1) == 1) return {x};
  return slice_op(t, a);
}
Vars narrow_op(Tracer& t, const Items& a) {
  return {grad::slice(t, a.var(0), static_cast<int>(a.integer(1)), a.integer(2), a.integer(2) + a.integer(3))};
}
Vars select_op(Tracer& t, const Items& a) {
  return {grad::select(t, a.var(0), static_cast<int>(a.integer(1)), a.integer(2))};
}

/// Pieces as the eager row cuts them.
Vars split_op(Tracer& t, const Items& a) {
  const std::string_view name = a.op();
  const Var x = a.var(0);
  const int dim = op::wrap_dim(a.integer_or(2, 0), x.t->rank());
  const std::int64_t width = x.t->sizes[dim];
  std::vector<std::int64_t> sizes = a.integers(1);
  if (sizes.size() == 1 && !a[1].is_list) {
    const bool chunks = name.find("chunk") != std::string_view::npos;
    const std::int64_t many = std::max<std::int64_t>(1, sizes[0]);
    const std::int64_t each = std::max<std::int64_t>(1, chunks ? (width + many - 1) / many : many);
    op::expect_pieces(width / each);
    sizes.clear();
    for (std::int64_t at = 0; at < width; at += each) sizes.push_back(std::min(each, width - at));
  }
  return grad::split(t, x, sizes, dim, prim::text(Dims{dim, sizes.empty() ? 0 : sizes[0]}));
}

Vars unbind_op(Tracer& t, const Items& a) {
  const Var x = a.var(0);
  const int dim = op::wrap_dim(a.integer_or(1, 0), x.t->rank());
  Vars pieces;
  op::expect_pieces(x.t->sizes[dim]);
  TensorList parts;
  for (std::int64_t i = 0; i < x.t->sizes[dim]; ++i) parts.push_back(op::select(t.run, x.t, dim, i));
  pieces = t.emit_several("unbind", {x}, std::to_string(dim), parts);
  const Vars made = pieces;
  return t.record({x}, std::move(pieces), [made, dim](Tracer& t, const Vars& g) {
    Vars rows;
    for (std::size_t i = 0; i < made.size(); ++i)
      rows.push_back(prim::unsqueeze(t, g[i] ? g[i] : prim::full(t, made[i].t->sizes, "0", made[i].t->dtype), dim));
    return Vars{prim::cat(t, rows, dim)};
  });
}

Vars clone_op(Tracer& t, const Items& a) { return {grad::clone(t, a.var(0), op::Format::preserve)}; }
Vars contiguous_op(Tracer& t, const Items& a) { return {grad::contiguous(t, a.var(0))}; }
/// Taken out of the graph by PyTorch: no node.
Vars same_op(Tracer&, const Items& a) { return {a.var(0)}; }
Vars detach_op(Tracer&, const Items& a) {
  Var x = a.var(0);
  x.leaf = x.derivative = -1;
  return {x};
}

Vars cat_op(Tracer& t, const Items& a) {
  Vars parts;
  for (const Var& p : a.vars(0))
    if (!(p.t->rank() == 1 && p.t->numel() == 0)) parts.push_back(p);
  return {grad::cat(t, parts.empty() ? a.vars(0) : parts, static_cast<int>(a.integer_or(1, 0)))};
}

Vars stack_op(Tracer& t, const Items& a) {
  Vars rows;
  for (const Var& p : a.vars(0)) rows.push_back(grad::unsqueeze(t, p, static_cast<int>(a.integer_or(1, 0))));
  return {grad::cat(t, rows, static_cast<int>(a.integer_or(1, 0)))};
}

Vars flip_op(Tracer& t, const Items& a) {
  const Dims dims = a.dims(1);
  const auto flipped = [dims](Tracer& t, const Var& x) {
    return t.emit("flip", {x}, prim::text(dims), t.run.empty_like(x.t));
  };
  return {t.record({a.var(0)}, flipped(t, a.var(0)),
                   [flipped](Tracer& t, const Vars& g) { return Vars{flipped(t, g[0])}; })};
}

/// Each shift cuts the tensor in two and puts the halves together the other way round.
Vars roll_op(Tracer& t, const Items& a) {
  Var x = a.var(0);
  const std::vector<std::int64_t> shifts = a.integers(1), dims = a.integers(2);
  for (std::size_t i = 0; i < dims.size() && i < shifts.size(); ++i) {
    const Var from = x;
    const auto rolled = [dim = op::wrap_dim(dims[i], x.t->rank())](Tracer& t, const Var& x, std::int64_t shift) {
      const std::int64_t n = x.t->sizes[dim], start = n ? ((n - shift) % n + n) % n : 0;
      const Var index = prim::unary(
          t, "fmod", prim::binary(t, "add", prim::iota(t, n), prim::Number{static_cast<double>(start), false}),
          std::to_string(n));
      return t.emit("index", {x, index}, std::to_string(dim), t.run.empty(x.t->sizes, x.t->dtype), true);
    };
    x = t.record({from}, rolled(t, from, shifts[i]),
                 [rolled, shift = shifts[i]](Tracer& t, const Vars& g) { return Vars{rolled(t, g[0], -shift)}; });
  }
  return {x};
}

Vars repeat_op(Tracer& t, const Items& a) {
  const Var x = a.var(0);
  const Dims times = a.dims(1);
  const Var y = t.emit("repeat", {x}, prim::text(times), shown(t, a));
  return {t.record({x}, y, [x, times](Tracer& t, const Vars& g) {
    // Copies and elements of each dimension apart, and the copies summed up.
    Dims parts, copies;
    const int more = times.size() - x.t->rank();
    for (int d = 0; d < times.size(); ++d) {
      copies.push_back(parts.size());
      parts.push_back(times[d]);
      if (d >= more) parts.push_back(x.t->sizes[d - more]);
    }
    return Vars{prim::sum(t, prim::reshape(t, g[0], parts), copies, false)};
  })};
}

/// repeat_interleave with one number: a dimension of copies behind each element, made dense.
Vars repeat_elements_op(Tracer& t, const Items& a) {
  if (!a[1].constant.is_number() || a.none(2)) fail_input("only one number of copies along a dimension is taken apart");
  const Var x = a.var(0);
  const int dim = op::wrap_dim(a.integer(2), x.t->rank());
  const Var column = grad::unsqueeze(t, x, dim + 1);
  Dims copies = column.t->sizes, sizes = x.t->sizes;
  copies[dim + 1] = a.integer(1);
  sizes[dim] *= a.integer(1);
  return {grad::view(t, grad::clone(t, grad::expand(t, column, copies)), sizes)};
}

Vars pad_op(Tracer& t, const Items& a) { return {grad::constant_pad(t, a.var(0), a.integers(1))}; }

}  // namespace

void add_views(CompiledOps& ops) {
  ops["view"] = ops["_unsafe_view"] = view_op;
  ops["reshape"] = reshape_op;
  ops["flatten"] = ops["unflatten"] = ops["view_as"] = ops["reshape_as"] = reshape_to_result;
  ops["permute"] = permute_op;
  ops["transpose"] = ops["swapaxes"] = transpose_op;
  ops["t"] = ops["numpy_T"] = t_op;
  ops["expand"] = expand_op;
  ops["expand_as"] = expand_as_op;
  ops["unsqueeze"] = unsqueeze_op;
  ops["squeeze"] = squeeze_op;
  ops["slice"] = slice_op;
  ops["index_slice"] = index_slice_op;
  ops["narrow"] = narrow_op;
  ops["select"] = select_op;
  ops["split"] = ops["split_with_sizes"] = ops["chunk"] = split_op;
  ops["unbind"] = unbind_op;
  ops["clone"] = clone_op;
  ops["contiguous"] = contiguous_op;
  ops["alias"] = ops["lift_fresh_copy"] = ops["lift_fresh"] = same_op;
  ops["detach"] = detach_op;
  ops["cat"] = ops["concat"] = cat_op;
  ops["stack"] = stack_op;
  ops["flip"] = flip_op;
  ops["roll"] = roll_op;
  ops["repeat"] = repeat_op;
  ops["repeat_interleave"] = repeat_elements_op;
  ops["constant_pad_nd"] = pad_op;
  ops["pad"] = pad_op;
}

}  // namespace memplan::compiled
