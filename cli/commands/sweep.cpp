// A grid of setups: every list among the flags is an axis, every combination one estimate.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/answer/answer.h"
#include "cli/commands/commands.h"
#include "cli/flags/lists.h"
#include "cli/report/suggestion.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/style.h"
#include "planner/checkpointing/plan.h"

namespace memplan::cli {

namespace {

struct SweepAxis {
  std::string flag;
  std::vector<std::string> values;
};

struct Row {
  std::vector<std::string> values;
  std::optional<Estimate> estimate;
  std::optional<Judgement> judgement;
  std::string error;
};

struct Grid {
  std::vector<SweepAxis> axes;
  std::vector<Row> rows;
  bool device_given = false;
};

constexpr std::size_t most_points = 20'000;

/// Values with commas of their own are no lists.
bool takes_list(const Flag& flag) {
  constexpr std::string_view single[] = {"dim",      "alloc-conf",      "freeze", "blocks",  "lora",  "qlora",
                                         "kv-cache", "checkpoint-save", "margin", "reserve", "steps", "momentum",
                                         "env"};
  const bool group =
      flag.group == "Device" || flag.group == "Shapes" || flag.group == "Training" || flag.group == "Parallel";
  return group && !flag.value.empty() && std::find(std::begin(single), std::end(single), flag.name) == std::end(single);
}

std::vector<SweepAxis> axes_of(const Parsed& parsed) {
  std::vector<SweepAxis> axes;
  std::size_t points = 1;
  for (const Flag& flag : flags()) {
    const auto it = parsed.values.find(flag.name);
    if (it == parsed.values.end() || !takes_list(flag)) continue;
    SweepAxis axis{std::string(flag.name), {}};
    for (const std::string& text : it->second)
      for (std::string& value : expand_list(text, "--" + axis.flag)) axis.values.push_back(std::move(value));
    if (points > most_points / axis.values.size())
      fail(ErrorKind::usage, fmt::format("the lists make more than {} combinations", most_points), "--" + axis.flag,
           "give shorter lists");
    points *= axis.values.size();
    axes.push_back(std::move(axis));
  }
  return axes;
}

/// "none" leaves the flag out, where it is no value of its own.
bool leaves_out(const std::string& flag, const std::string& value) { return value == "none" && flag != "optimizer"; }

Parsed at(const Parsed& parsed, const std::vector<SweepAxis>& axes, const std::vector<std::string>& values) {
  Parsed one = parsed;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (leaves_out(axes[i].flag, values[i]))
      one.values.erase(axes[i].flag);
    else
      one.values[axes[i].flag] = {values[i]};
  }
  return one;
}

void estimate_row(const Model& model, const Options& options, Row& row) {
  const DeviceChoice choice = device_of(options);
  const Result<Estimate> e = catching(
      [&] { return unwrap(answer_for(model, unwrap(tape_of(model, options.setup)), options.setup, choice.device)); });
  if (!e) {
    row.error = e.error().what;
    return;
  }
  row.estimate = *e;
  row.judgement = judge(*e, choice.device, margin_of(options.setup, choice.device));
}

Grid run_grid(const Parsed& parsed, const Options& first) {
  Grid grid;
  grid.axes = axes_of(parsed);
  grid.device_given = first.gpu.has_value();
  const Model model = model_of(first);
  std::size_t total = 1;
  for (const SweepAxis& a : grid.axes) total *= a.values.size();
  Progress progress;
  std::vector<std::size_t> index(grid.axes.size(), 0);
  for (std::size_t n = 0; n < total; ++n) {
    Row row;
    for (std::size_t i = 0; i < index.size(); ++i) row.values.push_back(grid.axes[i].values[index[i]]);
    progress.show(fmt::format("{} of {}  {}", n, total, fmt::join(row.values, " ")));
    const Result<Options> options = catching([&] {
      Options made = make_options(at(parsed, grid.axes, row.values));
      take_over(made, model);
      return made;
    });
    // A word that no setup can have is a mistake; two values that do not go together are a row of the table.
    if (!options)
      row.error = options.error().what;
    else
      estimate_row(model, *options, row);
    grid.rows.push_back(std::move(row));
    for (std::size_t i = index.size(); i-- > 0;) {
      index[i] = (index[i] + 1) % grid.axes[i].values.size();
      if (index[i] != 0) break;
    }
  }
  return grid;
}

std::string text_of(const Grid& grid, const Style& style) {
  Table table;
  for (const SweepAxis& a : grid.axes) {
    std::string head = a.flag;
    for (char& c : head) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    table.head.push_back(head);
    table.right.push_back(std::all_of(a.values.begin(), a.values.end(),
                                      [](const std::string& v) { return !v.empty() && v[0] >= '0' && v[0] <= '9'; }));
  }
  for (const char* head : {"REQUESTED", "RESERVED", "PROCESS"}) table.head.push_back(head), table.right.push_back(true);
  if (grid.device_given)
    for (const char* head : {"FREE", "VERDICT"}) table.head.push_back(head), table.right.push_back(head[0] == 'F');
  for (const Row& row : grid.rows) {
    std::vector<std::string> cells;
    for (const std::string& v : row.values) cells.push_back(clean(v));
    if (row.estimate) {
      for (Bytes b : {row.estimate->peak.requested, row.estimate->peak.reserved, row.estimate->peak.process})
        cells.push_back(to_human(b));
      if (grid.device_given)
        cells.insert(cells.end(), {to_human(row.judgement->headroom), name_of(row.judgement->verdict)});
    } else {
      cells.insert(cells.end(), {"-", "-", "-"});
      if (grid.device_given)
        cells.insert(cells.end(), {"", clean(row.error)});
      else
        cells.back() = clean(row.error);
    }
    table.rows.push_back(std::move(cells));
  }
  if (grid.device_given) table.flexible = {table.head.size() - 1};
  return table.print(style);
}

std::string csv_cell(const std::string& text) {
  // A leading sign would make a formula of it in a spreadsheet.
  std::string safe = clean(text);
  if (!safe.empty() && std::string_view("=+-@").find(safe[0]) != std::string_view::npos) safe = "'" + safe;
  if (safe.find_first_of(",\"\n") == std::string::npos) return safe;
  std::string quoted = "\"";
  for (char c : safe) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_of(const Grid& grid) {
  std::string out;
  for (const SweepAxis& a : grid.axes) out += a.flag + ",";
  out += "requested_bytes,allocated_bytes,reserved_bytes,process_bytes,verdict,headroom_bytes,error\n";
  for (const Row& row : grid.rows) {
    for (const std::string& v : row.values) out += csv_cell(v) + ",";
    if (row.estimate) {
      const Counters& c = row.estimate->peak;
      out += fmt::format("{},{},{},{},", c.requested.count, c.allocated.count, c.reserved.count, c.process.count);
      out += grid.device_given ? fmt::format("{},{},\n", name_of(row.judgement->verdict), row.judgement->headroom.count)
                               : std::string(",,\n");
    } else {
      out += ",,,,,," + csv_cell(row.error) + "\n";
    }
  }
  return out;
}

std::string json_of(const Grid& grid, const Options& options) {
  nlohmann::ordered_json j;
  j["schema_version"] = planner_schema_version;
  j["tool"] = {{"name", "memplan"}, {"version", MEMPLAN_VERSION}};
  j["command"] = "sweep";
  j["input"] = {{"path", clean(options.argument)}};
  j["axes"] = nlohmann::ordered_json::array();
  for (const SweepAxis& a : grid.axes) {
    nlohmann::ordered_json values = nlohmann::ordered_json::array();
    for (const std::string& v : a.values) values.push_back(clean(v));
    j["axes"].push_back({{"flag", a.flag}, {"values", values}});
  }
  j["rows"] = nlohmann::ordered_json::array();
  for (const Row& row : grid.rows) {
    nlohmann::ordered_json values = nlohmann::ordered_json::array(), r;
    for (const std::string& v : row.values) values.push_back(clean(v));
    r["values"] = values;
    if (row.estimate) {
      const Counters& c = row.estimate->peak;
      r["peak"] = {{"requested_bytes", c.requested.count},
                   {"allocated_bytes", c.allocated.count},
                   {"reserved_bytes", c.reserved.count},
                   {"process_bytes", c.process.count}};
      if (grid.device_given)
        r["verdict"] = name_of(row.judgement->verdict), r["headroom_bytes"] = row.judgement->headroom.count;
    } else {
      r["error"] = clean(row.error);
    }
    j["rows"].push_back(r);
  }
  return j.dump(2) + "\n";
}

}  // namespace

Options sweep_options(const Parsed& parsed) {
  const std::vector<SweepAxis> axes = axes_of(parsed);
  std::vector<std::string> first;
  for (const SweepAxis& a : axes) first.push_back(a.values.front());
  // Every value for itself, so that a misspelt one ends the run before it has begun.
  for (std::size_t i = 0; i < axes.size(); ++i)
    for (const std::string& value : axes[i].values) {
      if (leaves_out(axes[i].flag, value)) continue;
      Parsed alone = parsed;
      for (const SweepAxis& a : axes) alone.values.erase(a.flag);
      alone.values[axes[i].flag] = {value};
      if (axes[i].flag == "gpu")
        choose_device(value);
      else if (axes[i].flag == "batch" || axes[i].flag == "seq" || axes[i].flag == "optimizer" ||
               axes[i].flag == "precision" || axes[i].flag == "amp" || axes[i].flag == "attention")
        make_options(alone);
    }
  return make_options(at(parsed, axes, first));
}

int run_sweep(const Parsed& parsed, const Options& options) {
  const Grid grid = run_grid(parsed, options);
  const std::string text = options.format == Format::json ? json_of(grid, options)
                           : options.format_name == "csv" ? csv_of(grid)
                                                          : text_of(grid, make_style(options));
  write_out(text, options.output);
  return 0;
}

}  // namespace memplan::cli
