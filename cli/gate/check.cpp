#include "cli/gate/check.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "cli/flags/spelling.h"
#include "cli/gate/diff.h"
#include "cli/gate/fix.h"
#include "cli/gate/rules.h"
#include "cli/gate/single.h"
#include "cli/report/report.h"
#include "cli/terminal/progress.h"
#include "estimators/base/glob.h"

namespace memplan::cli {

namespace {

Json head_of() {
  Json j;
  j["schema_version"] = report_schema_version;
  j["kind"] = "check";
  j["tool"] = {{"name", "memplan"}, {"version", MEMPLAN_VERSION}};
  return j;
}

std::vector<const Target*> chosen(const Config& config, const std::vector<std::string>& wanted) {
  std::vector<const Target*> out;
  for (const std::string& w : wanted)
    if (std::none_of(config.targets.begin(), config.targets.end(),
                     [&](const Target& t) { return matches_glob(t.name, w); })) {
      std::string names;
      for (const Target& t : config.targets) names += (names.empty() ? "" : ", ") + clean(t.name);
      fail(ErrorKind::usage, fmt::format("no target is called '{}'", clean(w)), config.shown, "targets are " + names);
    }
  for (const Target& t : config.targets)
    if (wanted.empty() ||
        std::any_of(wanted.begin(), wanted.end(), [&](const std::string& w) { return matches_glob(t.name, w); }))
      out.push_back(&t);
  return out;
}

/// The report names the model as the configuration does, so that it is the same wherever the check is started.
Json report_of(const Config& config, const Target& target, bool search, std::optional<Bytes> limit) {
  Options options = options_of(config, target);
  options.search = search;
  options.gate.limit = limit;
  options.gate.exit_zero = true;
  const auto answer = catching([&] { return compute(options, run_wanted(options)); });
  if (!answer) {  // what is wrong with a flag is wrong with the line that sets it
    Error error = spelled_for_caller(answer.error());
    for (const auto& [name, setting] : target.setup)
      if (error.where == "--" + name) error.where = fmt::format("{}:{}", config.shown, setting.line);
    throw Failure(error);
  }
  Json report = document_of(*answer, options);
  report["input"]["path"] = clean(target.model);
  report["command"]["model"] = clean(target.model);
  report["gate"]["fail_on"] = Json::array();
  return report;
}

/// The baseline, read once; an error is kept for the targets that need it.
struct Baseline {
  std::string path, origin;
  bool named = false, present = false;
  Json document;
  std::optional<Error> error;

  explicit Baseline(const BaselinePlace& place) : path(place.path), origin(place.origin), named(place.named) {
    struct stat info {};
    present = ::stat(path.c_str(), &info) == 0;
    if (!present) {
      error = Error{ErrorKind::baseline, "there is no baseline", path,
                    "memplan baseline write makes it from the present state"};
      return;
    }
    const auto loaded = catching([&] { return load_document(path, ErrorKind::baseline); });
    if (loaded)
      document = *loaded;
    else
      error = loaded.error();
  }

