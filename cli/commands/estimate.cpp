#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/answer/answer.h"
#include "cli/commands/commands.h"
#include "cli/gate/single.h"
#include "cli/report/document.h"
#include "cli/terminal/output.h"

namespace memplan::cli {

namespace {

/// A gate, another format and an export may show anything.
Detail shown_of(const Options& options, bool gated) {
  if (gated || options.format != Format::text || !options.exports.empty()) return Detail::sums;
  return options.quiet ? Detail::none : Detail::tensors;
}

}  // namespace

int run_estimate(const Options& options) {
  const bool gated = is_gated(options);
  const Answer answer = compute(options, timeline_wanted(options));
  Json document = document_of(answer, options, shown_of(options, gated));
  const int code = gated ? add_gate(document, options) : answer.exit_code;
  deliver(document, options);
  // A report that goes to a file or a program leaves people without the verdict.
  if (!options.output.empty() || options.format != Format::text) tell(fmt::format("memplan: {}\n", one_line(document)));
  return code;
}

}  // namespace memplan::cli
