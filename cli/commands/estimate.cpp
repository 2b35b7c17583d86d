#include <fmt/format.h>

#include "cli/answer.h"
#include "cli/commands/commands.h"
#include "cli/output.h"
#include "cli/report/report.h"

namespace memplan::cli {

int run_estimate(const Options& options) {
  const Answer answer = compute(options);
  write_out(options.format == Format::json ? json_report(answer, options) : text_report(answer, options, make_style(options)), options.output);
  // A report that goes to a file or a program leaves people without the verdict.
  if (!options.output.empty() || options.format == Format::json) fmt::print(stderr, "memplan: {}\n", one_line(answer));
  return answer.exit_code;
}

}  // namespace memplan::cli
