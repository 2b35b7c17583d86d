#include "estimators/restore/function_names.h"

#include <algorithm>
#include <map>
#include <optional>

#include "estimators/facts/libraries.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// "mul" of "aten::mul.Tensor"; ops that do the same have one name.
std::string_view plain_op(std::string_view op) {
  if (const auto colons = op.rfind("::"); colons != op.npos) op.remove_prefix(colons + 2);
  op = op.substr(0, op.find('.'));
  return op == "index_slice" ? "slice" : op == "constant_pad_nd" ? "pad" : op == "type_as" ? "to" : op;
}

FunctionStep step_of(std::string_view token) {
  FunctionStep step;
  const auto equals = token.rfind('=');
  step.op = equals == token.npos ? token : token.substr(equals + 1);
  if (step.op.starts_with('^')) step.converts = Conversion::first_to_fp32;
  if (step.op.starts_with('~')) step.converts = Conversion::first_like_second;
  if (step.converts != Conversion::none) step.op.remove_prefix(1);
  if (step.op.ends_with('~')) step.converts = Conversion::second_like_first;
  if (step.op.ends_with('^')) step.converts = Conversion::result_to_fp32;
  if (step.op.ends_with('~') || step.op.ends_with('^')) step.op.remove_suffix(1);
  std::string_view names = equals == token.npos ? std::string_view{} : token.substr(0, equals);
  if (step.appends = names.ends_with('+'); step.appends) names.remove_suffix(1);
  while (!names.empty()) {
    const auto comma = std::min(names.find(','), names.size());
    step.names.push_back(names.substr(0, comma));
    names.remove_prefix(std::min(comma + 1, names.size()));
  }
  return step;
}

/// The names of one run of a function, and what they hold.
class NamesOfRun {
 public:
  explicit NamesOfRun(std::vector<std::int32_t>& until) : until_(until) {}

  void bind(std::string_view name, ValueId value, bool appends, std::int32_t at) {
    auto& holds = names_[name];
    if (!appends) let_go(holds, at);
    holds.push_back(value);
  }

  void unbind(std::string_view name, std::int32_t at) {
    if (const auto it = names_.find(name); it != names_.end()) let_go(it->second, at);
  }

  void unbind_all(std::int32_t at) {
    for (auto& [name, holds] : names_) let_go(holds, at);
  }

 private:
  void let_go(std::vector<ValueId>& holds, std::int32_t at) {
    for (const ValueId id : holds) {
      auto& u = until_[static_cast<std::size_t>(id.index)];
      u = std::max(u, at);
    }
    holds.clear();
  }

  std::vector<std::int32_t>& until_;
  std::map<std::string_view, std::vector<ValueId>> names_;
};

void follow_run(const Tape& tape, const FunctionRun& run, std::vector<std::int32_t>& until) {
  const auto& [known, calls, step_at] = run;
  const std::vector<FunctionStep>& steps = *known;
  const auto is_step = [](std::int32_t s) { return s >= 0; };
  const auto first = std::ranges::find_if(step_at, is_step) - step_at.begin();
  if (first == std::ssize(step_at)) return;
  NamesOfRun names(until);
  const auto begins = calls[static_cast<std::size_t>(first)];
  if (const ValueId x = value_at(tape.calls[static_cast<std::size_t>(begins)], 0);
      x.valid() && !steps.front().argument.empty())
    names.bind(steps.front().argument, x, false, begins);
  std::vector<std::pair<const FunctionStep*, ValueId>> waiting;  // for the end of their tuple
  std::int32_t inner = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (step_at[i] < 0) continue;
    const FunctionStep& step = steps[static_cast<std::size_t>(step_at[i])];
    if (inner != 0 && step.inner != inner)
      for (const FunctionStep& left : steps)
        if (left.inner == inner)
          for (const std::string_view name : left.names) names.unbind(name, calls[i - 1]);
    inner = step.inner;
    const Call& call = tape.calls[static_cast<std::size_t>(calls[i])];
    if (!call.outputs.empty() && call.outputs[0].valid()) waiting.emplace_back(&step, call.outputs[0]);
    const auto next = std::find_if(step_at.begin() + static_cast<std::ptrdiff_t>(i) + 1, step_at.end(), is_step);
    if (next != step_at.end() && *next > step_at[i] && *next <= step.bound_at) continue;  // the tuple goes on
    for (const auto& [made, value] : waiting)
      for (const std::string_view name : made->names)
        names.bind(name, value, made->appends && name == made->names.back(), calls[i]);
    waiting.clear();
  }
  // It returns when its last step is through.
  for (std::size_t i = calls.size(); i-- > 0;)
    if (step_at[i] >= 0) return names.unbind_all(calls[i]);
}

}  // namespace

