// Conversions of which a file leaves open whether the program makes them, as a range over them reads it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "estimators/restore/casts.h"
#include "estimators/restore/statement.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

bool is_view(std::string_view op) {
  static constexpr std::string_view ops[] = {"aten::view",      "aten::expand",       "aten::reshape",
                                             "aten::unsqueeze", "aten::slice.Tensor", "memplan::index_slice",
                                             "aten::permute",   "aten::transpose.int"};
  return std::ranges::find(ops, op) != std::end(ops);
}

class Places {
 public:
  explicit Places(const Tape& tape) : tape_(tape), maker_(makers_of(tape)) {}

  /// A norm of a class of the model's own, whose result its module returns: `return x.to(orig_type)`. Classes of these
  /// libraries are known.
  bool is_own_norm(std::size_t i) const {
    const Call& call = tape_.calls[i];
    if (call.scope < 0 || call.outputs.size() != 1 || !is_norm(call.op)) return false;
    const std::string_view own = tape_.scopes[static_cast<std::size_t>(call.scope)].module_class;
    if (own.empty()) return false;  // a file without modules tells nothing of its program's conversions
    for (const std::string_view known : {"torch.", "torchvision.", "timm."})
      if (own.starts_with(known)) return false;
    return i + 1 < tape_.calls.size() && tape_.calls[i + 1].scope != call.scope;
  }

  /// The operand of a sum or of joined tensors that is a parameter, or a view of one, which the line does not name:
  /// `x + self.pos_embed.to(x.dtype)` in a helper method. Invalid where there is none.
  ValueId own_parameter(const Call& call) const {
    if (call.source.empty() || (call.op != "aten::add.Tensor" && call.op != "aten::cat")) return {};
    ValueId found, other;
    for_each_value(call, [&](ValueId id) { (parameter_behind(id).valid() && !found.valid() ? found : other) = id; });
    if (!found.valid() || !other.valid()) return {};
    const auto& name = tape_.values[static_cast<std::size_t>(parameter_behind(found).index)].name;
    return has_name(call.source, leaf_of(name)) ? ValueId() : found;
  }

  /// `torch.matmul(q.float(), k.float().transpose(1, 2))`: nobody widens what autocast would narrow at once, so the
  /// product may be made with autocast off, of which a file exported without it has no trace.
  bool multiplies_widened(const Call& call) const {
    return !call.no_autocast && (call.op == "aten::matmul" || call.op == "aten::bmm") &&
           is_widened(value_at(call, 0)) && is_widened(value_at(call, 1));
  }

 private:
  bool is_widened(ValueId id) const {
    const std::int32_t by = made_by(behind_views(id));
    if (by < 0) return false;
    const Call& cast = tape_.calls[static_cast<std::size_t>(by)];
    const auto* type = cast.args.size() > 1 ? std::get_if<DType>(&cast.args[1].value) : nullptr;
    return cast.op == "aten::to.dtype" && type && *type == DType::float32;
  }

  std::int32_t made_by(ValueId id) const { return id.valid() ? maker_[static_cast<std::size_t>(id.index)] : -1; }

  /// What a view shows, in the end.
  ValueId behind_views(ValueId id) const {
    for (std::int32_t by = made_by(id); by >= 0 && is_view(tape_.calls[static_cast<std::size_t>(by)].op);
         by = made_by(id))
      id = value_at(tape_.calls[static_cast<std::size_t>(by)], 0);
    return id;
  }

  ValueId parameter_behind(ValueId id) const {
    const ValueId root = behind_views(id);
    return root.valid() && tape_.values[static_cast<std::size_t>(root.index)].kind == ValueKind::parameter ? root
                                                                                                           : ValueId();
  }

  const Tape& tape_;
  const std::vector<std::int32_t> maker_;
};

/// Calls [first, last) of a region without gradients or without autocast, of which an exporter keeps no lines.
struct Region {
  std::size_t first = 0, last = 0;
};

bool is_product(std::string_view op) {
  static constexpr std::string_view ops[] = {"aten::matmul", "aten::bmm", "aten::linear", "aten::einsum",
                                             "aten::scaled_dot_product_attention"};
  return std::ranges::find(ops, op) != std::end(ops);
}

