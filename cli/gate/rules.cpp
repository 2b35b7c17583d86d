#include "cli/gate/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "cli/report/words.h"
#include "estimators/base/glob.h"

namespace memplan::cli {

namespace {

class Rules {
 public:
  Rules(const RuleContext& context, const Json& report, const Json& base) : c_(context), report_(report), base_(base) {
    const Json& s = report.at("summary");
    peak_ = s.at("peak_bytes"), high_ = s.at("high_bytes");
    verdict_ = verdict_of(s);
    if (verdict_) usable_ = s.at("limit_bytes");
  }

  Json all() {
    verdict();
    unknown_ops();
    const Target& t = *c_.target;
    if (t.limit) ceiling(GateRule::over_limit, *t.limit, "the limit", !never());
    if (t.warn) ceiling(GateRule::near_limit, *t.warn, "the warning level", wants("warning"));
    if (t.max_increase) growth(GateRule::regression, *t.max_increase, "max_increase", wants("regression"));
    if (t.warn_increase) growth(GateRule::increase, *t.warn_increase, "warn_increase", wants("warning"));
    if (c_.config->ratchet) ratchet();
    return std::move(rules_);
  }

 private:
  bool never() const { return wants("never"); }
  bool wants(std::string_view word) const {
    return std::find(c_.fail_on.begin(), c_.fail_on.end(), word) != c_.fail_on.end();
  }

  /// `bad`: the condition of the rule is met. A finding that is ignored neither fails nor warns, until the day it
  /// expires.
  void add(GateRule rule, bool bad, bool fails, std::int64_t value, std::optional<std::int64_t> threshold,
           const std::string& text, const std::string& origin, std::int64_t line, std::string message) {
    Json r{{"rule", row_of(rule).name},
           {"code", row_of(rule).code},
           {"status", name_of(!bad                ? GateState::passed
                              : fails && !never() ? GateState::failed
                                                  : GateState::warned)},
           {"value_bytes", value},
           {"threshold_bytes", threshold ? Json(*threshold) : Json(nullptr)},
           {"threshold", clean(text)},
           {"origin", origin},
           {"line", line},
           {"message", clean(message)}};
    if (bad)
      for (const Ignore& i : c_.config->ignores) {
        if (i.rule != rule || !matches_glob(c_.target->name, i.target)) continue;
        if (i.expires < c_.today) {
          r["message"] = fmt::format("{}; it was ignored until {} ({}:{})", r["message"].get<std::string>(), i.expires,
                                     c_.config->shown, i.line);
          continue;
        }
        r["status"] = name_of(GateState::ignored);
        r["reason"] = clean(i.reason);
        r["expires"] = i.expires;
        break;
      }
    rules_.push_back(std::move(r));
  }

  std::string place(const Threshold& t) const { return t.origin.empty() ? place(t.line) : t.origin; }
  std::string place(std::int64_t line) const { return fmt::format("{}:{}", c_.config->shown, line); }
  std::int64_t gpu_line() const {
    const auto it = c_.target->setup.find("gpu");
    return it == c_.target->setup.end() ? c_.target->line : it->second.line;
  }

  void verdict() {
    if (!verdict_) return;
    const std::string card = text_of(report_.at("device"), "key");
    const std::string of = fmt::format("peak {} of {} of the {}", human(peak_), human(usable_), card);
    const std::string why = text_of(report_.at("summary"), "why");
    if (verdict_ == Verdict::tight)
      return add(GateRule::tight, true, wants("tight") || wants("warning"), peak_, usable_, card, c_.fail_on_origin,
                 gpu_line(), of + ": " + why);
    if (verdict_ == Verdict::unknown)
      return add(GateRule::unknown, true, wants("unknown"), high_, usable_, card, c_.fail_on_origin, gpu_line(),
                 of + ": " + why);
    const bool bad = verdict_ != Verdict::fits;
    std::string message = of;
    if (bad && peak_ > usable_)
      message += fmt::format(", over by {}", human(peak_ - usable_));
    else if (bad)
      message += ": " + why;
    add(GateRule::no_fit, bad, wants("no-fit"), peak_, usable_, card, c_.fail_on_origin, gpu_line(), message);
  }

