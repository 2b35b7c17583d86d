#include "cli/report/findings.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/report/state.h"
#include "cli/report/words.h"
#include "estimators/base/hash.h"

namespace memplan::cli {

namespace {

std::string advice_of(const Json& fix, const std::string& message) {
  std::string advice;
  if (!fix.is_null())
    advice =
        fmt::format("smallest change that passes: {} (peak {}{})", text_of(fix, "flags"), human(fix.at("peak_bytes")),
                    fix.contains("saves_bytes") ? ", saves " + human(fix.at("saves_bytes")) : "");
  if (!message.empty()) advice += (advice.empty() ? "" : "; ") + message;
  return advice;
}

const char* level_of(GateState state) {
  return state == GateState::failed ? "error" : state == GateState::warned ? "warning" : "note";
}

/// What a rule of the gate finds, without a module.
Finding finding_of(GateRule rule, std::string target, std::string message, std::string advice, std::string file) {
  const GateRuleRow& row = row_of(rule);
  return {row.name, row.code, row.level, std::move(target), std::move(message), std::move(advice), std::move(file),
          1,        {},       {}};
}

void of_report(const Json& document, std::vector<Finding>& out) {
  const std::string file = text_of(document.at("input"), "path"), module = text_of(document.at("peak"), "module");
  const Json& s = document.at("summary");
  const std::string name = file_name(file);
  const Json& gate = document.at("gate");
  if (const auto rules = gate.find("rules"); rules != gate.end()) {  // --max-peak, --baseline: its own judgement counts
    const std::string advice = advice_of(gate.value("fix", Json(nullptr)), {});
    for (const Json& r : *rules)
      if (complains(state_of(r)))
        out.push_back({text_of(r, "rule"),
                       text_of(r, "code"),
                       level_of(state_of(r)),
                       name,
                       text_of(r, "message"),
                       advice,
                       file,
                       1,
                       module,
                       {}});
    return;
  }
  if (const auto verdict = verdict_of(s)) {
    const std::string message = fmt::format("peak {} of {}", human(s.at("peak_bytes")), human(s.at("limit_bytes")));
    Json fix = nullptr;
    for (const Json& c : document.at("alternatives").at("changes"))
      if (fix.is_null() && verdict_of(c) == Verdict::fits) fix = c;
    const std::string advice = advice_of(fix, {});
    const auto found = [&](GateRule rule, const std::string& text) {
      Finding f = finding_of(rule, name, text, advice, file);
      f.module = module;
      out.push_back(std::move(f));
    };
    if (verdict == Verdict::no_fit)
      found(GateRule::no_fit,
            fmt::format("{}, over by {}", message, human(-s.at("headroom_bytes").get<std::int64_t>())));
    if (verdict == Verdict::tight) found(GateRule::tight, message + ": " + text_of(s, "why"));
    if (verdict == Verdict::unknown) found(GateRule::unknown, message + ": " + text_of(s, "why"));
  }
  for (const Json& u : document.at("unmodelled")) {
    Finding f = finding_of(
        GateRule::unknown_op, name,
        fmt::format("{} x {}: {}", u.at("count").get<std::int64_t>(), text_of(u, "op"), text_of(u, "handling")), {},
        file);
    f.level = "warning";  // it is bounded, and the verdict counts the bound
    out.push_back(std::move(f));
  }
}

void of_check(const Json& document, std::vector<Finding>& out) {
  const std::string file = text_of(document, "config");
  for (const Json& t : document.at("targets")) {
    const std::string name = text_of(t, "name");
    if (const Json& e = t.at("error"); !e.is_null()) {
      const std::string where = text_of(e, "where");
      Finding f = finding_of(GateRule::error, name, (where.empty() ? "" : where + ": ") + text_of(e, "message"),
                             text_of(e, "hint"), file);
      f.line = t.at("line");
      out.push_back(std::move(f));
      continue;
    }
    const std::string module = text_of(t.at("report").at("peak"), "module"),
                      advice = advice_of(t.at("fix"), text_of(t, "message"));
    for (const Json& r : t.at("rules")) {
      const GateState state = state_of(r);
      if (state == GateState::passed || state == GateState::fresh) continue;
      const bool ignored = state == GateState::ignored;
      out.push_back({text_of(r, "rule"), text_of(r, "code"), level_of(state), name, text_of(r, "message"),
                     ignored ? std::string() : advice, file, r.at("line"), module,
                     ignored ? text_of(r, "reason") : std::string()});
    }
  }
}

}  // namespace

std::vector<Finding> findings_of(const Json& document) {
  std::vector<Finding> out;
  if (document.value("kind", "report") == "check")
    of_check(document, out);
  else
    of_report(document, out);
  return out;
}

std::string fingerprint_of(const Finding& f) {
  StableHash hash;
  for (const std::string* part : {&f.code, &f.target, &f.module}) hash.add(*part);
  return fmt::format("{:016x}", hash.value());
}

}  // namespace memplan::cli