std::vector<FunctionStep> parse_function(std::string_view text) {
  std::vector<FunctionStep> steps;
  std::int32_t loop = -1, inner = 0, inners = 0;
  std::string_view argument;
  std::size_t tuple = 0;
  while (!text.empty()) {
    const auto blank = std::min(text.find(' '), text.size());
    const std::string_view token = text.substr(0, blank);
    text.remove_prefix(std::min(blank + 1, text.size()));
    const auto here = static_cast<std::int32_t>(steps.size());
    if (token == "{")
      loop = here;
    else if (token == "}" && !steps.empty())
      steps.back().again = loop;
    else if (token == "[")
      inner = ++inners;
    else if (token == "]")
      inner = 0;
    else if (token == "(")
      tuple = steps.size();
    else if (token == ")") {
      for (; tuple < steps.size(); ++tuple) steps[tuple].bound_at = here - 1;
    } else if (token.ends_with("=<")) {
      argument = token.substr(0, token.size() - 2);
    } else if (!token.empty()) {
      steps.push_back(step_of(token));
      steps.back().inner = inner;
      steps.back().bound_at = here;
    }
  }
  if (!steps.empty()) steps.front().argument = argument;
  return steps;
}

std::vector<std::int32_t> match_steps(const std::vector<FunctionStep>& steps,
                                      const std::vector<std::string_view>& ops) {
  constexpr std::int32_t matched = 3, passed_over = -1;
  // best[i][j]: what the ops from i on are worth where step j is next.
  const std::size_t n = ops.size(), m = steps.size();
  std::vector<std::vector<std::int32_t>> best(n + 1, std::vector<std::int32_t>(m + 1, 0));
  const auto after = [&](std::size_t i, std::size_t j) {  // the next step when op i is step j
    const std::int32_t again = steps[j].again;
    const bool turns = again >= 0 && best[i + 1][static_cast<std::size_t>(again)] > best[i + 1][j + 1];
    return turns ? static_cast<std::size_t>(again) : j + 1;
  };
  const auto as_step = [&](std::size_t i, std::size_t j) { return matched + best[i + 1][after(i, j)]; };
  for (std::size_t i = n; i-- > 0;)
    for (std::size_t j = m; j-- > 0;) {
      best[i][j] = std::max(best[i + 1][j], best[i][j + 1] + passed_over);
      if (ops[i] == steps[j].op) best[i][j] = std::max(best[i][j], as_step(i, j));
    }
  std::vector<std::int32_t> step_at(n, -1);
  for (std::size_t i = 0, j = 0; i < n && j < m;)
    if (ops[i] == steps[j].op && best[i][j] == as_step(i, j)) {
      step_at[i] = static_cast<std::int32_t>(j);
      j = after(i, j);
      ++i;
    } else if (best[i][j] == best[i + 1][j]) {
      ++i;
    } else {
      ++j;
    }
  return step_at;
}

namespace {

/// A line with more calls is taken as it is: a scan over 8,192 tokens has some 40,000.
constexpr std::size_t most_calls_of_run = 65'536;

struct KnownFunction {
  const LibraryFact* fact = nullptr;
  std::vector<FunctionStep> steps;
};

/// The steps of the known function that the line calls, or null. Functions get copied; methods of that name may be
/// anything in other code than the library's.
const std::vector<FunctionStep>* function_called(std::string_view source) {
  static const std::vector<KnownFunction> known = [] {
    std::vector<KnownFunction> functions;
    for (const LibraryFact& f : library_facts("statements")) functions.push_back({&f, parse_function(f.detail)});
    return functions;
  }();
  for (const KnownFunction& f : known) {
    const std::string_view name = f.fact->subject;
    const auto at = source.find(name);
    if (at == source.npos || !source.substr(at + name.size()).starts_with("(") || f.steps.empty()) continue;
    if (is_in_library(*f.fact, source) || !name.starts_with("self.")) return &f.steps;
  }
  return nullptr;
}

}  // namespace

std::vector<FunctionRun> runs_of_functions(const Tape& tape, const Frames& frames) {
  std::vector<FunctionRun> runs;
  // There is one binding for each different line, and few lines for the calls of many layers.
  std::vector<std::optional<const std::vector<FunctionStep>*>> called(tape.bindings.size());
  for (std::int32_t scope = -1; scope < static_cast<std::int32_t>(tape.scopes.size()); ++scope)
    for (std::size_t l = 0; l < frames.lines(scope); ++l) {
      const Line& line = frames.line(scope, l);
      if (line.binding < 0) continue;
      auto& steps = called[static_cast<std::size_t>(line.binding)];
      if (!steps) steps = function_called(frames.source_at(scope, line.first));
      if (!*steps) continue;
      FunctionRun run{*steps, {}, {}};
      std::vector<std::string_view> ops;
      for (std::int32_t i = line.first; i <= line.last; ++i)
        if (const Call& call = tape.calls[static_cast<std::size_t>(i)]; call.scope == scope) {
          run.calls.push_back(i);
          ops.push_back(plain_op(call.op));
        }
      if (ops.empty() || ops.size() > most_calls_of_run) continue;
      run.step_at = match_steps(**steps, ops);
      runs.push_back(std::move(run));
    }
  return runs;
}

std::vector<std::int32_t> held_in_functions(const Tape& tape, const Frames& frames) {
  std::vector<std::int32_t> until(tape.values.size(), -1);
  for (const FunctionRun& run : runs_of_functions(tape, frames)) follow_run(tape, run, until);
  return until;
}

}  // namespace memplan
