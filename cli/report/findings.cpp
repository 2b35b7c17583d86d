#include "cli/report/findings.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/report/state.h"
#include "cli/report/words.h"

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
    if (verdict == Verdict::no_fit)
      out.push_back({row_of(GateRule::no_fit).name,
                     row_of(GateRule::no_fit).code,
                     "error",
                     name,
                     fmt::format("{}, over by {}", message, human(-s.at("headroom_bytes").get<std::int64_t>())),
                     advice,
                     file,
                     1,
                     module,
                     {}});
    if (verdict == Verdict::tight)
      out.push_back({row_of(GateRule::tight).name,
                     row_of(GateRule::tight).code,
                     "warning",
                     name,
                     message + ": " + text_of(s, "why"),
                     advice,
                     file,
                     1,
                     module,
                     {}});
    if (verdict == Verdict::unknown)
      out.push_back({row_of(GateRule::unknown).name,
                     row_of(GateRule::unknown).code,
                     "error",
                     name,
                     message + ": " + text_of(s, "why"),
                     advice,
                     file,
                     1,
                     module,
                     {}});
  }
  for (const Json& u : document.at("unmodelled"))
    out.push_back(
        {row_of(GateRule::unknown_op).name,
         row_of(GateRule::unknown_op).code,
         "warning",
         name,
         fmt::format("{} x {}: {}", u.at("count").get<std::int64_t>(), text_of(u, "op"), text_of(u, "handling")),
         {},
         file,
         1,
         {},
         {}});
}

void of_check(const Json& document, std::vector<Finding>& out) {
  const std::string file = text_of(document, "config");
  for (const Json& t : document.at("targets")) {
    const std::string name = text_of(t, "name");
    if (const Json& e = t.at("error"); !e.is_null()) {
      const std::string where = text_of(e, "where");
      out.push_back({row_of(GateRule::error).name,
                     row_of(GateRule::error).code,
                     "error",
                     name,
                     (where.empty() ? "" : where + ": ") + text_of(e, "message"),
                     text_of(e, "hint"),
                     file,
                     t.at("line"),
                     {},
                     {}});
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
  std::uint64_t h = 14695981039346656037ULL;
  for (const std::string* part : {&f.code, &f.target, &f.module}) {
    for (const char c : *part) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    h = (h ^ 0xFF) * 1099511628211ULL;
  }
  return fmt::format("{:016x}", h);
}

}  // namespace memplan::cli
