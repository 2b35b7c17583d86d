// Losses of margins between classes, and bilinear layers.
#include <algorithm>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

namespace {

ValueList run_multi_margin(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const bool each = a.integer(5) == 0 && x->rank() == 2;
  Tensor y = r.empty(each ? Dims{x->sizes[0]} : Dims{}, x->dtype);
  if (!each && x->rank() == 2) Tensor parts = r.empty({x->sizes[0]}, x->dtype);
  Node* node = r.record({x}, {y}, [](Run& r, Node& n, TensorList&) { return TensorList{r.empty_like(n.saved[0])}; });
  r.save(node, x), r.save(node, a.tensor(1));
  return {y};
}

ValueList run_multilabel_margin(Run& r, Args& a) {
  Tensor x = a.tensor(0), target = a.tensor(1);
  Tensor is_target = r.empty(target->sizes, x->dtype);
  const bool each = a.integer(2) == 0 && x->rank() == 2;
  Tensor y;
  if (each) {
    y = r.empty({x->sizes[0]}, x->dtype);
  } else {
    Tensor parts = r.empty({x->rank() == 2 ? x->sizes[0] : 1}, x->dtype);
    y = r.empty({}, x->dtype);
  }
  Node* node = r.record({x}, {y}, [](Run& r, Node& n, TensorList&) { return TensorList{r.empty_like(n.saved[0])}; });
  r.save(node, x), r.save(node, target), r.save(node, is_target);
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

void register_margin_losses(OpTable& t) {
  t.add("aten::multi_margin_loss", "self, target, p=1, margin=1, weight=None, reduction=1", run_multi_margin);
  t.add("aten::multilabel_margin_loss", "self, target, reduction=1", run_multilabel_margin);
  t.add("aten::bilinear", "input1, input2, weight, bias=None", run_bilinear, Fidelity::modelled);
}

}  // namespace memplan
