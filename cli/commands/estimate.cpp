#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/commands/commands.h"
#include "cli/report/document.h"

namespace memplan::cli {

int run_estimate(const Options& options) {
  const Answer answer = compute(options);
  const Json document = document_of(answer, options);
  deliver(document, options);
  // A report that goes to a file or a program leaves people without the verdict.
  if (!options.output.empty() || options.format != Format::text) fmt::print(stderr, "memplan: {}\n", one_line(document));
  return answer.exit_code;
}

}  // namespace memplan::cli
