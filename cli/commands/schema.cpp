// The published JSON Schemas, as docs/ has them.
#include <fmt/format.h>

#include <span>
#include <utility>

#include "cli/commands/commands.h"
#include "cli/terminal/output.h"
#include "cli/terminal/style.h"

namespace memplan::embedded {
std::span<const std::pair<std::string_view, std::string_view>> schemas();
}

namespace memplan::cli {

int run_schema(const Options& options) {
  const std::string wanted = options.argument.empty() ? "report" : options.argument;
  std::string names;
  for (const auto& [name, text] : embedded::schemas()) {
    if (name == wanted) {
      write_out(text, {});
      return 0;
    }
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  fail(ErrorKind::usage, fmt::format("there is no schema called '{}'", clean(wanted)), "memplan schema",
       "schemas are " + names);
}

}  // namespace memplan::cli
