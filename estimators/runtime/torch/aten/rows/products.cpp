// Products made of others: vectors, sums of batches, einsum (native/Linear.cpp, LinearAlgebra.cpp of PyTorch 2.11).
#include <algorithm>
#include <map>
#include <tuple>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {
namespace op {

Tensor dot(Run& r, const Tensor& a, const Tensor& b) {
  Tensor y = r.empty({}, a->dtype);
  r.use_cublas();
  row_named(r, "aten::dot").derivatives.record(r, {{"self", a}, {"tensor", b}}, {y});
  return y;
}

namespace {

/// sumproduct_pair: dimensions of both kept (lro), of one (lo, ro) and summed; one bmm, then the order of the output.
/// Every tensor has all dimensions of the equation, of size 1 where it lacks one.
Tensor sum_product(Run& r, const Tensor& left, const Tensor& right, const std::vector<bool>& summed) {
  Dims lro, lo, ro, sums;
  std::int64_t lro_size = 1, lo_size = 1, ro_size = 1, sum_size = 1;
  for (int i = 0; i < left->rank(); ++i) {
    const bool sl = left->sizes[i] != 1, sr = right->sizes[i] != 1;
    if (summed[i]) {
      sums.push_back(i);
      sum_size *= left->sizes[i];
    } else if (sl && sr) {
      lro.push_back(i);
      lro_size *= left->sizes[i];
    } else if (sl) {
      lo.push_back(i);
      lo_size *= left->sizes[i];
    } else {
      ro.push_back(i);
      ro_size *= right->sizes[i];
    }
  }
  auto joined = [](std::initializer_list<Dims> parts) {
    Dims d;
    for (const Dims& p : parts)
      for (auto x : p) d.push_back(x);
    return d;
  };
  const Dims lorder = joined({lro, lo, sums, ro}), rorder = joined({lro, sums, ro, lo}),
             oorder = joined({lro, lo, sums, ro});
  Tensor l = reshape(r, permute(r, left, lorder), {lro_size, lo_size, sum_size});
  Tensor t = reshape(r, permute(r, right, rorder), {lro_size, sum_size, ro_size});
  Dims out_sizes;
  for (auto d : lro) out_sizes.push_back(left->sizes[d]);
  for (auto d : lo) out_sizes.push_back(left->sizes[d]);
  for (int i = 0; i < sums.size(); ++i) out_sizes.push_back(1);
  for (auto d : ro) out_sizes.push_back(right->sizes[d]);
  Dims inverse = Dims::filled(oorder.size(), 0);
  for (int i = 0; i < oorder.size(); ++i) inverse[static_cast<int>(oorder[i])] = i;
  return permute(r, view(r, bmm(r, l, t), out_sizes), inverse);
}

/// "ij,jk->ik" in parts. Without an arrow the output has the labels that stand once, in the order of the alphabet.
struct Equation {
  std::vector<std::string> inputs{1};
  std::string output;
  std::string labels;  ///< of the output, then those that are summed
};

/// The equation without spaces, and with digits for the dimensions that "..." stands for: as many as the operand with
/// most of them has, aligned at the right (at::einsum, aten/src/ATen/native/Linear.cpp).
std::string spelled_out(const std::string& given, const TensorList& operands) {
  constexpr std::string_view dots = "...", digits = "0123456789";
  std::string text;
  for (char c : given)
    if (c != ' ') text += c;
  if (text.find(dots) == text.npos) return text;
  const std::size_t arrow = std::min(text.find("->"), text.size());
  std::vector<std::size_t> counts;
  for (std::size_t first = 0; first <= arrow && counts.size() < operands.size();) {
    const std::size_t end = std::min(text.find(',', first), arrow);
    const std::string part = text.substr(first, end - first);
    const auto rank = static_cast<std::size_t>(operands[counts.size()]->rank());
    const bool has = part.find(dots) != part.npos;
    counts.push_back(has && rank + dots.size() >= part.size() ? rank + dots.size() - part.size() : 0);
    first = end + 1;
  }
  const std::size_t most = counts.empty() ? 0 : std::ranges::max(counts);
  if (most > digits.size()) return text;
  std::string out;
  std::size_t operand = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, dots.size(), dots) != 0) {
      if (i == arrow) operand = counts.size();
      if (text[i] == ',' && i < arrow) ++operand;
      out += text[i];
      continue;
    }
    out += digits.substr(0, most).substr(most - (operand < counts.size() ? counts[operand] : most));
    i += dots.size() - 1;
  }
  return out;
}

