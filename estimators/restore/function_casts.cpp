// Conversions inside of functions that are known step by step.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "estimators/restore/casts.h"
#include "estimators/restore/function_names.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// What call i of a run has converted.
Conversion conversion_at(const FunctionRun& run, std::size_t i) {
  return run.step_at[i] < 0 ? Conversion::none : (*run.steps)[static_cast<std::size_t>(run.step_at[i])].converts;
}

/// `x` is converted to the type of `like`; neither is valid for other conversions.
struct LikeOther {
  ValueId x, like;
};

LikeOther like_other(const Call& call, Conversion how) {
  if (how == Conversion::second_like_first) return {value_at(call, 1), value_at(call, 0)};
  if (how == Conversion::first_like_second) return {value_at(call, 0), value_at(call, 1)};
  return {};
}

/// Conversions of one run that a file in fp32 does not have.
class ConvertedRun {
 public:
  ConvertedRun(Tape& tape, const FunctionRun& run, CallsBefore& casts) : tape_(tape), run_(run), casts_(casts) {}

  void convert() {
    for (std::size_t i = 0; i < run_.calls.size(); ++i) {
      const auto at = static_cast<std::size_t>(run_.calls[i]);
      const Conversion how = conversion_at(run_, i);
      if (how == Conversion::first_to_fp32) put(at, value_at(tape_.calls[at], 0), ValueId{}, at);
      if (const auto [x, like] = like_other(tape_.calls[at], how); x.valid()) put(at, x, like, at);
      replace_values(tape_.calls[at], [&](ValueId id) {
        const auto it = now_.find(id.index);
        return Arg{it == now_.end() ? id : it->second};
      });
      if (how == Conversion::result_to_fp32 && !tape_.calls[at].outputs.empty())
        put(at, tape_.calls[at].outputs[0], ValueId{}, at + 1);
    }
  }

 private:
  /// Before call `where`: `x` like `like`, or in fp32 where there is none.
  void put(std::size_t at, ValueId x, ValueId like, std::size_t where) {
    if (!x.valid() || now_.contains(x.index)) return;
    Call cast = like.valid() ? copy_like(tape_, x, like, tape_.calls[at]) : fp32_copy(tape_, x, tape_.calls[at]);
    cast.binding = tape_.calls[at].binding;  // of the same line
    now_.emplace(x.index, cast.outputs[0]);
    casts_.emplace_back(where, std::move(cast));
  }

  Tape& tape_;
  const FunctionRun& run_;
  CallsBefore& casts_;
  std::map<std::int32_t, ValueId> now_;  ///< by value
};

/// `bias.to(x.dtype)` of a run stands in a file that keeps conversions as one to fp32.
void follow_dtypes_of_run(Tape& tape, const FunctionRun& run) {
  std::map<std::int32_t, std::size_t> made;  // by value
  for (std::size_t i = 0; i < run.calls.size(); ++i) {
    const auto at = static_cast<std::size_t>(run.calls[i]);
    for (const ValueId id : tape.calls[at].outputs) made[id.index] = at;
    const LikeOther of = like_other(tape.calls[at], conversion_at(run, i));
    const auto whole = [&](ValueId id) {  // what it is a view of
      while (id.valid() && made.contains(id.index) &&
             tape.calls[made[id.index]].op.find("squeeze") != std::string::npos)
        id = value_at(tape.calls[made[id.index]], 0);
      return id;
    };
    const ValueId x = whole(of.x), like = whole(of.like);
    if (!x.valid() || !made.contains(x.index)) continue;
    Call& cast = tape.calls[made[x.index]];
    if (cast.op != "aten::to.dtype" || cast.args.empty() || !like.valid()) continue;
    if (made.contains(like.index) && made[like.index] > made[x.index]) continue;
    cast.op = "aten::type_as";
    cast.args = {cast.args[0], {like}};
    cast.kwargs.clear();
  }
}

}  // namespace

void convert_in_functions(Tape& tape) {
  CallsBefore casts;
  for (const FunctionRun& run : runs_of_functions(tape, Frames(tape)))
    if (tape.exported.keeps_casts)
      follow_dtypes_of_run(tape, run);
    else
      ConvertedRun(tape, run, casts).convert();
  if (casts.empty()) return;
  tape.recovered.push_back({"aten::to.dtype", "conversions inside of known functions, absent from an fp32 export",
                            static_cast<std::int64_t>(casts.size()), Evidence::told_by_name, About::cast});
  std::ranges::stable_sort(casts, {}, [](const auto& c) { return c.first; });
  insert_calls(tape.calls, std::move(casts));
}

}  // namespace memplan
