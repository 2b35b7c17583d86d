// Which ops memplan models, and how exactly: the whole table, or the part of it that a model uses.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/answer/answer.h"
#include "cli/commands/commands.h"
#include "cli/report/report.h"
#include "cli/terminal/output.h"
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan::cli {

namespace {

struct OpUse {
  std::string op, fidelity;
  std::int64_t count = 0;
};

const char* fidelity_of(const Row* row) {
  if (!row) return "not modelled";
  return row->fidelity == Fidelity::exact ? "exact" : "modelled";
}

std::vector<OpUse> whole_table(const OpTable& table) {
  std::vector<OpUse> uses;
  for (const Row& row : table.rows()) uses.push_back({row.name, fidelity_of(&row), 0});
  std::sort(uses.begin(), uses.end(), [](const OpUse& a, const OpUse& b) { return a.op < b.op; });
  return uses;
}

std::vector<OpUse> of_model(const Options& given) {
  const Job job = load_job(given);
  const OpTable& table = *profile_of(job.options.setup).ops;
  const Tape tape = unwrap(tape_of(job.model, job.options.setup));
  std::map<std::string, OpUse> by_name;
  for (const Call& call : tape.calls) {
    OpUse& use = by_name[call.op];
    use.op = call.op;
    use.fidelity = fidelity_of(call.unknown ? nullptr : table.find(call.op));
    ++use.count;
  }
  std::vector<OpUse> uses;
  for (const auto& [name, use] : by_name) uses.push_back(use);
  std::stable_sort(uses.begin(), uses.end(), [](const OpUse& a, const OpUse& b) { return a.count > b.count; });
  return uses;
}

}  // namespace

int run_ops(const Options& options) {
  if (options.ops.unsupported && options.argument.empty())
    fail(ErrorKind::usage, "--unsupported needs a model", "--unsupported", "try: memplan ops model.onnx --unsupported");
  TrainingSetup setup = options.setup;
  setup.runtime = choose_version(options.torch, {});
  std::vector<OpUse> uses = options.argument.empty() ? whole_table(*profile_of(setup).ops) : of_model(options);
  if (options.ops.unsupported) std::erase_if(uses, [](const OpUse& u) { return u.fidelity != "not modelled"; });
  if (options.format == Format::json) {
    nlohmann::ordered_json j = nlohmann::ordered_json::array();
    for (const OpUse& u : uses) {
      j.push_back({{"op", clean(u.op)}, {"fidelity", u.fidelity}});
      if (!options.argument.empty()) j.back()["count"] = u.count;
    }
    write_out(j.dump(2) + "\n", options.output);
    return 0;
  }
  if (uses.empty()) {
    write_out("every op of the model is modelled\n", options.output);
    return 0;
  }
  Table table;
  std::map<std::string, std::int64_t> total;
  for (const OpUse& u : uses) {
    total[u.fidelity] += std::max<std::int64_t>(1, u.count);
    table.rows.push_back({clean(u.op), u.fidelity});
    if (!options.argument.empty()) table.rows.back().insert(table.rows.back().begin(), std::to_string(u.count));
  }
  table.head = options.argument.empty() ? std::vector<std::string>{"OP", "MEMORY"}
                                        : std::vector<std::string>{"CALLS", "OP", "MEMORY"};
  table.right = options.argument.empty() ? std::vector<bool>{false, false} : std::vector<bool>{true, false, false};
  std::string summary;
  for (const auto& [fidelity, count] : total)
    summary += fmt::format("{}{} {}", summary.empty() ? "" : ", ", count, fidelity);
  write_out(
      table.print(make_style(options)) + fmt::format("{}: {}\n", options.argument.empty() ? "ops" : "calls", summary),
      options.output);
  return 0;
}

}  // namespace memplan::cli
