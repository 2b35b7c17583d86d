#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "estimators/restore/casts.h"
#include "estimators/setup/run_dtype.h"
#include "estimators/setup/setup.h"

namespace memplan {

namespace {

/// "scores.to(input_dtype)", not "scores.to(torch.float32)" and not a line that converts to nothing by name.
bool converts_to_a_name(std::string_view line) {
  for (std::size_t at = line.find(".to("); at != line.npos; at = line.find(".to(", at + 1)) {
    const std::string_view argument = line.substr(at, line.find(')', at) - at);
    if (argument.find("dtype") != line.npos && argument.find("float32") == line.npos) return true;
  }
  return false;
}

bool has_no_elements(const TapeValue& v) { return std::find(v.sizes.begin(), v.sizes.end(), 0) != v.sizes.end(); }

bool is_fp32(const Arg& a) {
  const auto* d = std::get_if<DType>(&a.value);
  return d && *d == DType::float32;
}

}  // namespace

void follow_recorded_dtypes(Tape& tape, Precision precision) {
  if (!is_amp(precision)) return;
  const DType half = half_of(precision);
  std::map<std::int32_t, DType> recorded;  // of results, by value
  std::size_t changed = 0;
  std::string first;
  for (Call& c : tape.calls) {
    for (std::size_t o = 0; o < c.outputs.size() && o < c.known_shapes.size(); ++o)
      if (c.outputs[o].valid()) recorded[c.outputs[o].index] = c.known_shapes[o].first;
    const bool conversion = c.op == "aten::to.dtype" && c.args.size() > 1 && is_fp32(c.args[1]);
    if (!conversion || c.no_autocast || !converts_to_a_name(c.source)) continue;
    const auto* from = std::get_if<ValueId>(&c.args[0].value);
    const auto known = from ? recorded.find(from->index) : recorded.end();
    if (known == recorded.end() || known->second != DType::float32) continue;
    c.args[1] = Arg{half};
    if (changed++ == 0) first = c.source;
  }
  // What is appended to it is in its dtype then, so it was asked for.
  for (TapeValue& v : tape.values)
    if (v.kind == ValueKind::constant && v.dtype == DType::float32 && has_no_elements(v)) {
      v.dtype = half;
      if (changed++ == 0) first = "a tensor without elements";
    }
  if (changed)
    note(tape.notes, {{},
                      fmt::format("{} dtypes that were fp32 when it was recorded follow autocast, since the program "
                                  "asks a tensor for them, such as {}",
                                  changed, first),
                      Evidence::told_by_source_line,
                      About::cast});
}

}  // namespace memplan
