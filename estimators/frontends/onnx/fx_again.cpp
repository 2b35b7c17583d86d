#include "estimators/frontends/onnx/fx_again.h"

#include <utility>

#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/values.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

std::shared_ptr<const Call> folded_call(const Graph& graph, GraphValueId id, std::string_view name) {
  auto call = std::make_shared<Call>();
  call->op = folded_op(name);
  call->args = folded_arguments(call->op, {ValueId{id}}, graph.initializers.at(id).sizes);
  return call;
}

ValueId call_again(const Again& made, Emit& e) {
  Call c = *made.call;
  const std::string_view module =
      e.scope < 0 ? std::string_view() : std::string_view(e.tape.scopes[static_cast<std::size_t>(e.scope)].path);
  if (made.of_lost) {
    const ValueId stored = value_at(c, 0), lost = e.values.lost_of_module(stored.index, module);
    if (!lost.valid()) return e.tensor(stored.index);
    c.args[0] = {lost};
    return e.call(std::move(c.op), std::move(c.args), std::move(c.kwargs));
  }
  replace_values(c, [&](ValueId id) {
    const std::string_view folded = e.values.folded_parameter(id.index);
    return Arg{e.values.of_module(folded.empty() ? e.tensor(id.index) : e.values.of_name(folded), module)};
  });
  return e.call(std::move(c.op), std::move(c.args), std::move(c.kwargs));
}

}  // namespace memplan::onnx_format
