// Losses of margins between classes.
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

}  // namespace

void register_margin_losses(OpTable& t) {
  t.add("aten::multi_margin_loss", "self, target, p=1, margin=1, weight=None, reduction=1", run_multi_margin);
  t.add("aten::multilabel_margin_loss", "self, target, reduction=1", run_multilabel_margin);
}

}  // namespace memplan