Equation parse_equation(const std::string& text) {
  Equation e;
  const auto arrow = text.find("->");
  for (char c : text.substr(0, arrow)) {
    if (c == ',')
      e.inputs.emplace_back();
    else
      e.inputs.back() += c;
  }
  std::map<char, int> uses;
  for (const std::string& s : e.inputs)
    for (char c : s) ++uses[c];
  if (arrow != std::string::npos)
    e.output = text.substr(arrow + 2);
  else
    for (auto [c, n] : uses)
      if (n == 1) e.output += c;
  e.labels = e.output;
  for (auto [c, n] : uses)
    if (e.labels.find(c) == std::string::npos) e.labels += c;
  return e;
}

}  // namespace

/// Operands are permuted to the order output labels, then summed ones; pairs are contracted from the left. Repeated
/// labels within one operand are not known.
Tensor einsum(Run& r, const std::string& given, TensorList operands) {
  const std::string text = spelled_out(given, operands);
  const auto [inputs, output, labels] = parse_equation(text);
  if (text.find('.') != std::string::npos || inputs.size() != operands.size())
    fail_input("an einsum equation of this form is not known: " + given, "aten::einsum");
  for (std::size_t k = 0; k < operands.size(); ++k) {
    std::string have = inputs[k];
    if (static_cast<int>(have.size()) != operands[k]->rank())
      fail_input("an einsum equation does not fit its operands: " + given, "aten::einsum");
    Tensor t = operands[k];
    for (char c : labels)
      if (have.find(c) == std::string::npos) {
        t = unsqueeze(r, t, t->rank());
        have += c;
      }
    Dims order;
    for (char c : labels) order.push_back(static_cast<std::int64_t>(have.find(c)));
    operands[k] = permute(r, t, order);
  }
  const int kept = static_cast<int>(output.size()), all = static_cast<int>(labels.size());
  Tensor y = operands[0];
  std::vector<int> last(all, 0);
  for (int d = 0; d < all; ++d)
    for (std::size_t k = 0; k < operands.size(); ++k)
      if (inputs[k].find(labels[d]) != std::string::npos) last[d] = static_cast<int>(k);
  for (std::size_t k = 1; k < operands.size(); ++k) {
    std::vector<bool> summed(all, false);
    bool any = false;
    for (int d = kept; d < all; ++d)
      if (last[d] == static_cast<int>(k) && y->sizes[d] != 1 && operands[k]->sizes[d] != 1) summed[d] = any = true;
    y = any ? sum_product(r, y, operands[k], summed) : mul(r, y, operands[k]);
  }
  Dims rest;
  for (int d = kept; d < all; ++d) rest.push_back(d);
  bool open = false;
  for (auto d : rest) open = open || y->sizes[static_cast<int>(d)] != 1;
  if (open) return sum(r, y, rest, false);
  for (int d = all - 1; d >= kept; --d) y = squeeze(r, y, d);
  return y;
}

}  // namespace op

namespace {

/// One kernel: an output of the given sizes, by cuBLAS.
ValueList gemm(Run& r, Args& a, const Dims& sizes) {
  const Row& row = a.row();
  std::vector<std::pair<std::string_view, Tensor>> inputs;
  for (int i = 0; i < 3; ++i) inputs.emplace_back(row.arguments[i], a.tensor(i));
  Tensor y = r.empty(sizes, a.tensor(1)->dtype);
  r.use_cublas();
  row.derivatives.record(r, inputs, {y}, constants_of(row, a));
  return {y};
}

/// tensordot: both operands as matrices of kept and summed dimensions, one mm.
ValueList run_tensordot(Run& r, Args& a) {
  Tensor x = a.tensor(0), y = a.tensor(1);
  Dims dx = a.dims(2), dy = a.dims(3), kept_x, kept_y, sizes;
  for (auto& d : dx) d = op::wrap_dim(d, x->rank());
  for (auto& d : dy) d = op::wrap_dim(d, y->rank());
  std::int64_t rows = 1, cols = 1, inner = 1;
  for (int i = 0; i < x->rank(); ++i)
    if (std::find(dx.begin(), dx.end(), i) == dx.end()) {
      kept_x.push_back(i);
      sizes.push_back(x->sizes[i]);
      rows *= x->sizes[i];
    }
  for (int i = 0; i < y->rank(); ++i)
    if (std::find(dy.begin(), dy.end(), i) == dy.end()) {
      kept_y.push_back(i);
      sizes.push_back(y->sizes[i]);
      cols *= y->sizes[i];
    }
  for (auto d : dx) {
    kept_x.push_back(d);
    inner *= x->sizes[static_cast<int>(d)];
  }
  Dims order = dy;
  for (auto d : kept_y) order.push_back(d);
  Tensor left = op::reshape(r, op::permute(r, x, kept_x), {rows, inner}),
         right = op::reshape(r, op::permute(r, y, order), {inner, cols});
  return {op::view(r, op::mm(r, left, right), sizes)};
}

/// cdist by products: |x|^2 and |y|^2 ride along in two more columns (above 25 rows; below, one kernel).
ValueList run_cdist(Run& r, Args& a) {
  Tensor x = a.tensor(0), y = a.tensor(1);
  Dims sizes = x->sizes;
  sizes[sizes.size() - 1] = y->size(-2);
  const Row& row = row_named(r, "aten::cdist");
  Tensor out;
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    auto with_norms = [&](const Tensor& t) {
      Dims one = t->sizes, wide = t->sizes;
      one[one.size() - 1] = 1;
      wide[wide.size() - 1] += 2;
      Tensor squares = r.empty(t->sizes, t->dtype), norm = r.empty(one, t->dtype);
      squares.reset();
      Tensor ones = r.empty(one, t->dtype);
      return std::tuple{norm, ones, wide};
    };
    if (x->size(-2) > 25 || y->size(-2) > 25) {
      auto [nx, ox, wx] = with_norms(x);
      auto [ny, oy, wy] = with_norms(y);
      Tensor scaled = r.empty(x->sizes, x->dtype);
      Tensor left = r.empty(wx, x->dtype);
      ox.reset();
      nx.reset();
      scaled.reset();
      Tensor right = r.empty(wy, y->dtype);
      ny.reset();
      oy.reset();
      out = r.empty(sizes, x->dtype);
      r.use_cublas();
      right.reset();
      left.reset();
    } else {
      out = r.empty(sizes, x->dtype);
    }
  }
  row.derivatives.record(r, {{"x1", x}, {"x2", y}}, {out});
  return {out};
}

