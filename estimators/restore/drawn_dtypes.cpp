#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "estimators/restore/casts.h"
#include "estimators/setup/run_dtype.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

constexpr std::array<std::string_view, 5> factories{"aten::rand", "aten::randn", "aten::zeros", "aten::ones",
                                                    "aten::full"};

/// torch.rand(shape, dtype=…) and its like. Who asks for a type at all hardly asks for fp32, which is what comes of
/// asking for none.
bool is_drawn(const Call& call) {
  return std::ranges::find(factories, call.op) != factories.end() && call.outputs.size() == 1 &&
         std::ranges::any_of(call.kwargs, [](const auto& kwarg) {
           const auto* type = std::get_if<DType>(&kwarg.second.value);
           return kwarg.first == "dtype" && type && is_floating(*type);
         });
}

/// Follows what a helper method makes of its draws, within the line that calls it.
class Draws {
 public:
  explicit Draws(const Tape& tape) : tape_(tape), maker_(makers_of(tape)) {}

  /// The tensor from before the draw that it is first combined with; invalid where the line itself draws.
  ValueId met_by(std::size_t at) const {
    const Call& draw = tape_.calls[at];
    const std::string_view op = std::string_view(draw.op).substr(draw.op.rfind(':') + 1);
    if (draw.source.empty() || draw.source.find(op) != std::string::npos) return {};
    ValueId drawn = draw.outputs[0];
    for (std::size_t i = at + 1; i < tape_.calls.size() && same_line(tape_.calls[i], draw); ++i) {
      bool reads = false;
      ValueId other;
      for_each_value(tape_.calls[i], [&](ValueId id) {
        if (id == drawn)
          reads = true;
        else if (is_float(id))
          other = id;
      });
      if (!reads) continue;
      if (other.valid()) return before(other, at);
      if (tape_.calls[i].outputs.size() != 1) return {};
      drawn = tape_.calls[i].outputs[0];
    }
    return {};
  }

 private:
  static bool same_line(const Call& a, const Call& b) { return a.scope == b.scope && a.source == b.source; }

  bool is_float(ValueId id) const {
    const std::int32_t by = maker_[static_cast<std::size_t>(id.index)];
    const TapeValue& v = tape_.values[static_cast<std::size_t>(id.index)];
    if (by < 0) return v.kind == ValueKind::user_input && is_floating(v.dtype) && !v.sizes.empty();
    const Call& c = tape_.calls[static_cast<std::size_t>(by)];
    return c.op.starts_with("aten::") && !c.op.starts_with("aten::sym_");
  }

  /// What the value was made of when the draw was made: `inputs` of `inputs / keep`.
  ValueId before(ValueId id, std::size_t at) const {
    for (int steps = 0; steps < 8; ++steps) {
      const std::int32_t by = maker_[static_cast<std::size_t>(id.index)];
      if (by < static_cast<std::int32_t>(at)) return id;
      ValueId from;
      for_each_value(tape_.calls[static_cast<std::size_t>(by)], [&](ValueId v) {
        if (!from.valid() && is_float(v)) from = v;
      });
      if (!from.valid()) return {};
      id = from;
    }
    return {};
  }

  const Tape& tape_;
  std::vector<std::int32_t> maker_;  ///< by value
};

}  // namespace

void follow_drawn_dtypes(Tape& tape, Precision precision) {
  if (std::ranges::none_of(tape.calls, is_drawn)) return;
  const Draws draws(tape);
  std::int64_t count = 0;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    if (!is_drawn(tape.calls[i])) continue;
    const ValueId like = draws.met_by(i);
    if (!like.valid()) continue;
    for (auto& [kind, arg] : tape.calls[i].kwargs)
      if (kind == "dtype") arg = tape.reading.open_casts && is_amp(precision) ? Arg{half_of(precision)} : Arg{like};
    ++count;
  }
  if (count > 0)
    tape.recovered.push_back({drawn_dtype,
                              "masks and borders that helper methods make, taken to be of the type of what they meet",
                              count, Evidence::told_by_pattern, About::cast});
}

}  // namespace memplan
