#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "estimators/restore/passes.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// torch.rms_norm as exporters decompose it: pow, mean, add (eps), rsqrt, mul, [to], [mul (weight)], all on one line.
struct RmsNorm {
  std::size_t first = 0, end = 0;
  Arg input, shape, weight, eps;
  ValueId result;
};

bool calls_rms_norm(const Call& call) { return call.source.find("rms_norm(") != std::string::npos; }

/// The other factor of a product that has `one`.
std::optional<Arg> other_factor(const Call& call, ValueId one) {
  if (call.op != "aten::mul.Tensor" || call.args.size() != 2) return std::nullopt;
  if (value_at(call, 0) == one) return call.args[1];
  if (value_at(call, 1) == one) return call.args[0];
  return std::nullopt;
}

bool is_stored(const Tape& tape, const Arg& arg) {
  const auto* id = std::get_if<ValueId>(&arg.value);
  return id && id->valid() && tape.values[static_cast<std::size_t>(id->index)].kind == ValueKind::parameter;
}

/// Sizes of the last dimensions, as many as the mean goes over.
std::optional<Arg> normalized_shape(const Tape& tape, const Call& power, const Call& mean, const Arg& weight) {
  const auto* dims = mean.args.size() > 1 ? std::get_if<Arg::List>(&mean.args[1].value) : nullptr;
  if (!dims) return std::nullopt;
  std::vector<std::int64_t> sizes;
  if (is_stored(tape, weight))
    sizes = tape.values[static_cast<std::size_t>(std::get<ValueId>(weight.value).index)].sizes;
  else if (!power.known_shapes.empty() && power.known_shapes[0].second.size() >= dims->size())
    sizes.assign(power.known_shapes[0].second.end() - static_cast<std::ptrdiff_t>(dims->size()),
                 power.known_shapes[0].second.end());
  if (sizes.size() != dims->size()) return std::nullopt;
  Arg::List list;
  for (std::int64_t n : sizes) list.push_back(Arg{n});
  return Arg{std::move(list)};
}

std::optional<RmsNorm> norm_at(const Tape& tape, std::size_t first) {
  const auto at = [&](std::size_t i) -> const Call* {
    const std::size_t n = first + i;
    const bool ours = n < tape.calls.size() && tape.calls[n].scope == tape.calls[first].scope &&
                      tape.calls[n].source == tape.calls[first].source && tape.calls[n].outputs.size() == 1;
    return ours ? &tape.calls[n] : nullptr;
  };
  for (std::size_t i = 0; i < 5; ++i)
    if (!at(i)) return std::nullopt;
  const Call &power = *at(0), &mean = *at(1), &add = *at(2), &root = *at(3), &scaled = *at(4);
  constexpr std::array ops{"aten::pow.Tensor_Scalar", "aten::mean.dim", "aten::add.Scalar", "aten::rsqrt"};
  for (std::size_t i = 0; i < ops.size(); ++i)
    if (at(i)->op != ops[i] && !(i == 2 && add.op == "aten::add.Tensor")) return std::nullopt;
  const ValueId x = value_at(power, 0);
  const auto input = other_factor(scaled, root.outputs[0]);
  if (value_at(mean, 0) != power.outputs[0] || value_at(add, 0) != mean.outputs[0] ||
      value_at(root, 0) != add.outputs[0] || !input || !std::holds_alternative<ValueId>(input->value) ||
      std::get<ValueId>(input->value) != x)
    return std::nullopt;
  RmsNorm n{first, first + 5, Arg{x}, {}, {}, {}, scaled.outputs[0]};
  if (add.args.size() > 1 && std::holds_alternative<double>(add.args[1].value)) n.eps = add.args[1];
  if (const Call* weighted = at(5))
    if (const auto w = other_factor(*weighted, n.result); w && is_stored(tape, *w)) {
      n.weight = *w;
      n.result = weighted->outputs[0];
      ++n.end;
    }
  auto shape = normalized_shape(tape, power, mean, n.weight);
  if (!shape) return std::nullopt;
  n.shape = std::move(*shape);
  return n;
}

/// Nobody else reads what the norm makes on its way: each goes into the next call and nowhere else.
bool is_closed_norm(const Tape& tape, const RmsNorm& n, const std::vector<int>& reads) {
  for (std::size_t i = n.first; i + 1 < n.end; ++i)
    if (reads[static_cast<std::size_t>(tape.calls[i].outputs[0].index)] != 1) return false;
  return true;
}

}  // namespace

void recover_rms_norms(Tape& tape) {
  if (std::none_of(tape.calls.begin(), tape.calls.end(), calls_rms_norm)) return;
  const std::vector<int> reads = count_reads(tape);
  std::vector<Call> calls;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < tape.calls.size();) {
    const auto n = calls_rms_norm(tape.calls[i]) ? norm_at(tape, i) : std::nullopt;
    if (!n || !is_closed_norm(tape, *n, reads)) {
      calls.push_back(tape.calls[i++]);
      continue;
    }
    Call call = tape.calls[n->end - 1];  // its place, line and statement
    call.op = "aten::rms_norm";
    call.args = {n->input, n->shape, n->weight, n->eps};
    call.kwargs.clear();
    calls.push_back(std::move(call));
    i = n->end;
    ++count;
  }
  if (count == 0) return;
  tape.calls = std::move(calls);
  tape.recovered.push_back(
      {"aten::rms_norm", "the calls that an exporter makes of it", count, Evidence::told_by_source_line, About::op});
}

}  // namespace memplan
