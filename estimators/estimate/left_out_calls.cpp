#include "estimators/estimate/left_out_calls.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>

#include "estimators/base/bytes.h"

namespace memplan {

namespace {

/// "cat" and 5 of "cat_5"; 0 where the name has no number.
std::pair<std::string_view, std::int64_t> numbered(std::string_view name) {
  const auto end = name.find_last_not_of("0123456789");
  if (end == name.npos || end + 1 == name.size() || name[end] != '_') return {name, 0};
  std::int64_t n = 0;
  std::from_chars(name.data() + end + 1, name.data() + name.size(), n);
  return {name.substr(0, end), n};
}

/// By op: the bytes of what each of its calls makes, by number.
using Made = std::map<std::string_view, std::map<std::int64_t, Bytes>>;

Made made_by(const Tape& tape, const std::vector<std::string>& wanted) {
  Made made;
  for (const std::string& name : wanted) made[numbered(name).first];
  for (const Call& call : tape.calls)
    for (std::size_t i = 0; i < std::min(call.outputs.size(), call.known_shapes.size()); ++i) {
      if (!call.outputs[i].valid()) continue;
      const auto [op, n] = numbered(tape.values[static_cast<std::size_t>(call.outputs[i].index)].name);
      const auto& [dtype, sizes] = call.known_shapes[i];
      if (const auto it = made.find(op); it != made.end() && is_floating(dtype)) it->second[n] = bytes_of(dtype, sizes);
    }
  return made;
}

/// Of the calls with the numbers before and after.
Bytes bytes_beside(const std::map<std::int64_t, Bytes>& of_op, std::int64_t n) {
  const auto after = of_op.lower_bound(n);
  Bytes most = after == of_op.end() ? Bytes() : after->second;
  if (after != of_op.begin()) most = std::max(most, std::prev(after)->second);
  return most;
}

}  // namespace

RangeSource left_out_calls(const Tape& tape, const TrainingSetup& setup) {
  RangeSource s{About::op, "calls that the exporter numbered and the file does not have", {}, {}};
  if (tape.exported.left_out.empty()) return s;
  const Made made = made_by(tape, tape.exported.left_out);
  Bytes all, most;
  for (const std::string& name : tape.exported.left_out) {
    const auto [op, n] = numbered(name);
    const Bytes beside = bytes_beside(made.at(op), n);
    all += beside;
    most = std::max(most, beside);
  }
  for (const auto counter : each_counter) s.above.*counter = setup.mode == Mode::training ? all : most;
  return s;
}

}  // namespace memplan