  /// The report of a target, or null when the baseline does not know it.
  Json report_of(const Target& target) const {
    if (kind_of(document) == report_document) {
      const std::string model = text_of(document.at("input"), "path");
      const auto file = [](const std::string& p) { return file_name(p); };
      return file(model) == file(target.model) ? document : Json(nullptr);
    }
    if (kind_of(document) == diff_document)
      fail(ErrorKind::baseline, "a comparison is not a baseline", path, "memplan baseline write makes one");
    for (const Json& t : document.at("targets"))
      if (text_of(t, "name") == clean(target.name)) return t.at("report");
    return nullptr;
  }
};

/// Targets of the baseline that the configuration does not have: a renamed target starts anew, and its old figure
/// guards nothing.
Json orphans(const Baseline& baseline, const Config& config) {
  Json names = Json::array();
  if (baseline.error || !baseline.document.contains("targets")) return names;
  for (const Json& t : baseline.document.at("targets"))
    if (const std::string name = text_of(t, "name"); std::none_of(
            config.targets.begin(), config.targets.end(), [&](const Target& c) { return clean(c.name) == name; }))
      names.push_back(name);
  return names;
}

bool needs_baseline(const Config& config, const Target& t) {
  return t.max_increase || t.warn_increase || config.ratchet || !t.baseline.empty();
}

Json check_one(const Config& config, const Target& target, const Baseline& baseline, RuleContext context) {
  Json report = report_of(config, target, false, {});
  Json base = nullptr;
  if (baseline.error && (needs_baseline(config, target) || baseline.named || baseline.present))
    throw Failure(*baseline.error);
  if (!baseline.error) {
    base = baseline.report_of(target);
    if (!base.is_null()) require_comparable(base, report, baseline.path);
  }
  Json rules = rules_of(context, report, base);
  const GateState state = worst_of(rules);
  Json fix = nullptr;
  if (state != GateState::passed) {
    report = report_of(config, target, true, wanted_peak(context, report, base));
    fix = smallest_fix(options_of(config, target), context, report, base);
  }
  Json j;
  j["status"] = name_of(state);
  j["rules"] = std::move(rules);
  j["fix"] = std::move(fix);
  j["diff"] = base.is_null() ? Json(nullptr) : diff_of(base, report);
  j["error"] = nullptr;
  j["report"] = std::move(report);
  return j;
}

}  // namespace

GateFlags gate_flags(const Options& options, std::vector<std::string> targets) {
  GateFlags flags;
  if (options.gate.fail_on_given)
    flags.fail_on = options.gate.fail_on_words, flags.fail_on_origin = options.gate.fail_on_origin;
  if (!options.gate.baseline.empty())
    flags.baseline = options.gate.baseline, flags.baseline_origin = options.gate.baseline_origin;
  flags.targets = std::move(targets);
  flags.exit_zero = options.gate.exit_zero;
  return flags;
}

BaselinePlace baseline_place(const Config& config, const GateFlags& flags) {
  if (flags.baseline) return {*flags.baseline, flags.baseline_origin, true};
  return {confined(config, config.baseline, config.baseline_line, "baseline"),
          config.baseline_line ? fmt::format("{}:{}", config.shown, config.baseline_line) : std::string("default"),
          config.baseline_line > 0};
}

FailOn fail_on(const Config& config, const GateFlags& flags) {
  if (flags.fail_on) return {*flags.fail_on, flags.fail_on_origin};
  if (config.fail_on) return {*config.fail_on, fmt::format("{}:{}", config.shown, config.fail_on_line)};
  return {{"no-fit", "unknown", "regression"}, "default"};
}

namespace {

/// The entry of a target that could not be checked.
Json failed_entry(const Error& e) {
  return {{"status", name_of(GateState::error)},
          {"rules", Json::array()},
          {"fix", nullptr},
          {"diff", nullptr},
          {"error",
           {{"code", exit_code_of(e.kind)},
            {"kind", kind_name(e.kind)},
            {"message", clean(e.what)},
            {"where", clean(e.where)},
            {"hint", clean(e.hint)}}},
          {"report", nullptr}};
}

Json summary_of(const Json& entries, bool exit_zero) {
  std::int64_t failed = 0, warned = 0, ignored = 0, errors = 0;
  int error_code = 0;
  for (const Json& entry : entries) {
    const GateState state = state_of(entry);
    failed += state == GateState::failed, warned += state == GateState::warned, errors += state == GateState::error;
    for (const Json& r : entry.at("rules")) ignored += state_of(r) == GateState::ignored;
    if (const Json& e = entry.at("error"); !e.is_null()) error_code = std::max(error_code, e.at("code").get<int>());
  }
  return {{"status", name_of(errors   ? GateState::error
                             : failed ? GateState::failed
                             : warned ? GateState::warned
                                      : GateState::passed)},
          {"exit_code", error_code             ? error_code
                        : failed && !exit_zero ? 1
                                               : 0},
          {"targets", entries.size()},
          {"failed", failed},
          {"warned", warned},
          {"ignored", ignored},
          {"errors", errors}};
}

}  // namespace

Json check_targets(const Config& config, const GateFlags& flags) {
  const std::vector<const Target*> targets = chosen(config, flags.targets);
  const BaselinePlace place = baseline_place(config, flags);
  const FailOn fails = fail_on(config, flags);
  const Baseline common(place);
  Json j = head_of();
  j["config"] = config.shown;
  j["baseline"] = {{"path", clean(place.path)}, {"origin", place.origin}, {"present", common.present}};
  j["baseline"]["orphans"] = orphans(common, config);
  j["fail_on"] = fails.words;
  Json entries = Json::array();
  Progress progress;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Target& t = *targets[i];
    progress.show(fmt::format("checking {} ({} of {})", clean(t.name), i + 1, targets.size()));
    const auto checked = catching([&] {
      const RuleContext context{&config, &t, fails.words, fails.origin, today_in_utc()};
      if (t.baseline.empty()) return check_one(config, t, common, context);
      return check_one(config, t,
                       Baseline({confined(config, t.baseline, t.line, "baseline"),
                                 fmt::format("{}:{}", config.shown, t.line), true}),
                       context);
    });
    Json entry{{"name", clean(t.name)}, {"model", clean(t.model)}, {"line", t.line}, {"message", clean(t.message)}};
    entry.update(checked ? *checked : failed_entry(checked.error()));
    entries.push_back(std::move(entry));
  }
  j["summary"] = summary_of(entries, flags.exit_zero);
  j["targets"] = std::move(entries);
  return j;
}