/// Where autocast would run a product in half precision. Files without lines have no such regions.
std::vector<Region> regions_of(const Tape& tape) {
  std::vector<Region> out;
  if (tape.exported.keeps_casts || tape.exported.recorded ||
      std::ranges::all_of(tape.calls, [](const Call& c) { return c.source.empty(); }))
    return out;
  for (std::size_t i = 0; i < tape.calls.size();) {
    std::size_t end = i;
    bool product = false;
    for (; end < tape.calls.size() && tape.calls[end].source.empty() && tape.calls[end].scope == tape.calls[i].scope;
         ++end)
      product = product || is_product(tape.calls[end].op);
    if (product && tape.calls[i].scope >= 0) out.push_back({i, end});
    i = std::max(end, i + 1);
  }
  return out;
}

/// `with autocast(enabled=False): y = f(q.float(), k.float())`: what the region is given is in fp32 there.
void widen_regions(Tape& tape) {
  CallsBefore casts;
  for (const Region& r : regions_of(tape)) {
    std::unordered_map<std::int32_t, ValueId> wide;
    std::unordered_set<std::int32_t> made;
    for (std::size_t i = r.first; i < r.last; ++i) {
      Call& call = tape.calls[i];
      call.no_autocast = true;
      replace_values(call, [&](ValueId id) {
        if (made.contains(id.index) || tape.values[static_cast<std::size_t>(id.index)].kind != ValueKind::computed)
          return Arg{id};
        const auto [it, fresh] = wide.try_emplace(id.index);
        if (fresh) {
          Call cast = fp32_copy(tape, id, call);
          it->second = cast.outputs[0];
          casts.emplace_back(i, std::move(cast));
        }
        return Arg{it->second};
      });
      for (const ValueId id : call.outputs) made.insert(id.index);
    }
  }
  insert_calls(tape.calls, std::move(casts));
}

/// A call whose result, or the parameter that it reads, may be converted.
struct OpenCast {
  std::size_t call = 0;
  ValueId parameter;  ///< invalid: the result
};

std::vector<OpenCast> open_casts_of(const Tape& tape) {
  std::vector<OpenCast> out;
  if (tape.exported.keeps_casts || tape.exported.recorded) return out;
  const Places places(tape);
  for (std::size_t i = 0; i < tape.calls.size(); ++i)
    if (const ValueId p = places.own_parameter(tape.calls[i]); p.valid() || places.is_own_norm(i))
      out.push_back({i, p});
  return out;
}

std::vector<std::size_t> products_without_autocast(const Tape& tape) {
  std::vector<std::size_t> out;
  if (tape.exported.recorded) return out;
  const Places places(tape);
  for (std::size_t i = 0; i < tape.calls.size(); ++i)
    if (places.multiplies_widened(tape.calls[i])) out.push_back(i);
  return out;
}

}  // namespace

bool has_open_casts(const Tape& tape) {
  const bool drawn = std::ranges::any_of(
      tape.recovered, [](const Recovery& r) { return r.op == drawn_dtype && r.evidence == Evidence::told_by_pattern; });
  return drawn || !open_casts_of(tape).empty() || !products_without_autocast(tape).empty() || !regions_of(tape).empty();
}

void make_open_casts(Tape& tape) {
  if (!tape.reading.open_casts) return;
  for (const std::size_t i : products_without_autocast(tape)) tape.calls[i].no_autocast = true;
  widen_regions(tape);
  CallsBefore casts;
  std::unordered_map<std::int32_t, ValueId> narrowed;
  const auto now = [&](ValueId id) {
    const auto it = narrowed.find(id.index);
    return it == narrowed.end() ? id : it->second;
  };
  std::size_t at = 0;
  for (const OpenCast& open : open_casts_of(tape)) {
    for (; at <= open.call; ++at) replace_values(tape.calls[at], [&](ValueId id) { return Arg{now(id)}; });
    Call& call = tape.calls[open.call];
    if (const ValueId p = open.parameter; p.valid()) {
      ValueId other;
      for_each_value(call, [&](ValueId id) { other = id == p || other.valid() ? other : id; });
      Call cast = copy_like(tape, p, other, call);
      const ValueId made = cast.outputs[0];
      replace_values(call, [&](ValueId id) { return Arg{id == p ? made : id}; });
      casts.emplace_back(open.call, std::move(cast));
    } else {
      Call cast = copy_like(tape, call.outputs[0], value_at(call, 0), call);
      cast.binding = call.binding;
      narrowed.emplace(call.outputs[0].index, cast.outputs[0]);
      casts.emplace_back(open.call + 1, std::move(cast));
    }
  }
  for (; at < tape.calls.size(); ++at) replace_values(tape.calls[at], [&](ValueId id) { return Arg{now(id)}; });
  for (ValueId& out : tape.outputs) out = now(out);
  insert_calls(tape.calls, std::move(casts));
}

}  // namespace memplan
