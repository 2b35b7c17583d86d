#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/report/document.h"

namespace memplan::cli {

int run_report(const Options& options) {
  deliver(load_document(options.argument, ErrorKind::input), options);
  return 0;
}

}  // namespace memplan::cli
