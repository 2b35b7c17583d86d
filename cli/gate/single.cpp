#include "cli/gate/single.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/gate/diff.h"
#include "cli/gate/fix.h"
#include "cli/report/report.h"
#include "cli/terminal/progress.h"

namespace memplan::cli {

namespace {

bool says(const Options& options, std::string_view word) {
  return std::find(options.gate.fail_on_words.begin(), options.gate.fail_on_words.end(), word) !=
         options.gate.fail_on_words.end();
}

/// A report, or report.json#target of a gate's.
Json load_base(const std::string& word) {
  std::string path = word, target;
  if (const std::size_t hash = word.rfind('#'); hash != std::string::npos && !is_document(word))
    path = word.substr(0, hash), target = word.substr(hash + 1);
  const Json document = load_document(path, ErrorKind::baseline);
  if (kind_of(document) == diff_document)
    fail(ErrorKind::baseline, "a comparison is not a baseline", path, "memplan MODEL --format json -o FILE makes one");
  return report_in(document, target, path);
}

}  // namespace

bool is_gated(const Options& options) {
  const auto needs = [&](const std::string& flag) {
    fail(ErrorKind::usage, fmt::format("{} compares with a baseline, and none is given", flag), flag,
         "add --baseline FILE: a report that memplan MODEL --format json -o FILE made");
  };
  if (options.gate.baseline.empty()) {
    if (options.gate.max_increase) needs(options.gate.max_increase->origin);
    if (options.gate.warn_increase) needs(options.gate.warn_increase->origin);
    // In the environment the word is meant for gates that have a baseline.
    if (says(options, "regression") && options.gate.fail_on_origin.starts_with("--")) needs("--fail-on regression");
  }
  for (const auto* share : {&options.gate.max_peak, &options.gate.warn_peak})
    if (*share && !(*share)->bytes && !options.gpu)
      fail(ErrorKind::usage, fmt::format("'{}' is a share of a card, and none is given", (*share)->text),
           (*share)->origin, "add --gpu 80GB, or give the limit in bytes");
  return options.gate.max_peak || options.gate.warn_peak || !options.gate.baseline.empty() || says(options, "warning");
}

void require_comparable(const Json& base, const Json& report, const std::string& path) {
  const auto same = [&](const char* what, const std::string& was, const std::string& is) {
    if (was != is)
      fail(ErrorKind::baseline, fmt::format("the baseline was made for the {} {}, this is for {}", what, was, is), path,
           "if the change is meant, make the baseline again from the present state (memplan baseline update, or "
           "--format json -o FILE)");
  };
  same("card", text_of(base.at("device"), "key"), text_of(report.at("device"), "key"));
  same("mode", text_of(base.at("setup"), "mode"), text_of(report.at("setup"), "mode"));
}

int add_gate(Json& report, const Options& options) {
  Config config;
  Target target;
  target.name = file_name(options.argument);
  target.limit = options.gate.max_peak, target.warn = options.gate.warn_peak;
  target.max_increase = options.gate.max_increase, target.warn_increase = options.gate.warn_increase;
  Json base = nullptr;
  if (!options.gate.baseline.empty()) {
    base = load_base(options.gate.baseline);
    require_comparable(base, report, options.gate.baseline);
  }
  RuleContext context{&config, &target, {"no-fit", "unknown", "regression"}, "default", today_in_utc()};
  if (options.gate.fail_on_given)
    context.fail_on = options.gate.fail_on_words, context.fail_on_origin = options.gate.fail_on_origin;
  const Json rules = rules_of(context, report, base);
  const GateState state = worst_of(rules);
  const int code = state == GateState::failed && !options.gate.exit_zero ? 1 : 0;
  Json fail_on = Json::array();
  for (const std::string& word : context.fail_on) fail_on.push_back(word);
  report["gate"] = {{"fail_on", fail_on},
                    {"exit_code", code},
                    {"status", name_of(state)},
                    {"rules", rules},
                    {"baseline", options.gate.baseline.empty() ? Json(nullptr)
                                                               : Json{{"path", clean(options.gate.baseline)},
                                                                      {"origin", options.gate.baseline_origin},
                                                                      {"present", true}}}};
  if (options.search && (!options.quiet || !options.exports.empty())) {
    Progress progress;
    progress.show("looking for the smallest change that passes");
    report["gate"]["fix"] = state == GateState::passed ? Json(nullptr) : smallest_fix(options, context, report, base);
  }
  if (!base.is_null()) report["diff"] = diff_of(base, report);
  return code;
}

}  // namespace memplan::cli
