// The pages of a gate and of a comparison.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/report/markdown_blocks.h"
#include "cli/report/report.h"
#include "cli/report/state.h"

namespace memplan::cli {

namespace {

/// One sentence about a target: what it does to the peak, and what the gate says.
std::string target_sentence(const Json& t) {
  const std::string name = md_code(text_of(t, "name"));
  if (const Json& e = t.at("error"); !e.is_null())
    return fmt::format("{} cannot be checked: {}. {}", name, md_text(text_of(e, "message")),
                       md_text(text_of(e, "hint")));
  const Json& s = t.at("report").at("summary");
  const Json& diff = t.at("diff");
  const std::string of = s.at("limit_bytes").is_null() ? "" : " of " + human(s.at("limit_bytes"));
  std::string text;
  if (diff.is_null() || diff.at("summary").at("delta_bytes") == 0)
    text = fmt::format("Peak of {} is {}{}", name, human(s.at("peak_bytes")), of);
  else {
    const std::int64_t delta = diff.at("summary").at("delta_bytes");
    const Json& percent = diff.at("summary").at("change_percent");
    text = fmt::format("Peak of {} {} {}{} to {}{}", name, delta > 0 ? "grows" : "falls", human(std::abs(delta)),
                       percent.is_null() ? "" : fmt::format(" ({:+.1f} %)", percent.get<double>()),
                       human(s.at("peak_bytes")), of);
  }
  if (!s.at("verdict").is_null())
    text += fmt::format(" – {}", s.at("verdict") == "fits"     ? "fits"
                                 : s.at("verdict") == "no-fit" ? "**does not fit**"
                                                               : "**" + text_of(s, "verdict") + "**");
  return text + ".";
}

std::string gate_headline(const Json& s) {
  const std::int64_t targets = s.at("targets"), failed = s.at("failed"), errors = s.at("errors"),
                     warned = s.at("warned");
  std::string head = "<!-- memplan-gate -->\n### GPU memory: ";
  if (errors)
    head += (targets == 1 ? "the target" : fmt::format("{} of {} targets", errors, targets)) + " cannot be checked" +
            (failed ? ", " : "");
  if (failed)
    head += (targets == 1 ? "the target" : fmt::format("{} of {} targets", failed, targets)) +
            (failed == 1 ? " fails" : " fail");
  if (!errors && !failed) head += targets == 1 ? "the target passes" : fmt::format("all {} targets pass", targets);
  if (warned) head += fmt::format(", {} with a warning", warned);
  return head + "\n\n";
}

/// 0 of those that could not be checked, to 3 of those that pass.
int weight_of(const Json& target) {
  const GateState state = state_of(target);
  return state == GateState::error ? 0 : state == GateState::failed ? 1 : state == GateState::warned ? 2 : 3;
}

/// The worst first: failing targets, then warnings, then what moved most.
std::vector<const Json*> by_weight(const Json& targets) {
  std::vector<const Json*> order;
  for (const Json& t : targets) order.push_back(&t);
  const auto moved = [](const Json& t) {
    return t.at("diff").is_null() ? std::int64_t{0}
                                  : std::abs(t.at("diff").at("summary").at("delta_bytes").get<std::int64_t>());
  };
  std::stable_sort(order.begin(), order.end(), [&](const Json* a, const Json* b) {
    return weight_of(*a) != weight_of(*b) ? weight_of(*a) < weight_of(*b) : moved(*a) > moved(*b);
  });
  return order;
}

std::string targets_table(const std::vector<const Json*>& order) {
  constexpr std::size_t most_rows = 100;
  MdTable table{{"target", "GPU", "base", "head", "Δ", "limit", "status"}, "llrrrrl", {}};
  for (std::size_t i = 0; i < order.size() && i < most_rows; ++i) {
    const Json& t = *order[i];
    const GateState state = state_of(t);
    if (t.at("report").is_null()) {
      table.rows.push_back({md_code(text_of(t, "name"), 40), "", "", "", "", "", "❗ error"});
      continue;
    }
    const Json& r = t.at("report");
    const Json& diff = t.at("diff");
    std::string limit;
    for (const Json& rule : t.at("rules"))
      if (const auto which = rule_of(rule);
          which == GateRule::over_limit ||
          (limit.empty() && which == GateRule::no_fit && !rule.at("threshold_bytes").is_null()))
        limit = human(rule.at("threshold_bytes"));
    table.rows.push_back({md_code(text_of(t, "name"), 40),
                          r.at("device").at("given").get<bool>() ? md_code(text_of(r.at("device"), "key"), 30) : "",
                          diff.is_null() ? "" : human(diff.at("summary").at("base_bytes")),
                          human(r.at("summary").at("peak_bytes")), diff.is_null() ? "new" : change_of(diff), limit,
                          state == GateState::failed   ? "❌ fails"
                          : state == GateState::warned ? "⚠️ warns"
                                                       : "✅ passes"});
  }
  if (order.size() > most_rows)
    table.rows.push_back({fmt::format("{} more", order.size() - most_rows), "", "", "", "", "", ""});
  return table.print();
}

std::string target_block(const Json& t) {
  std::string block = fmt::format("#### {}\n\n", md_code(text_of(t, "name")));
  if (const Json& e = t.at("error"); !e.is_null()) {
    return block + fmt::format("- {} {}: {}\n\n", md_code(text_of(e, "where")), md_text(text_of(e, "message")),
                               md_text(text_of(e, "hint")));
  }
  block += rule_lines(t.at("rules"), false);
  if (const Json& fix = t.at("fix"); !fix.is_null()) {
    block += fix_line(fix);
    if (fix.contains("configuration")) {
      block += "\n  ```toml\n";
      for (const Json& line : fix.at("configuration")) block += "  " + line.get<std::string>() + "\n";
      block += "  ```\n";
    }
  }
  if (const std::string message = text_of(t, "message"); !message.empty()) block += "- " + md_text(message) + "\n";
  return block + "\n";
}

}  // namespace

std::string diff_md(const Json& d, const View& view) {
  const Json& s = d.at("summary");
  MdPage page;
  const std::int64_t delta = s.at("delta_bytes");
  page.blocks.push_back(fmt::format("## Peak {} {}\n\n**{} → {}**, {}, for {} and {}.\n\n",
                                    delta == 0  ? "stays the same"
                                    : delta > 0 ? "grows by"
                                                : "falls by",
                                    delta == 0 ? "" : human(std::abs(delta)), human(s.at("base_bytes")),
                                    human(s.at("head_bytes")), change_of(d), md_code(text_of(d.at("base"), "model")),
                                    md_code(text_of(d.at("head"), "model"))) +
                        setup_list(d.at("setup")));
  page.blocks.push_back(diff_tables(d, row_limit(view, 20)));
  return page.print();
}

std::string check_md(const Json& d, const View& view) {
  const std::vector<const Json*> order = by_weight(d.at("targets"));
  constexpr std::size_t most_sentences = 3;
  std::string sentences;
  for (std::size_t i = 0; i < order.size() && i < most_sentences; ++i)
    if (i == 0 || weight_of(*order[i]) < 3) sentences += target_sentence(*order[i]) + "\n";
  MdPage page;
  page.blocks.push_back(gate_headline(d.at("summary")) + sentences + "\n");
  page.blocks.push_back(targets_table(order));
  const auto ignored = [](const Json& r) { return state_of(r) == GateState::ignored; };
  for (const Json* t : order)
    if (weight_of(*t) < 3 || std::any_of(t->at("rules").begin(), t->at("rules").end(), ignored))
      page.blocks.push_back(target_block(*t));
  for (const Json* entry : order) {
    const Json& diff = entry->at("diff");
    if (diff.is_null() || (diff.at("summary").at("delta_bytes") == 0 && diff.at("setup").empty())) continue;
    page.blocks.push_back(md_fold("What moved in " + md_html(text_of(*entry, "name")),
                                  setup_list(diff.at("setup")) + diff_tables(diff, row_limit(view, 10))));
  }
  for (const Json* entry : order) {
    if (entry->at("report").is_null() || weight_of(*entry) == 3) continue;
    std::string body = changes_block(entry->at("report"), true, entry->at("fix"));
    for (const Json& a : entry->at("report").at("assumptions")) body += "- " + md_text(a.get<std::string>()) + "\n";
    page.blocks.push_back(
        md_fold("How to fix " + md_html(text_of(*entry, "name")) + ", and what the figures rest on", body + "\n"));
  }
  page.blocks.push_back(
      fmt::format("memplan {}, {}\n", md_text(text_of(d.at("tool"), "version")), md_code(text_of(d, "config"))));
  return page.print();
}

}  // namespace memplan::cli
