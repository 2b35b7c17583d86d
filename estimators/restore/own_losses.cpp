#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "estimators/restore/casts.h"
#include "estimators/restore/statement.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// A loss as the tape and as Python call it.
struct OwnLoss {
  std::string_view op, function;
};

constexpr OwnLoss losses[] = {{"aten::cross_entropy_loss", "cross_entropy"},
                              {"aten::log_softmax.int", "log_softmax"},
                              {"aten::binary_cross_entropy_with_logits", "binary_cross_entropy_with_logits"},
                              {"aten::mse_loss", "mse_loss"},
                              {"aten::l1_loss", "l1_loss"},
                              {"aten::smooth_l1_loss", "smooth_l1_loss"},
                              {"aten::kl_div", "kl_div"}};

const OwnLoss* loss_of(const Call& call) {
  const auto* it = std::ranges::find(losses, std::string_view(call.op), &OwnLoss::op);
  return it == std::end(losses) ? nullptr : it;
}

/// The first argument of the one call of a function in a line; none where the line has no such call, or several.
std::optional<std::string_view> first_argument(std::string_view line, std::string_view function) {
  std::optional<std::string_view> found;
  for (auto at = line.find(function); at != line.npos; at = line.find(function, at + 1)) {
    const std::size_t open = at + function.size();
    if (open >= line.size() || line[open] != '(') continue;
    if (found) return std::nullopt;
    found = arguments_at(line, open + 1).front();
  }
  return found;
}

bool is_widened(std::string_view expression) {
  while (expression.ends_with(' ')) expression.remove_suffix(1);
  return std::ranges::any_of(std::initializer_list<std::string_view>{".float()", ".to(torch.float32)",
                                                                     ".to(torch.float)", ".to(dtype=torch.float32)"},
                             [&](std::string_view end) { return expression.ends_with(end); });
}

}  // namespace

bool has_own_loss(const Tape& tape) {
  return !tape.exported.keeps_casts &&
         std::ranges::any_of(tape.calls, [](const Call& c) { return c.op == "aten::cross_entropy_loss"; });
}

void widen_own_losses(Tape& tape) {
  if (tape.exported.keeps_casts) return;
  std::unordered_set<std::int32_t> wide;  // results of conversions
  std::int64_t told = 0;
  CallsBefore casts;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    Call& call = tape.calls[i];
    const OwnLoss* loss = loss_of(call);
    const ValueId x = value_at(call, 0);
    if (loss && x.valid() && !wide.contains(x.index)) {
      const auto given = first_argument(call.source, loss->function);
      const bool by_line = given && is_widened(*given);
      told += by_line;
      if (by_line || (tape.reading.widened_losses && call.op == "aten::cross_entropy_loss")) {
        Call cast = fp32_copy(tape, x, call);
        call.args[0] = {cast.outputs[0]};
        casts.emplace_back(i, std::move(cast));
      }
    }
    if (call.op == "aten::to.dtype" && !call.outputs.empty()) wide.insert(call.outputs[0].index);
  }
  insert_calls(tape.calls, std::move(casts));
  if (told > 0)
    tape.recovered.push_back({"aten::to.dtype", "what lines convert for a loss, absent from an fp32 export", told,
                              Evidence::told_by_source_line, About::cast});
}

}  // namespace memplan
