// memplan attach RECORDING MODEL: the recording travels in the file of its module.
#include "estimators/frontends/recording/attach.h"

#include <fmt/format.h>

#include "cli/commands/commands.h"
#include "cli/terminal/output.h"
#include "estimators/base/error.h"

namespace memplan::cli {

int run_attach(const Options& options) {
  if (options.arguments.size() != 2)
    fail(ErrorKind::usage, "attach takes a recording and the file that it goes into", {},
         "memplan attach model.memplan model.onnx");
  recording::attach(options.arguments[0], options.arguments[1]);
  write_out(fmt::format("{} holds the recording now: memplan {}\n", options.arguments[1], options.arguments[1]), {});
  return 0;
}

}  // namespace memplan::cli
