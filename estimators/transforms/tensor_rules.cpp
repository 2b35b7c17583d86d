#include "estimators/transforms/tensor_rules.h"

#include <fmt/format.h>

#include <set>

#include "estimators/base/error.h"
#include "estimators/setup/field.h"

namespace memplan {

std::string_view base_name(std::string_view op) {
  op = op.substr(op.find("::") + 2);
  return op.substr(0, op.find('.'));
}

bool keeps_shape(std::string_view base_name) {
  static const std::set<std::string_view> ops{"contiguous",
                                              "clone",
                                              "to",
                                              "_to_copy",
                                              "detach",
                                              "dropout",
                                              "relu",
                                              "relu_",
                                              "gelu",
                                              "silu",
                                              "silu_",
                                              "tanh",
                                              "sigmoid",
                                              "neg",
                                              "exp",
                                              "pow",
                                              "rsqrt",
                                              "sqrt",
                                              "abs",
                                              "add",
                                              "sub",
                                              "mul",
                                              "div",
                                              "add_",
                                              "mul_",
                                              "where",
                                              "masked_fill",
                                              "type_as",
                                              "to_default_dtype",
                                              "maximum",
                                              "minimum",
                                              "hardswish",
                                              "leaky_relu",
                                              "elu",
                                              "softplus",
                                              "lt",
                                              "gt",
                                              "le",
                                              "ge",
                                              "eq",
                                              "ne",
                                              "zeros_like",
                                              "ones_like",
                                              "empty_like",
                                              "full_like",
                                              "cos",
                                              "sin",
                                              "reciprocal",
                                              "square",
                                              "rsub",
                                              "alias",
                                              "native_dropout",
                                              "mish",
                                              "log",
                                              "clamp"};
  return ops.count(base_name) > 0;
}

void check_heads(const Tape& tape, const std::vector<std::optional<Dims>>& shapes, std::int64_t ranks) {
  for (const Call& call : tape.calls) {
    if (base_name(call.op) != "scaled_dot_product_attention") continue;
    const char* names[] = {"attention heads", "key/value heads"};
    for (std::size_t i = 0; i < 2 && i < call.args.size(); ++i) {
      const auto* id = std::get_if<ValueId>(&call.args[i].value);
      if (!id || !shapes[static_cast<std::size_t>(id->index)]) continue;
      const Dims& s = *shapes[static_cast<std::size_t>(id->index)];
      if (s.size() == 4 && s[1] % ranks != 0)
        fail(ErrorKind::usage,
             fmt::format(
                 "{} tensor-parallel ranks do not divide the {} {} of {}", ranks, s[1], names[i],
                 call.scope < 0 ? std::string("the model") : tape.scopes[static_cast<std::size_t>(call.scope)].path),
             setting(Field::tensor_parallel), fmt::format("use a divisor of {}", s[1]));
    }
  }
}

}  // namespace memplan
