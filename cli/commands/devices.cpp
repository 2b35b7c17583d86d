#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/calibration/measured.h"
#include "cli/commands/commands.h"
#include "cli/report/report.h"
#include "cli/terminal/output.h"

namespace memplan::cli {

namespace {

nlohmann::ordered_json device_json(const Device& d) {
  return {{"key", d.key},
          {"name", d.name},
          {"compute_capability", fmt::format("{}.{}", d.sm_major, d.sm_minor)},
          {"multiprocessors", d.multiprocessors},
          {"usable_bytes", d.total.count},
          {"usable_is_bound", d.total_is_bound},
          {"context_bytes", d.context.count},
          {"context_low_bytes", (d.context - d.context_below).count},
          {"context_high_bytes", (d.context + d.context_above).count},
          {"context_source", clean(d.context_source)},
          {"source", clean(d.source)}};
}

std::string one_device(const Device& d, const std::string& explanation, const Style& style) {
  std::string out = fmt::format("{}  {}\n", style.paint(d.key, Paint::bold), d.name);
  const auto line = [&](const char* name, const std::string& value) {
    out += fmt::format("  {:<20}{}\n", name, wrap(value, style.width, 22, 22));
  };
  line("usable memory", fmt::format("{} ({} bytes){}", to_human(d.total), grouped(d.total.count),
                                    d.total_is_bound ? ", an upper bound" : ""));
  line("source", clean(d.source));
  line("CUDA context",
       fmt::format("{}{}", to_human(d.context), d.context_source.empty() ? "" : " (" + clean(d.context_source) + ")"));
  line("compute capability", fmt::format("{}.{}", d.sm_major, d.sm_minor));
  line("multiprocessors", std::to_string(d.multiprocessors));
  line("understood as", clean(explanation));
  return out;
}

}  // namespace

int run_devices(const Options& options) {
  const Style style = make_style(options);
  if (!options.argument.empty()) {
    const DeviceChoice choice = choose_measured(options.argument, "auto");
    write_out(options.format == Format::json ? device_json(choice.device).dump(2) + "\n"
                                             : one_device(choice.device, choice.explanation, style),
              options.output);
    return 0;
  }
  if (options.format == Format::json) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const Device& d : devices()) all.push_back(device_json(d));
    write_out(all.dump(2) + "\n", options.output);
    return 0;
  }
  Table table;
  table.head = {"KEY", "NAME", "USABLE", "CC", "CONTEXT"};
  table.right = {false, false, true, true, true};
  table.flexible = {1};
  for (const Device& d : devices())
    table.rows.push_back({d.key, d.name, (d.total_is_bound ? "<= " : "") + to_human(d.total),
                          fmt::format("{}.{}", d.sm_major, d.sm_minor), to_human(d.context)});
  write_out(table.print(style) +
                wrap("A class such as 80GB means the smallest card sold under that label; a size such as 79GiB is "
                     "taken as it is.",
                     style.width, 0) +
                "\n",
            options.output);
  return 0;
}

}  // namespace memplan::cli
