// memplan.toml as it is understood, with the origin of every value.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/gate/check.h"
#include "cli/report/report.h"
#include "cli/terminal/output.h"
#include "estimators/base/glob.h"

namespace memplan::cli {

namespace {

struct Value {
  std::string name, value, origin;
};

std::vector<Value> gate_values(const Config& config, const Options& options) {
  const GateFlags flags = gate_flags(options);
  const FailOn fails = fail_on(config, flags);
  const BaselinePlace place = baseline_place(config, flags);
  return {{"fail_on", fmt::format("{}", fmt::join(fails.words, ", ")), fails.origin},
          {"baseline", place.path, place.origin},
          {"ratchet", config.ratchet ? "true" : "false", config.ratchet ? config.shown : "default"}};
}

std::vector<Value> target_values(const Config& config, const Target& t, bool effective) {
  const auto at = [&](std::int64_t line) { return fmt::format("{}:{}", config.shown, line); };
  std::vector<Value> values{{"model", t.model, at(t.model_line)}};
  for (const auto& [name, setting] : t.setup) {
    std::string value = fmt::format("{}", fmt::join(setting.values, ", "));
    if (find_flag(name)->value.empty()) value = setting.values.empty() ? "false" : "true";
    values.push_back({name, value, at(setting.line) + (setting.from_defaults ? " [defaults]" : "")});
  }
  const auto rule = [&](const char* name, const std::optional<Threshold>& threshold) {
    if (threshold)
      values.push_back({name, threshold->text, at(threshold->line)});
    else if (effective)
      values.push_back({name, "off", "default"});
  };
  rule("limit", t.limit), rule("warn", t.warn), rule("max_increase", t.max_increase),
      rule("warn_increase", t.warn_increase);
  if (!t.baseline.empty()) values.push_back({"baseline", t.baseline, at(t.line)});
  if (!effective) return values;
  // What nobody set, as the command line would take it.
  options_of(config, t);
  for (const Flag& f : flags()) {
    if (!is_setup_flag(f) || t.setup.contains(std::string(f.name))) continue;
    std::string_view text = f.help;
    const std::size_t open = text.find("(default ");
    std::string value = f.value.empty() ? "false" : "not set";
    if (open != std::string_view::npos) value = std::string(text.substr(open + 9, text.find(')', open) - open - 9));
    values.push_back({std::string(f.name), value, "default"});
  }
  return values;
}

}  // namespace

int run_config(const Options& options) {
  if (options.arguments.front() != "show")
    fail(ErrorKind::usage,
         fmt::format("'{}' is not something that can be done with a configuration", clean(options.arguments.front())),
         "memplan config", "use show");
  const Config config = load_config(options.gate.config);
  const auto wanted = [&](const Target& t) {
    return options.arguments.size() == 1 || std::any_of(options.arguments.begin() + 1, options.arguments.end(),
                                                        [&](const std::string& w) { return matches_glob(t.name, w); });
  };
  std::vector<std::pair<std::string, std::vector<Value>>> sections{{"gate", gate_values(config, options)}};
  for (const Target& t : config.targets)
    if (wanted(t)) sections.emplace_back("target " + t.name, target_values(config, t, options.gate.effective));
  for (const Ignore& i : config.ignores)
    sections.emplace_back(std::string("ignore ") + row_of(i.rule).name,
                          std::vector<Value>{{"target", i.target, fmt::format("{}:{}", config.shown, i.line)},
                                             {"reason", i.reason, ""},
                                             {"expires", i.expires, ""}});
  if (options.format == Format::json) {
    Json j{{"schema_version", report_schema_version},
           {"kind", "config"},
           {"config", config.shown},
           {"sections", Json::array()}};
    for (const auto& [name, values] : sections) {
      Json list = Json::array();
      for (const Value& v : values)
        list.push_back({{"name", v.name}, {"value", clean(v.value)}, {"origin", clean(v.origin)}});
      j["sections"].push_back({{"name", clean(name)}, {"values", list}});
    }
    write_out(j.dump(2) + "\n", options.output);
    return 0;
  }
  const Style style = make_style(options);
  std::string out = config.shown + "\n";
  for (const auto& [name, values] : sections) {
    out += "\n" + style.paint(clean(name), Paint::bold) + "\n";
    Table table;
    table.right = {false, false, false};
    table.flexible = {1};
    for (const Value& v : values) table.rows.push_back({v.name, clean(v.value), clean(v.origin)});
    out += table.print(style);
  }
  write_out(out, options.output);
  return 0;
}

}  // namespace memplan::cli