/// _grouped_mm (native/cuda/GroupedBlas.cpp): products of groups of rows, whose ends are `offs`, with a matrix each; of
/// two matrices cut along their inner dimension one product per group. bf16 on compute capability 9.0 has a kernel of
/// its own with pointers, strides and sizes of every group, and 4 descriptors of 128 bytes for every multiprocessor
/// (native/cuda/GroupMM.cu); all else is one cuBLAS product after the other.
Tensor grouped_product(Run& r, const Tensor& a, const Tensor& b, const Tensor& offs) {
  const std::int64_t groups = offs ? offs->numel() : b->sizes[0], rows = a->size(-2), columns = b->size(-1);
  const std::int64_t elements = 16 / bytes_of(a->dtype, 1).count;  // a row begins at a multiple of 16 bytes
  const std::int64_t padded = (columns + elements - 1) / elements * elements;
  Tensor y = (a->rank() == 2) != (b->rank() == 2)
                 ? r.empty_strided({rows, columns}, {padded, 1}, a->dtype)
                 : r.empty_strided({groups, rows, columns}, {rows * padded, padded, 1}, a->dtype);
  if (a->dtype != DType::bfloat16 || r.device.sm() != 90) {
    r.use_cublas();
    return y;
  }
  const std::int64_t even = (groups + 1) / 2 * 2;
  Tensor groups_of = r.scratch(Bytes(even * 3 * 8 + even * 3 * 8 + groups * 12));
  Tensor descriptors = r.scratch(Bytes(std::int64_t{r.device.multiprocessors} * 4 * 128));
  descriptors.reset();
  return y;
}

ValueList run_grouped_mm(Run& r, Args& args) {
  // transformers casts to the weight's type before it asks (integrations/moe.py).
  const Tensor b = args.tensor(1), a = op::to(r, args.tensor(0), b->dtype), offs = args.optional_tensor(2);
  Tensor y = grouped_product(r, a, b, offs);
  const bool column_major = b->strides[b->rank() - 2] == 1 && b->strides.back() != 1;
  Node* node = r.record({a, b}, {y}, [column_major](Run& r, Node& n, TensorList& g) {
    // saved: [offs], [mat2 if self wants a gradient], [self if mat2 wants one]; computed in the order mat2, self.
    TensorList out(2);
    const Tensor& offs = n.saved.front();
    // Column-major weights get a column-major gradient.
    if (n.wants(1) && column_major)
      out[1] = op::transpose(r, grouped_product(r, op::transpose(r, g[0], -2, -1), n.saved.back(), offs), -2, -1);
    else if (n.wants(1))
      out[1] = grouped_product(r, op::transpose(r, n.saved.back(), -2, -1), g[0], offs);
    if (n.wants(0)) out[0] = grouped_product(r, g[0], op::transpose(r, n.saved[1], -2, -1), offs);
    return out;
  });
  r.save(node, offs);
  if (node && node->wants(0)) r.save(node, b);
  if (node && node->wants(1)) r.save(node, a);
  return {y};
}

