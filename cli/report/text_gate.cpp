// Gates and comparisons as text.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/report/report.h"
#include "cli/report/state.h"

namespace memplan::cli {

namespace {

struct Word {
  const char* text;
  Paint paint;
};
Word word_of(GateState state) {
  switch (state) {
    case GateState::passed:
      return {"PASS", Paint::green};
    case GateState::warned:
      return {"WARN", Paint::yellow};
    case GateState::failed:
      return {"FAIL", Paint::red};
    case GateState::ignored:
      return {"IGNORED", Paint::dim};
    case GateState::fresh:
      return {"NEW", Paint::cyan};
    case GateState::error:
      break;
  }
  return {"ERROR", Paint::red};
}

std::string moved(const Json& diff, const Style& style, std::size_t rows) {
  Table table;
  table.right = {true, false, false};
  table.flexible = {1};
  const std::vector<NamedRow> modules = merged_rows(diff.at("modules"), "module");
  for (std::size_t i = 0; i < modules.size() && i < rows; ++i) {
    const NamedRow& m = modules[i];
    table.rows.push_back({human_change(m.delta),
                          (m.name.empty() ? "(outside modules)" : m.name) +
                              (m.count > 1 ? fmt::format(" {}{}", style.times(), m.count) : ""),
                          name_of(m.state)});
  }
  if (table.rows.empty()) return {};
  // Under its title, which stands further in than tables do.
  Style narrow = style;
  narrow.width = style.width > 60 ? style.width - 8 : style.width;
  std::string out;
  const std::string printed = table.print(narrow), pad = style.width > 60 ? "        " : "";
  for (std::size_t at = 0; at < printed.size();) {
    const std::size_t end = std::min(printed.find('\n', at), printed.size());
    out += pad + printed.substr(at, end - at) + "\n";
    at = end + 1;
  }
  if (modules.size() > rows)
    out +=
        pad +
        style.paint(fmt::format("  {} {} more rows (memplan diff shows all)", style.ellipsis(), modules.size() - rows),
                    Paint::dim) +
        "\n";
  return out;
}

std::string setup_line(const Json& changes) {
  std::string out;
  const auto value = [](const Json& v) { return v.is_null() ? std::string("not set") : v.get<std::string>(); };
  for (const Json& c : changes)
    out += fmt::format("{}{} {} -> {}", out.empty() ? "" : ", ", text_of(c, "name"), value(c.at("base")),
                       value(c.at("head")));
  return out;
}

/// What each version of PyTorch moves, and why.
std::string versions_text(const Json& steps, const Style& style) {
  std::string out = "\n";
  for (const Json& step : steps) {
    std::string line =
        fmt::format("{}PyTorch {}: ", step.at("undone").get<bool>() ? "without " : "", text_of(step, "version"));
    if (step.at("parts").empty()) line += "nothing moves";
    bool first = true;
    for (const Json& part : step.at("parts")) {
      line += (first ? "" : ", ") + part_name(text_of(part, "category")) + " " + human_change(part.at("delta_bytes"));
      first = false;
    }
    for (const Json& why : step.at("why")) line += "; " + why.get<std::string>();
    out += wrap(line, style.width, 2) + "\n";
  }
  return out;
}

std::string detail(const std::string& text, const Style& style) {
  return "        " + wrap(text, style.width, 10, 8) + "\n";
}

/// The rules that say something; all of them with `every`.
std::string rule_lines(const Json& rules, bool every, bool fresh, const Style& style) {
  std::string out;
  for (const Json& r : rules) {
    const GateState state = state_of(r);
    if ((state == GateState::passed && !every) || (state == GateState::fresh && !fresh)) continue;
    std::string text = fmt::format("{} [{}] {} ({})", text_of(r, "rule"), text_of(r, "code"), text_of(r, "message"),
                                   text_of(r, "origin"));
    if (state == GateState::ignored)
      text += fmt::format("; ignored until {}: {}", text_of(r, "expires"), text_of(r, "reason"));
    const Word w = word_of(state);
    out += "      " + style.paint(w.text, w.paint) + " " + wrap(text, style.width, 10, 7 + columns(w.text)) + "\n";
  }
  return out;
}

/// What moved, and what to do about it.
std::string findings_text(const Json& diff, const Json& fix, const Json& report, bool asked, const Style& style) {
  std::string out;
  if (!diff.is_null()) {
    if (const std::string setup = setup_line(diff.at("setup")); !setup.empty()) out += detail("setup: " + setup, style);
    if (const std::string rows = moved(diff, style, 5); !rows.empty())
      out += detail("what moved at the peak:", style) + rows;
  }
  if (!asked) return out;
  if (fix.is_null()) return out + detail("none of the changes that were estimated passes", style);
  std::string text =
      fmt::format("smallest change that passes: {} (peak {}", text_of(fix, "flags"), human(fix.at("peak_bytes")));
  // Fixes of earlier versions had the flags and the peak only.
  if (fix.contains("saves_bytes")) text += fmt::format(", saves {}", human(fix.at("saves_bytes")));
  if (!report.at("summary").at("limit_bytes").is_null()) text += ", " + text_of(fix, "verdict");
  out += detail(text + ")", style);
  for (const Json& caution : fix.value("cautions", Json::array()))
    out += detail("  it changes the training: " + caution.get<std::string>(), style);
  return out;
}

std::string target_text(const Json& t, const Style& style) {
  const Word status = word_of(state_of(t));
  std::string line = style.paint(fmt::format("{:<6}", status.text), status.paint) + text_of(t, "name");
  if (const Json& e = t.at("error"); !e.is_null()) {
    const std::string where = text_of(e, "where");
    return line + "\n" +
           detail(fmt::format("{}{}. {}", where.empty() ? "" : where + ": ", text_of(e, "message"), text_of(e, "hint")),
                  style);
  }
  const Json& s = t.at("report").at("summary");
  line += fmt::format("  {}", human(s.at("peak_bytes")));
  if (!s.at("limit_bytes").is_null())
    line += fmt::format(" of {} ({})", human(s.at("limit_bytes")), text_of(t.at("report").at("device"), "key"));
  const Json& diff = t.at("diff");
  if (!diff.is_null()) {
    const Json& d = diff.at("summary");
    line += "  " + human_change(d.at("delta_bytes"));
    if (!d.at("change_percent").is_null() && d.at("delta_bytes") != 0)
      line += fmt::format(" ({:+.1f} %)", d.at("change_percent").get<double>());
  }
  const bool quiet = state_of(t) == GateState::passed;
  const Json& rules = t.at("rules");
  if (quiet && std::any_of(rules.begin(), rules.end(), [](const Json& r) { return state_of(r) == GateState::fresh; }))
    line += "  " + style.paint("new: not in the baseline", Paint::cyan);
  std::string out = line + "\n" + rule_lines(t.at("rules"), false, !quiet, style);
  if (quiet) return out;
  out += findings_text(diff, t.at("fix"), t.at("report"), true, style);
  const Json& fix = t.at("fix");
  if (!fix.is_null() && fix.contains("configuration")) {
    std::string lines;
    for (const Json& l : fix.at("configuration")) lines += (lines.empty() ? "" : ", ") + l.get<std::string>();
    out += detail("  as settings of the target: " + lines, style);
  }
  if (const std::string message = text_of(t, "message"); !message.empty()) out += detail(message, style);
  return out;
}

std::string orphans_of(const Json& document) {
  std::string names;
  const auto baseline = document.find("baseline");
  if (baseline == document.end() || !baseline->contains("orphans")) return names;
  for (const Json& name : baseline->at("orphans")) names += (names.empty() ? "" : ", ") + name.get<std::string>();
  return names;
}

}  // namespace

std::string check_text(const Json& document, const View& view) {
  const Style& style = view.style;
  const Json& s = document.at("summary");
  const std::int64_t targets = s.at("targets"), failed = s.at("failed"), errors = s.at("errors"),
                     warned = s.at("warned");
  std::string verdict;
  const std::string of =
      targets == 1 ? "the target" : fmt::format("{} of {} targets", errors ? errors : failed, targets);
  if (errors) verdict += of + " cannot be checked";
  if (failed)
    verdict += errors ? fmt::format(", {} of {} {}", failed, targets, failed == 1 ? "fails" : "fail")
                      : fmt::format("{} {}", of, failed == 1 ? "fails" : "fail");
  if (verdict.empty()) verdict = targets == 1 ? "the target passes" : fmt::format("all {} targets pass", targets);
  if (warned) verdict += fmt::format(", {} with a warning", warned);
  const Word word = word_of(state_of(s));
  const std::string last = style.paint(word.text, word.paint) + "  " + verdict + "\n";
  if (view.quiet) return last;
  std::string head = text_of(document, "config");
  if (const auto baseline = document.find("baseline"); baseline != document.end())
    head += baseline->at("present").get<bool>() ? fmt::format("  baseline {}", text_of(*baseline, "path"))
                                                : std::string("  no baseline");
  std::string out = wrap(head, style.width, 2) + "\n\n";
  for (const Json& t : document.at("targets")) out += target_text(t, style);
  if (const std::string names = orphans_of(document); !names.empty())
    out += "\n" +
           wrap(fmt::format("The baseline has targets that the configuration does not: {}. After a rename, memplan "
                            "baseline update takes the new name over.",
                            names),
                style.width, 0) +
           "\n";
  return out + "\n" + last;
}

std::string report_gate_text(const Json& document, const Style& style) {
  const Json& gate = document.at("gate");
  const auto rules = gate.find("rules");
  if (rules == gate.end()) return {};
  const Word word = word_of(state_of(gate));
  const auto diff = document.find("diff");
  std::string out = style.paint("Gate", Paint::bold) + ": " + style.paint(word.text, word.paint);
  if (diff != document.end()) {
    const Json& d = diff->at("summary");
    out += fmt::format("  {} against {}", human_change(d.at("delta_bytes")), text_of(gate.at("baseline"), "path"));
    if (!d.at("change_percent").is_null() && d.at("delta_bytes") != 0)
      out += fmt::format(" ({:+.1f} %)", d.at("change_percent").get<double>());
  }
  out += "\n" + rule_lines(*rules, true, true, style);
  const auto fix = gate.find("fix");  // absent where nobody looked for one
  return out + findings_text(diff == document.end() ? Json(nullptr) : *diff, fix == gate.end() ? Json(nullptr) : *fix,
                             document, fix != gate.end() && state_of(gate) != GateState::passed, style);
}

namespace {

std::string side_line(const Json& document, const char* name, const Style& style) {
  const Json& d = document.at(name);
  std::string text = fmt::format("{}  {}", name, file_name(text_of(d, "model")));
  for (const Json& f : d.at("flags")) text += " " + f.get<std::string>();
  if (!d.at("verdict").is_null())
    text += fmt::format("  ({} of {})", text_of(d, "verdict"), human(d.at("limit_bytes")));
  return wrap(text, style.width, 6) + "\n";
}

/// What one list of a comparison holds, the largest changes first; nothing where nothing moved.
std::string change_table(const Json& document, const char* title, const char* list, const char* member,
                         const View& view) {
  const Style& style = view.style;
  const std::size_t limit = view.top ? (*view.top == 0 ? std::string::npos : static_cast<std::size_t>(*view.top)) : 10;
  Table t;
  t.head = {"CHANGE", "BASE", "HEAD", "", title};
  t.right = {true, true, true, false, false};
  t.flexible = {4};
  std::size_t left = 0;
  const auto add = [&](std::int64_t delta, std::int64_t base, std::int64_t head, DiffState state, std::string name) {
    if (t.rows.size() >= limit)
      ++left;
    else
      t.rows.push_back({human_change(delta), human(base), human(head), one_sided(state), std::move(name)});
  };
  if (std::string_view(member) == "name")
    for (const Json& r : document.at(list)) {
      const std::string name = text_of(r, "name"), module = text_of(r, "module");
      add(r.at("delta_bytes"), r.at("base_bytes"), r.at("head_bytes"), diff_state_of(r),
          (module.empty() || name.find(module) != std::string::npos ? "" : module + " ") + name + "  " +
              text_of(r, "category"));
    }
  else
    for (const NamedRow& r : merged_rows(document.at(list), member))
      if (r.delta != 0 || r.state != DiffState::same)
        add(r.delta, r.base, r.head, r.state,
            (std::string_view(member) == "category" ? part_name(r.name)
             : r.name.empty()                       ? "(outside modules)"
                                                    : r.name) +
                (r.count > 1 ? fmt::format(" {}{}", style.times(), r.count) : ""));
  if (t.rows.empty()) return {};
  std::string out = "\n" + t.print(style);
  if (left)
    out += style.paint(fmt::format("  {} {} more (--top 0 shows all)", style.ellipsis(), left), Paint::dim) + "\n";
  return out;
}

}  // namespace

std::string diff_text(const Json& document, const View& view) {
  const Style& style = view.style;
  const Json& s = document.at("summary");
  std::string line = fmt::format("peak {} -> {}, {}", human(s.at("base_bytes")), human(s.at("head_bytes")),
                                 human_change(s.at("delta_bytes")));
  if (diff_state_of(s) == DiffState::fresh)
    line += " (new)";
  else if (!s.at("change_percent").is_null() && s.at("delta_bytes") != 0)
    line += fmt::format(" ({:+.2f} %)", s.at("change_percent").get<double>());
  if (view.quiet) return line + "\n";
  std::string out = side_line(document, "base", style) + side_line(document, "head", style);
  if (text_of(s, "model") == "another graph") out += "The models differ in their calls or parameters.\n";
  if (const std::string setup = setup_line(document.at("setup")); !setup.empty())
    out += wrap("setup: " + setup, style.width, 7) + "\n";
  out += "\n" + style.paint(line, Paint::bold) + "\n";
  out += change_table(document, "PART", "parts", "category", view);
  if (document.contains("versions")) out += versions_text(document.at("versions"), style);
  out += change_table(document, "MODULE", "modules", "module", view);
  out += change_table(document, "TENSOR", "tensors", "name", view);
  if (s.at("delta_bytes") == 0 && document.at("tensors").empty())
    out += "\nNothing moved.\n";
  else
    out += fmt::format("\n{} tensors did not change.\n", grouped(document.at("tensors_unchanged")));
  return out;
}

}  // namespace memplan::cli
