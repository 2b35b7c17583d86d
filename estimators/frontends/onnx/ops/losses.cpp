// Losses that a training file carries.
#include "estimators/frontends/onnx/table.h"

namespace memplan::onnx_format {

namespace {

void infer_loss(const At& at, std::vector<Inferred>& out) {
  out[0].dtype = at.in(0).dtype;
  if (at.text("reduction", "mean") != "none")
    out[0].sizes = Sizes{};
  else
    out[0].sizes = at.sizes(1);
  if (out.size() > 1) out[1] = at.in(0), out[1].contents.reset();
}

std::int64_t reduction_of(const At& at) {
  const std::string r = at.text("reduction", "mean");
  return r == "none" ? 0 : r == "mean" ? 1 : 2;  // at::Reduction
}

bool lower_cross_entropy(const At& at, Emit& e) {
  e.call_for(at, "aten::cross_entropy_loss",
             {{e.tensor(at.id(0))},
              {e.tensor(at.id(1))},
              e.optional(at, 2),
              {reduction_of(at)},
              {at.integer("ignore_index", -100)}});
  if (at.node.outputs.size() > 1 && at.node.outputs[1] >= 0)
    e.bind(at.node.outputs[1], e.call("aten::log_softmax.int", {{e.tensor(at.id(0))}, {std::int64_t{1}}}));
  return true;
}

bool lower_nll(const At& at, Emit& e) {
  e.call_for(at, "aten::nll_loss_nd",
             {{e.tensor(at.id(0))},
              {e.tensor(at.id(1))},
              e.optional(at, 2),
              {reduction_of(at)},
              {at.integer("ignore_index", -100)}});
  return true;
}

constexpr OpRow rows[] = {
    {"SoftmaxCrossEntropyLoss", infer_loss, lower_cross_entropy},
    {"NegativeLogLikelihoodLoss", infer_loss, lower_nll},
};

}  // namespace

Rows loss_rows() { return {rows, std::size(rows)}; }

}  // namespace memplan::onnx_format
