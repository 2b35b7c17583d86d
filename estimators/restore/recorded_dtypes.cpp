#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "estimators/restore/casts.h"
#include "estimators/setup/setup.h"

namespace memplan {

namespace {

/// "scores.to(input_dtype)", "torch.tensor([], dtype=self.dtype)", not "scores.to(torch.float32)" and not a line that
/// says nothing of dtypes.
bool names_a_dtype(std::string_view line) {
  return line.find("dtype") != line.npos && line.find("float32") == line.npos &&
         line.find("torch.float)") == line.npos && line.find(".double") == line.npos;
}

bool makes_nothing(const Call& c) {
  const auto* sizes = c.args.empty() ? nullptr : std::get_if<Arg::List>(&c.args[0].value);
  return sizes && std::any_of(sizes->begin(), sizes->end(), [](const Arg& a) {
           const auto* n = std::get_if<std::int64_t>(&a.value);
           return n && *n == 0;
         });
}

bool is_fp32(const Arg& a) {
  const auto* d = std::get_if<DType>(&a.value);
  return d && *d == DType::float32;
}

}  // namespace

void follow_recorded_dtypes(Tape& tape, Precision precision) {
  if (precision != Precision::amp_bf16 && precision != Precision::amp_fp16) return;
  const DType half = precision == Precision::amp_bf16 ? DType::bfloat16 : DType::float16;
  std::map<std::int32_t, DType> recorded;  // of results, by value
  std::size_t changed = 0;
  std::string first;
  for (Call& c : tape.calls) {
    for (std::size_t o = 0; o < c.outputs.size() && o < c.known_shapes.size(); ++o)
      if (c.outputs[o].valid()) recorded[c.outputs[o].index] = c.known_shapes[o].first;
    if (c.no_autocast || !names_a_dtype(c.source)) continue;
    Arg* dtype = nullptr;
    if (c.op == "aten::to.dtype" && c.args.size() > 1 && is_fp32(c.args[1])) {
      const auto* from = std::get_if<ValueId>(&c.args[0].value);
      const auto known = from ? recorded.find(from->index) : recorded.end();
      if (known != recorded.end() && known->second == DType::float32) dtype = &c.args[1];
    } else if (makes_nothing(c)) {
      for (auto& [name, a] : c.kwargs)
        if (name == "dtype" && is_fp32(a)) dtype = &a;
    }
    if (!dtype) continue;
    *dtype = Arg{half};
    if (changed++ == 0) first = c.source;
  }
  if (changed)
    note(tape.notes, {{},
                      fmt::format("{} conversions that did nothing in fp32 follow autocast's dtype, since their lines "
                                  "ask a tensor for it, such as {}",
                                  changed, first),
                      Evidence::told_by_source_line,
                      About::cast});
}

}  // namespace memplan