/// _trilinear: for each feature of the result a product of the first input with its matrix, times the second.
ValueList run_bilinear(Run& r, Args& a) {
  Tensor x = a.tensor(0), other = a.tensor(1), weight = a.tensor(2);
  if (x->rank() < 1 || other->rank() < 1 || weight->rank() != 3)
    fail_input("a bilinear layer gets other tensors than it takes", "aten::bilinear",
               "the model file does not fit these shapes");
  Dims sizes = x->sizes;
  const int last = sizes.size() - 1;
  const std::int64_t features = weight->sizes[0], n = x->numel() / std::max<std::int64_t>(1, x->sizes[last]);
  sizes[last] = features;
  Tensor y = r.empty({n, features}, op::result_type({x, other, weight}));
  const auto products = [](Run& r, std::int64_t times, std::int64_t n, std::int64_t wide, DType dtype) {
    for (std::int64_t k = 0; k < times; ++k) {
      Tensor product = r.empty({n, wide}, dtype), part = r.empty({n}, dtype);
      product = {};
    }
  };
  products(r, features, n, other->sizes[last], y->dtype);
  Node* node = r.record({x, other, weight}, {y}, [n](Run& r, Node& node, TensorList& g) {
    TensorList out(3);
    const std::int64_t features = node.inputs[2].sizes[0],
                       wide = checked_mul(node.inputs[2].sizes[1], node.inputs[2].sizes[2]);
    for (int i : {0, 1, 2}) {
      if (!node.wants(i)) continue;
      out[static_cast<std::size_t>(i)] = r.empty(node.inputs[static_cast<std::size_t>(i)].sizes, g[0]->dtype);
      Tensor product = r.empty({n, i == 2 ? wide / std::max<std::int64_t>(1, features)
                                          : wide / std::max<std::int64_t>(1, node.inputs[2].sizes[1])},
                               g[0]->dtype);
    }
    return out;
  });
  r.save(node, x), r.save(node, other), r.save(node, weight);
  Tensor out = op::reshape(r, y, sizes);
  return {a.none(3) ? out : op::add(r, out, a.tensor(3))};
}

}  // namespace

void register_products(OpTable& t) {
  t.add("aten::_grouped_mm", "self, mat2, offs=None, bias=None, out_dtype=None", run_grouped_mm);
  // What transformers' experts are exported with on a CPU; on a card they call _grouped_mm.
  t.add("transformers::grouped_mm_fallback", "input, weight, offs", run_grouped_mm);
  t.add("aten::dot", "self, tensor", [](Run& r, Args& a) -> ValueList {
     return {op::dot(r, a.tensor(0), a.tensor(1))};
   }).derivatives = Derivatives("self: grad * tensor | tensor: grad * self");
  t.add("aten::addmv", "self, mat, vec, beta=1, alpha=1", [](Run& r, Args& a) -> ValueList {
     return gemm(r, a, {a.tensor(1)->sizes[0]});
   }).derivatives = Derivatives("self: grad | mat: outer(grad, vec) | vec: mv(t(mat), grad)");
  t.add("aten::addbmm", "self, batch1, batch2, beta=1, alpha=1",
        [](Run& r, Args& a) -> ValueList {
          ValueList y = gemm(r, a, {a.tensor(1)->sizes[1], a.tensor(2)->sizes[2]});
          for (std::int64_t i = 1; i < a.tensor(1)->sizes[0]; ++i) r.use_cublas();  // one product after the other
          return y;
        })
      .derivatives = Derivatives(
      "self: grad | batch1: batched_like(grad, batch1).bmm(batch2.transpose(1, 2)) | batch2: batch1.transpose(1, "
      "2).bmm(batched_like(grad, batch1))");
  for (const char* n : {"aten::outer", "aten::ger"})
    t.add(n, "self, vec2",
          [](Run& r, Args& a) -> ValueList { return {op::mul(r, op::unsqueeze(r, a.tensor(0), 1), a.tensor(1))}; });
  t.add("aten::tensordot", "self, other, dims_self, dims_other", run_tensordot);
  t.add("aten::cdist", "x1, x2, p=2, compute_mode=None", run_cdist, Fidelity::modelled).derivatives = Derivatives(
      "x1, x2: ratio = grad / result; ratio.masked_fill_(result == 0, 0); "
      "{x1 * ratio.sum({-1}, true_) - ratio.matmul(x2), x2 * ratio.sum({-2}).unsqueeze(-1) - ratio.transpose(-2, "
      "-1).matmul(x1)}");
  t.add("aten::einsum", "equation, tensors, path=None",
        [](Run& r, Args& a) -> ValueList { return {op::einsum(r, a.string_or(0, ""), a.tensors(1))}; });
  t.add("aten::bilinear", "input1, input2, weight, bias=None", run_bilinear, Fidelity::modelled);
}

}  // namespace memplan