  void unknown_ops() {
    std::string ops;
    std::int64_t count = 0;
    for (const Json& u : report_.at("unmodelled"))
      ops += (ops.empty() ? "" : ", ") + text_of(u, "op"), count += u.at("count").get<std::int64_t>();
    if (ops.empty()) return;
    add(GateRule::unknown_op, true, wants("unknown"), high_ - peak_, {}, "", c_.fail_on_origin, c_.target->line,
        ops == "kernels of another card"
            ? "recorded on another card, whose kernels and workspaces may differ: record it for this one"
            : fmt::format("{} ops are not modelled, only bounded by their inputs and outputs: {}", count, ops));
  }

  void ceiling(GateRule rule, const Threshold& t, const char* name, bool fails) {
    const std::int64_t most = t.of(Bytes(usable_)).count;
    // The whole range must stay below: what is not known does not pass.
    const bool bad = high_ > most;
    std::string message = fmt::format("peak {} of {} ({})", human(peak_), human(most), name);
    if (peak_ > most)
      message += fmt::format(", over by {}", human(peak_ - most));
    else if (bad)
      message += fmt::format("; the range of the estimate reaches {}", human(high_));
    add(rule, bad, fails, high_, most, t.text, place(t), t.line, message);
  }

  void growth(GateRule rule, const Threshold& t, const char* name, bool fails) {
    if (base_.is_null()) return fresh(rule, t);
    const std::int64_t was = base_.at("summary").at("peak_bytes"), most = was + t.of(Bytes(was)).count;
    add(rule, peak_ > most, fails, peak_, most, t.text, place(t), t.line,
        fmt::format("peak {}, {} against the baseline's {} ({} {})", human(peak_), human_change(peak_ - was),
                    human(was), name, t.text));
  }

  void fresh(GateRule rule, const Threshold& t) {
    rules_.push_back({{"rule", row_of(rule).name},
                      {"code", row_of(rule).code},
                      {"status", name_of(GateState::fresh)},
                      {"value_bytes", peak_},
                      {"threshold_bytes", nullptr},
                      {"threshold", clean(t.text)},
                      {"origin", place(t)},
                      {"line", t.line},
                      {"message", "the baseline has no such target yet: memplan baseline update adds it"}});
  }

  void ratchet() {
    if (base_.is_null()) return;
    const std::int64_t was = base_.at("summary").at("peak_bytes");
    add(GateRule::ratchet, peak_ < was, true, peak_, was, "", place(c_.target->line), c_.target->line,
        fmt::format("peak {}, {} against the baseline's {}{}", human(peak_), human_change(peak_ - was), human(was),
                    peak_ < was ? ": lock it in with memplan baseline update" : ""));
  }

  const RuleContext& c_;
  const Json& report_;
  const Json& base_;
  std::int64_t peak_ = 0, high_ = 0, usable_ = 0;
  std::optional<Verdict> verdict_;
  Json rules_ = Json::array();
};

}  // namespace

Json rules_of(const RuleContext& context, const Json& report, const Json& base) {
  return Rules(context, report, base).all();
}

std::optional<Bytes> wanted_peak(const RuleContext& context, const Json& report, const Json& base) {
  std::optional<Bytes> least;
  for (const Json& r : rules_of(context, report, base)) {
    if (!complains(state_of(r)) || r.at("threshold_bytes").is_null() || rule_of(r) == GateRule::ratchet) continue;
    const Bytes most(r.at("threshold_bytes").get<std::int64_t>());
    if (!least || most < *least) least = most;
  }
  return least;
}

GateState worst_of(const Json& rules) {
  GateState worst = GateState::passed;
  for (const Json& r : rules)
    if (const GateState state = state_of(r); complains(state)) worst = std::max(worst, state);
  return worst;
}

std::string today_in_utc() {
  std::time_t now = std::time(nullptr);
  if (const char* epoch = std::getenv("SOURCE_DATE_EPOCH"); epoch && *epoch)
    now = static_cast<std::time_t>(std::strtoll(epoch, nullptr, 10));
  std::tm day{};
  gmtime_r(&now, &day);
  return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

}  // namespace memplan::cli
