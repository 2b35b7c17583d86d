// The gate and its baseline.
#include "cli/gate/check.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/gate/diff.h"
#include "cli/report/report.h"
#include "cli/terminal/output.h"

namespace memplan::cli {

namespace {

bool exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

void write_baseline(const Json& document, const std::string& path) {
  std::error_code error;
  if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty())
    std::filesystem::create_directories(folder, error);
  write_out(baseline_text(document), path);
}

/// The baseline that is there with the named targets taken anew; those that the configuration no longer has go.
Json updated(const Config& config, const Json& old, Json fresh, bool all) {
  if (all || kind_of(old) != check_document) return fresh;
  Json targets = Json::array();
  for (const Target& t : config.targets) {
    const Json* found = nullptr;
    for (const Json& entry : fresh.at("targets"))
      if (text_of(entry, "name") == clean(t.name)) found = &entry;
    for (const Json& entry : old.at("targets"))
      if (!found && text_of(entry, "name") == clean(t.name)) found = &entry;
    if (found) targets.push_back(*found);
  }
  fresh["targets"] = targets;
  fresh["summary"]["targets"] = targets.size();
  return fresh;
}

std::string peaks(const Json& document, const Json& before, const Style& style) {
  Table table;
  table.head = {"TARGET", "PEAK", "CHANGE"};
  table.right = {false, true, true};
  table.flexible = {0};
  for (const Json& t : document.at("targets")) {
    if (t.at("report").is_null()) continue;
    const std::int64_t peak = t.at("report").at("summary").at("peak_bytes");
    std::string change = before.is_null() ? "" : "new";
    if (!before.is_null())
      for (const Json& old : before.at("targets"))
        if (old.at("name") == t.at("name") && !old.at("report").is_null())
          change = human_change(peak - old.at("report").at("summary").at("peak_bytes").get<std::int64_t>());
    table.rows.push_back({text_of(t, "name"), human(peak), change});
  }
  return table.print(style);
}

}  // namespace

int run_check(const Options& options) {
  const Config config = load_config(options.gate.config);
  const Json document = check_targets(config, gate_flags(options, options.arguments));
  deliver(document, options);
  if (!options.output.empty() || options.format != Format::text) tell(fmt::format("memplan: {}\n", one_line(document)));
  return document.at("summary").at("exit_code");
}

int run_baseline(const Options& options) {
  const std::string& action = options.arguments.front();
  if (action != "write" && action != "update" && action != "show")
    fail(ErrorKind::usage, fmt::format("'{}' is not something that can be done with a baseline", clean(action)),
         "memplan baseline", "use write, update or show");
  const std::vector<std::string> targets(options.arguments.begin() + 1, options.arguments.end());
  const Config config = load_config(options.gate.config);
  const BaselinePlace place = baseline_place(config, gate_flags(options));
  const Style style = make_style(options);
  if (action == "show") {
    const Json document = load_document(place.path, ErrorKind::baseline);
    if (options.format == Format::text && kind_of(document) == check_document && options.exports.empty())
      write_out(fmt::format("{}, made by memplan {}\n", clean(place.path), text_of(document.at("tool"), "version")) +
                    peaks(document, nullptr, style),
                options.output);
    else
      deliver(document, options);
    return 0;
  }
  if (action == "write" && exists(place.path) && !options.gate.force)
    fail(ErrorKind::baseline, "there is a baseline already", place.path,
         "memplan baseline update takes the present state; --force starts anew");
  Json before = nullptr;
  if (action == "update") before = load_document(place.path, ErrorKind::baseline);
  Json document = baseline_of(config, targets);
  if (!before.is_null()) document = updated(config, before, std::move(document), targets.empty());
  write_baseline(document, place.path);
  write_out(fmt::format("{} {}\n", clean(place.path), action == "write" ? "written" : "updated") +
                peaks(document, !before.is_null() && kind_of(before) == check_document ? before : Json(nullptr), style),
            {});
  return 0;
}

}  // namespace memplan::cli