Json baseline_of(const Config& config, const std::vector<std::string>& wanted) {
  Json j = head_of();
  j["config"] = config.shown;
  Json list = Json::array();
  const std::vector<const Target*> targets = chosen(config, wanted);
  Progress progress;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Target& t = *targets[i];
    progress.show(fmt::format("estimating {} ({} of {})", clean(t.name), i + 1, targets.size()));
    list.push_back({{"name", clean(t.name)},
                    {"model", clean(t.model)},
                    {"line", t.line},
                    {"message", clean(t.message)},
                    {"status", name_of(GateState::passed)},
                    {"rules", Json::array()},
                    {"fix", nullptr},
                    {"diff", nullptr},
                    {"error", nullptr},
                    {"report", report_of(config, t, false, {})}});
  }
  j["summary"] = {{"status", name_of(GateState::passed)},
                  {"exit_code", 0},
                  {"targets", targets.size()},
                  {"failed", 0},
                  {"warned", 0},
                  {"ignored", 0},
                  {"errors", 0}};
  j["targets"] = std::move(list);
  return j;
}

std::string baseline_text(const Json& document) {
  // Objects and lists of lists spread over lines; a row (an object of plain values, or of short lists) takes one.
  const std::function<std::string(const Json&, std::size_t)> print = [&](const Json& value,
                                                                         std::size_t indent) -> std::string {
    const auto flat = [](const Json& v) {
      if (!v.is_structured()) return true;
      return std::all_of(v.begin(), v.end(), [](const Json& inner) {
        return !inner.is_object() && (!inner.is_array() || inner.empty() || !inner.front().is_structured());
      });
    };
    if (!value.is_structured() || value.empty() || (indent > 2 && flat(value))) return value.dump();
    const std::string pad(indent + 1, ' ');
    std::string out(1, value.is_array() ? '[' : '{');
    bool first = true;
    for (const auto& [key, member] : value.items()) {
      out += (first ? "\n" : ",\n") + pad;
      if (value.is_object()) out += Json(key).dump() + ": ";
      out += print(member, indent + 1);
      first = false;
    }
    return out + "\n" + std::string(indent, ' ') + (value.is_array() ? ']' : '}');
  };
  return print(document, 0) + "\n";
}

}  // namespace memplan::cli
