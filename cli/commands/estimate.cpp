#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/answer/answer.h"
#include "cli/commands/commands.h"
#include "cli/commands/confirm.h"
#include "cli/gate/single.h"
#include "cli/report/document.h"
#include "cli/terminal/output.h"

namespace memplan::cli {

namespace {

/// A gate, another format and an export may show anything.
Detail shown_of(const Options& options, bool gated) {
  if (gated || options.format != Format::text || !options.exports.empty()) return Detail::sums;
  return options.quiet ? Detail::none : Detail::groups;
}

Answer computed(const Options& options) {
  if (!options.confirm.run && options.confirm.with.empty()) return compute(options, run_wanted(options));
  device_of(options);  // a card that is not known is said before a large file is read
  const Job job = load_job(options);
  Answer answer = compute(job, run_wanted(options));
  answer.confirmation = confirm(job, answer);
  return answer;
}

}  // namespace

int run_estimate(const Options& options) {
  const bool gated = is_gated(options);
  const Answer answer = computed(options);
  Json document = document_of(answer, options, shown_of(options, gated));
  const int code = gated ? add_gate(document, options) : answer.exit_code;
  deliver(document, options);
  // A report that goes to a file or a program leaves people without the verdict.
  if (!options.output.empty() || options.format != Format::text) tell(fmt::format("memplan: {}\n", one_line(document)));
  return code;
}

}  // namespace memplan::cli
