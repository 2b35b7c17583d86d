#include "estimators/estimate/lost_operands.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "estimators/base/bytes.h"
#include "estimators/restore/statement.h"

namespace memplan {

namespace {

/// By path of a module: names of its lost parameters.
using LostNames = std::map<std::string_view, std::vector<std::string_view>>;

LostNames lost_names(const Tape& tape) {
  LostNames out;
  for (const std::string_view path : tape.exported.lost_parameters) {
    const auto dot = path.rfind('.');
    out[dot == path.npos ? std::string_view() : path.substr(0, dot)].push_back(dot == path.npos ? path
                                                                                                : path.substr(dot + 1));
  }
  return out;
}

class LostOperands {
 public:
  explicit LostOperands(const Tape& tape) : tape_(tape), names_(lost_names(tape)), largest_(largest_results(tape)) {}

  /// By turn of a line: the bytes of its largest result. The last one may stand at another line, merged with its next
  /// step.
  std::vector<Bytes> run() {
    std::vector<Bytes> out;
    std::string_view before;
    for (const Call& call : tape_.calls) {
      const std::string_view line = naming_line(call);
      if (line.empty() || call.outputs.empty()) {
        before = line;
        continue;
      }
      if (line != before) out.emplace_back();
      before = line;
      out.back() = std::max(out.back(), result(call));
    }
    for (const auto& [module, lost] : names_)
      if (std::ranges::find(lost, "weight") == lost.end()) out.push_back(around(module));
    return out;
  }

 private:
  /// The line of a frame around the call that names a lost parameter of the frame's module; empty: there is none.
  std::string_view naming_line(const Call& call) const {
    std::string_view line = call.source;
    for (std::int32_t s = call.scope; s >= 0;) {
      const Scope& frame = tape_.scopes[static_cast<std::size_t>(s)];
      const auto lost = names_.find(frame.path);
      if (lost != names_.end() &&
          std::ranges::any_of(lost->second, [&](std::string_view name) { return has_name(line, name); }))
        return line;
      line = frame.source;
      s = frame.parent;
    }
    return {};
  }

  /// The largest result of the module that calls one of which nothing is left, `scale * x + bias` with a scale of ones:
  /// what that one read. A module with a weight is rather one that is not called.
  Bytes around(std::string_view module) const {
    const auto dot = module.rfind('.');
    if (largest_.contains(module) || dot == module.npos) return {};
    const auto caller = largest_.find(module.substr(0, dot));
    return caller == largest_.end() ? Bytes() : caller->second;
  }

  /// By path of a module that has calls, or whose modules have: the largest of their results.
  static std::map<std::string_view, Bytes> largest_results(const Tape& tape) {
    std::vector<Bytes> largest(tape.scopes.size());
    std::vector<bool> runs(tape.scopes.size(), false);
    const auto add = [&](std::int32_t s, Bytes b) {
      if (s < 0) return;
      runs[static_cast<std::size_t>(s)] = true;
      largest[static_cast<std::size_t>(s)] = std::max(largest[static_cast<std::size_t>(s)], b);
    };
    for (const Call& call : tape.calls) add(call.scope, result(call));
    std::map<std::string_view, Bytes> out;
    for (std::size_t s = tape.scopes.size(); s-- > 0;) {  // a parent is made before its children
      if (!runs[s]) continue;
      add(tape.scopes[s].parent, largest[s]);
      Bytes& of_path = out[tape.scopes[s].path];
      of_path = std::max(of_path, largest[s]);
    }
    return out;
  }

  static Bytes result(const Call& call) {
    if (call.known_shapes.empty() || !is_floating(call.known_shapes[0].first)) return {};
    return bytes_of(call.known_shapes[0].first, call.known_shapes[0].second);
  }

  const Tape& tape_;
  const LostNames names_;
  const std::map<std::string_view, Bytes> largest_;  ///< by path
};

}  // namespace

RangeSource lost_operands(const Tape& tape, const TrainingSetup& setup) {
  RangeSource s{About::weights, "lines that name a parameter which no node of the file reads", {}, {}};
  Bytes all, most;
  if (!tape.exported.lost_parameters.empty())
    for (const Bytes b : LostOperands(tape).run()) all += b, most = std::max(most, b);
  for (const auto counter : each_counter) s.above.*counter = setup.mode == Mode::training ? all : most;
  return s;
}

}  // namespace memplan
