// F.cross_entropy as LogSoftmax and NegativeLogLikelihoodLoss.
#include "estimators/frontends/onnx/patterns.h"

namespace memplan::onnx_format {

std::optional<Found> match_cross_entropy(const View& v, std::int32_t last) {
  const std::int32_t soft = v.only_made_by(v.input(last, 0), "LogSoftmax");
  if (soft < 0) return std::nullopt;
  const At at = v.at(last);
  const GraphValueId x = v.input(soft, 0), target = v.input(last, 1), weight = v.input(last, 2);
  Found f;
  f.nodes = {last, soft};
  f.reads = {x, target};
  if (weight >= 0) f.reads.push_back(weight);
  f.op = "aten::cross_entropy_loss";
  f.from = "LogSoftmax/NegativeLogLikelihoodLoss";
  const std::string r = at.text("reduction", "mean");
  const std::int64_t reduction = r == "none" ? 0 : r == "mean" ? 1 : 2, ignore = at.integer("ignore_index", -100);
  f.emit = [=, &v](Emit& e) {
    e.call_for(v.at(last), "aten::cross_entropy_loss",
               {{e.tensor(x)}, {e.tensor(target)}, weight >= 0 ? Arg{e.tensor(weight)} : Arg{}, {reduction}, {ignore}});
  };
  return f;
}

}  // namespace memplan::onnx_format
