// What lives at the peak and why; the life of a tensor; the part of a module; the program that is meant.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/answer/answer.h"
#include "cli/commands/commands.h"
#include "cli/program/session.h"
#include "cli/report/codes.h"
#include "cli/report/document.h"
#include "cli/report/evidence.h"
#include "cli/report/report.h"
#include "cli/report/words.h"
#include "cli/terminal/output.h"
#include "estimators/setup/runtimes.h"
#include "planner/checkpointing/plan.h"

namespace memplan::cli {

namespace {

struct Study {
  Tape tape;
  Schedule schedule;
  Estimate estimate;
  Device device;
};

Study study(const Options& given) {
  Study s;
  s.device = device_of(given).device;
  const Job job = load_job(given);
  const Options& options = job.options;
  const Model& model = job.model;
  Planned planned = unwrap(with_planned_checkpoints(model, options.setup, s.device));
  s.tape = std::move(planned.tape);
  s.schedule = unwrap(run_steps(s.tape, planned.setup, s.device));
  const Timeline timeline = unwrap(replay_unlimited(s.schedule, planned.setup, s.device));
  s.estimate = unwrap(summarize(s.tape, s.schedule, timeline, planned.setup, s.device));
  if (options.explain.evidence)
    s.estimate = unwrap(with_range(model, s.tape, planned.setup, s.device, std::move(s.estimate)));
  return s;
}

/// A point of the run: "step 2, backward, aten::mm in transformer.h.3.mlp".
std::string point(const Study& s, std::int64_t event) {
  if (event < 0) return "the end of the run";
  const auto after = std::upper_bound(s.schedule.ops.begin(), s.schedule.ops.end(), event,
                                      [](std::int64_t e, const OpRecord& op) { return e < op.first_event; });
  if (after == s.schedule.ops.begin()) return "the start";
  const OpRecord& op = *(after - 1);
  std::string text = op.step == 0 ? std::string("set-up") : fmt::format("step {}, {}", op.step, name_of(op.phase));
  if (op.name >= 0) text += ", " + s.schedule.names[static_cast<std::size_t>(op.name)];
  if (op.scope >= 0) {
    const Scope& scope = s.tape.scopes[static_cast<std::size_t>(op.scope)];
    if (!scope.path.empty()) text += " in " + scope.path;
  }
  if (op.call >= 0) {
    const std::string& source = s.tape.calls[static_cast<std::size_t>(op.call)].source;
    if (!source.empty()) text += " (" + source + ")";
  }
  return clean(text);
}

std::string module_of(const Study& s, const Allocation& a) {
  if (a.op < 0) return {};
  const std::int32_t scope = s.schedule.ops[static_cast<std::size_t>(a.op)].scope;
  return scope < 0 ? std::string() : s.tape.scopes[static_cast<std::size_t>(scope)].path;
}

/// A tensor that somebody asked for, with the others that differ by a number in their names only: those of other
/// blocks, and of other steps.
struct Life {
  const Allocation* allocation;
  std::string name, module, shape;
  std::int64_t count = 1;
};

std::vector<Life> lives_of(const Study& s, const std::string& wanted, bool folded) {
  std::vector<Life> lives;
  std::map<std::string, std::size_t> known;
  for (const Allocation& a : s.schedule.allocations) {
    if (a.label < 0) continue;
    Life life{&a, s.schedule.names[static_cast<std::size_t>(a.label)], module_of(s, a), {}};
    if (life.name.find(wanted) == std::string::npos) continue;
    if (a.shape_at >= 0) {
      const TensorShape& t = s.schedule.shapes[static_cast<std::size_t>(a.shape_at)];
      life.shape = fmt::format("  {} {}", shape_text(t.sizes), name_of(static_cast<DType>(t.dtype)));
    }
    const std::string key = fmt::format("{}\n{}\n{}\n{}\n{}", without_numbers(life.name), without_numbers(life.module),
                                        life.shape, a.size.count, name_of(a.category));
    const auto [at, fresh] = known.emplace(key, lives.size());
    if (fresh || !folded)
      lives.push_back(std::move(life));
    else
      ++lives[at->second].count;
  }
  return lives;
}

std::string lifetimes(const Study& s, const Options& options, const Style& style) {
  const bool all = options.top && *options.top == 0;
  const std::vector<Life> lives = lives_of(s, options.explain.tensor, !all);
  if (lives.empty())
    fail(ErrorKind::usage, fmt::format("no tensor's name contains '{}'", options.explain.tensor), "--tensor",
         "memplan explain MODEL --top 0 lists the names at the peak");
  std::string out;
  const std::size_t limit = all ? lives.size() : options.top ? static_cast<std::size_t>(*options.top) : 8;
  for (std::size_t i = 0; i < lives.size() && i < limit; ++i) {
    const Life& life = lives[i];
    const Allocation& a = *life.allocation;
    out += fmt::format(
        "{}  {}{}  {}{}{}\n", style.paint(clean(life.name), Paint::bold), to_human(a.size), life.shape,
        name_of(a.category), life.module.empty() ? "" : "  in " + clean(life.module),
        life.count > 1 ? fmt::format("  {}{} in the run; the first of them:", style.times(), life.count) : "");
    out += "  born  " + wrap(point(s, a.born), style.width, 8, 8) + "\n";
    out += "  dies  " + wrap(point(s, a.died), style.width, 8, 8) + "\n";
    if (a.reason >= 0)
      out += "  why   " + wrap(clean(s.schedule.names[static_cast<std::size_t>(a.reason)]), style.width, 8, 8) + "\n";
  }
  if (lives.size() > limit || std::any_of(lives.begin(), lives.end(), [](const Life& l) { return l.count > 1; }))
    out += fmt::format("{} {} (--top 0 shows each)\n", style.ellipsis(),
                       lives.size() > limit ? fmt::format("{} more", lives.size() - limit) : "alike are folded");
  return out;
}

/// Bytes at the peak by module, one level of nesting below the root, largest first.
std::string by_module(const std::vector<LiveTensor>& tensors, const Style& style) {
  std::map<std::string, std::int64_t> bytes;
  const std::string root = common_root(rows_of(tensors));
  for (const LiveTensor& t : tensors) {
    // What a parameter's name tells is its module; tensors of ops carry the module themselves.
    std::string path =
        t.module.empty()
            ? t.name.substr(0, t.name.find_last_of('.') == std::string::npos ? 0 : t.name.find_last_of('.'))
            : t.module;
    if (path.starts_with(root)) path.erase(0, root.size());
    std::size_t end = 0;
    for (int level = 0; level < 3 && end != std::string::npos; ++level) end = path.find('.', end == 0 ? 0 : end + 1);
    path = path.substr(0, end);
    bytes[path.empty() ? "(outside modules)" : path] += t.requested.count;
  }
  std::vector<std::pair<std::string, std::int64_t>> order(bytes.begin(), bytes.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  Table table;
  table.head = {"SIZE", "MODULE"};
  table.right = {true, false};
  table.flexible = {1};
  for (std::size_t i = 0; i < order.size() && i < 12; ++i)
    table.rows.push_back({to_human(Bytes(order[i].second)), clean(order[i].first)});
  std::string out = table.print(style);
  if (order.size() > 12)
    out += style.paint(fmt::format("  {} {} more modules", style.ellipsis(), order.size() - 12), Paint::dim) + "\n";
  return out;
}

std::string overview(const Study& s, const Options& options, const Style& style) {
  std::vector<LiveTensor> tensors = s.estimate.live_at_peak;
  if (!options.explain.module.empty()) {
    std::erase_if(tensors, [&](const LiveTensor& t) {
      return t.module.find(options.explain.module) == std::string::npos &&
             t.name.find(options.explain.module) == std::string::npos;
    });
    if (tensors.empty())
      fail(
          ErrorKind::usage,
          fmt::format("nothing alive at the peak belongs to a module whose path contains '{}'", options.explain.module),
          "--module", "memplan explain MODEL lists the modules");
  }
  std::int64_t total = 0;
  for (const LiveTensor& t : tensors) total += t.requested.count;
  const Estimate& e = s.estimate;
  std::string place = fmt::format("step {}, {}", e.peak_step, name_of(e.peak_phase));
  if (!e.peak_op.empty()) place += ", " + clean(e.peak_op);
  if (!e.peak_module.empty()) place += " in " + clean(e.peak_module);
  std::string out =
      wrap(
          fmt::format("At the peak ({}): {} in {} tensors{}.", place, to_human(Bytes(total)),
                      grouped(static_cast<std::int64_t>(tensors.size())),
                      options.explain.module.empty() ? "" : " of modules with '" + clean(options.explain.module) + "'"),
          style.width, 0) +
      "\n\n";
  out += tensor_table(groups_of(rows_of(tensors)), static_cast<std::size_t>(options.top.value_or(20)), style);
  return out + "\n" + style.paint("By module", Paint::bold) + "\n" + by_module(tensors, style);
}

std::string code_text(const Code& c, const Style& style) {
  return wrap(
             fmt::format("{}{}{}", style.paint(std::string(c.code), Paint::bold),
                         c.rule.empty() ? ", a warning. " : fmt::format(", the rule {} of the gate. ", c.rule), c.text),
             style.width, 0) +
         "\n" + wrap(std::string(c.more), style.width, 0) + "\n";
}

nlohmann::ordered_json as_json(const Study& s, const Options& options) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Allocation& a : s.schedule.allocations) {
    const std::string name = a.label < 0 ? std::string() : s.schedule.names[static_cast<std::size_t>(a.label)];
    const std::string module = module_of(s, a);
    if (!options.explain.tensor.empty() && name.find(options.explain.tensor) == std::string::npos) continue;
    if (!options.explain.module.empty() && module.find(options.explain.module) == std::string::npos &&
        name.find(options.explain.module) == std::string::npos)
      continue;
    nlohmann::ordered_json j{{"name", clean(name)},     {"bytes", a.size.count},    {"category", name_of(a.category)},
                             {"module", clean(module)}, {"born", point(s, a.born)}, {"born_event", a.born}};
    j["dies"] = point(s, a.died);
    j["dies_event"] = a.died < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(a.died);
    j["reason"] = a.reason < 0 ? std::string() : clean(s.schedule.names[static_cast<std::size_t>(a.reason)]);
    list.push_back(std::move(j));
  }
  return {{"schema_version", report_schema_version}, {"allocations", std::move(list)}};
}

/// A word such as MP999 is meant as a code, unless a file has that name.
void refuse_unknown_code(const std::string& word) {
  const auto small = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  const bool as_code = word.size() == 5 && small(word[0]) == 'm' && small(word[1]) == 'p' &&
                       std::all_of(word.begin() + 2, word.end(), [](unsigned char c) { return std::isdigit(c); });
  if (as_code && !std::filesystem::exists(word))
    fail_input("memplan has no such code, and there is no such file", word, "the codes are in docs/cli.md");
}

}  // namespace

int run_explain(const Options& options) {
  // A code of a warning or rule, unless a file has that name.
  if (const Code* code = find_code(options.argument); code && !std::filesystem::exists(options.argument)) {
    write_out(code_text(*code, make_style(options)), options.output);
    return 0;
  }
  refuse_unknown_code(options.argument);
  if (options.explain.program) {
    write_out(runs_nodes(options.setup.runtime) ? session_program(options.argument, options.setup.ort)
                                                : reference_program(options),
              options.output);
    return 0;
  }
  const Study s = study(options);
  const Style style = make_style(options);
  if (options.explain.evidence) {
    write_out(
        options.format == Format::json ? evidence_json(s.estimate).dump(1) + "\n" : evidence_table(s.estimate, style),
        options.output);
    return 0;
  }
  if (options.format == Format::json)
    write_out(as_json(s, options).dump(1) + "\n", options.output);
  else
    write_out(options.explain.tensor.empty() ? overview(s, options, style) : lifetimes(s, options, style),
              options.output);
  return 0;
}

}  // namespace memplan::cli
