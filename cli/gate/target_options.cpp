// A target's settings as the options of an estimate.
#include <fmt/format.h>

#include "cli/flags/spelling.h"
#include "cli/gate/config.h"
#include "cli/terminal/style.h"

namespace memplan::cli {

Options options_of(const Config& config, const Target& target) {
  Parsed parsed;
  parsed.command = find_command("estimate");
  parsed.positionals = {target.path};
  for (const auto& [name, setting] : target.setup)
    if (!setting.values.empty()) parsed.values[name] = setting.values;
  // A target gives the same figure on every machine, whatever is installed there.
  for (const char* name : {"cudnn", "calibration"}) parsed.values.try_emplace(name, std::vector<std::string>{"none"});
  const auto made = catching([&] { return make_options(parsed); });
  if (made) {
    Options options = *made;
    if (!parsed.has("onnxruntime")) options.onnxruntime = "none";
    return options;
  }
  Error error = spelled_for_caller(made.error());
  std::int64_t line = target.line;
  for (const auto& [name, setting] : target.setup)
    if (error.where.starts_with("--" + name) || error.what.find("--" + name) != std::string::npos) line = setting.line;
  error.where = fmt::format("{}:{} (target '{}')", config.shown, line, clean(target.name));
  throw Failure(error);
}

}  // namespace memplan::cli
