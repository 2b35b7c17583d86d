#include "cli/report/markdown_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/report/report.h"
#include "cli/report/state.h"

namespace memplan::cli {

namespace {

/// "AMP in bf16", for the flags that memplan proposes; others are shown as they are.
std::string sentence_of(const std::string& flags) {
  std::string text;
  const auto add = [&](const std::string& words) { text += (text.empty() ? "" : " and ") + words; };
  if (flags.find("--amp") != std::string::npos) add("mixed precision (autocast)");
  if (flags.find("--checkpoint") != std::string::npos)
    add("recompute the blocks in the backward pass (activation checkpointing)");
  if (flags.find("--accumulate") != std::string::npos)
    add("smaller portions of the same batch (gradient accumulation)");
  if (flags.find("--offload") != std::string::npos) add("part of it in the host's memory");
  if (flags.find("--optimizer") != std::string::npos) add("another optimizer");
  if (flags.find("--fsdp") != std::string::npos || flags.find("--zero ") != std::string::npos)
    add("shards over several GPUs");
  if (flags.find("expandable_segments") != std::string::npos) add("let the allocator grow its segments");
  return text;
}

const char* sign_of(GateState state) {
  switch (state) {
    case GateState::failed:
      return "❌";
    case GateState::warned:
      return "⚠️";
    case GateState::ignored:
      return "💤";
    default:
      return "✅";
  }
}

/// A table whose last row says how many are left out.
class ChangeTable {
 public:
  ChangeTable(const char* title, std::size_t limit) : limit_(limit) {
    table_ = {{title, "base", "head", "change", ""}, "lrrrl", {}};
  }
  void add(const std::string& name, std::int64_t base, std::int64_t head, std::int64_t delta, DiffState state) {
    if (table_.rows.size() < limit_)
      table_.rows.push_back({name, human(base), human(head), human_change(delta), one_sided(state)});
    else
      ++left_;
  }
  std::string print() {
    if (left_) table_.rows.push_back({fmt::format("{} more", left_), "", "", "", ""});
    return table_.print();
  }

 private:
  MdTable table_;
  std::size_t limit_, left_ = 0;
};

std::string tensor_changes(const Json& d, std::size_t limit) {
  ChangeTable t("tensor", limit);
  for (const Json& r : d.at("tensors")) {
    const std::string module = text_of(r, "module");
    t.add(fmt::format("{}{} {}", md_code(text_of(r, "name")), module.empty() ? "" : " in " + md_code(module),
                      md_text(text_of(r, "category"))),
          r.at("base_bytes"), r.at("head_bytes"), r.at("delta_bytes"), diff_state_of(r));
  }
  return t.print();
}

/// `name`: how a row is called.
template <class Name>
std::string merged_changes(const char* title, const Json& list, const char* member, std::size_t limit, Name name) {
  ChangeTable t(title, limit);
  for (const NamedRow& r : merged_rows(list, member))
    if (r.delta != 0 || r.state != DiffState::same)
      t.add(name(r.name) + (r.count > 1 ? fmt::format(" ×{}", r.count) : ""), r.base, r.head, r.delta, r.state);
  return t.print();
}

}  // namespace

std::size_t row_limit(const View& view, std::size_t usual) {
  return !view.top ? usual : *view.top == 0 ? 200 : std::min<std::size_t>(200, static_cast<std::size_t>(*view.top));
}

std::string md_fold(const std::string& title, const std::string& body) {
  return body.empty() ? std::string() : fmt::format("<details><summary>{}</summary>\n\n{}</details>\n\n", title, body);
}

std::string change_of(const Json& diff) {
  const Json& d = diff.at("summary");
  const std::int64_t delta = d.at("delta_bytes");
  if (delta == 0) return "0 B";
  if (diff_state_of(d) == DiffState::fresh) return human_change(delta) + " (new)";
  return human_change(delta) +
         (d.at("change_percent").is_null() ? "" : fmt::format(" ({:+.1f} %)", d.at("change_percent").get<double>()));
}

std::string changes_block(const Json& d, bool needed, const Json& fix) {
  const Json& also = d.at("alternatives");
  const std::int64_t peak = d.at("summary").at("peak_bytes");
  MdTable table{{"change", "what it is", "peak", "saves", "verdict"}, "llrrl", {}};
  const Json* first = nullptr;
  for (const Json& c : also.at("changes")) {
    const std::string verdict = text_of(c, "verdict");
    if (verdict == "fits" && (!first || c.at("peak_bytes") > first->at("peak_bytes"))) first = &c;
    table.rows.push_back({md_code(text_of(c, "flags")), sentence_of(text_of(c, "flags")), human(c.at("peak_bytes")),
                          human(peak - c.at("peak_bytes").get<std::int64_t>()), verdict});
  }
  std::string out = table.print();
  std::string lines;
  if (const Json& l = also.at("largest_batch"); !l.is_null()) {
    const std::int64_t batch = l.at("batch");
    lines += batch == 0 ? fmt::format("- No batch fits as it is: a batch of 1 needs {}.\n", human(l.at("peak_bytes")))
                        : fmt::format("- The largest batch that fits unchanged: **{}** (peak {}).\n", grouped(batch),
                                      human(l.at("peak_bytes")));
  }
  std::string cards;
  for (const Json& c : also.at("cards"))
    cards += fmt::format("{}{} ({} of {})", cards.empty() ? "" : ", ", md_code(text_of(c, "key")),
                         human(c.at("peak_bytes")), human(c.at("usable_bytes")));
  if (!cards.empty()) lines += "- The smallest cards that fit unchanged: " + cards + ".\n";
  if (const Json& i = also.at("inference"); !i.is_null())
    lines += fmt::format("- Inference alone needs {}.\n", human(i.at("peak_bytes")));
  if (!lines.empty()) out += lines + "\n";
  if (!fix.is_null()) first = &fix;
  if (first)
    out += fmt::format("The least of them that {}, to look at it closer:\n\n```sh\n{}\n```\n\n",
                       fix.is_null() ? "fits" : "passes", command_of(d, {}, text_of(*first, "flags")));
  if (out.empty()) return {};
  return fmt::format("### {}\n\n{}{}", needed ? "What to change" : "Also estimated",
                     needed && first ? "Every line was estimated anew, none is a guess.\n\n" : "", out);
}

std::string fix_line(const Json& fix) {
  std::string line =
      fmt::format("- **Smallest change that passes:** {} brings the peak to {}{}.", md_code(text_of(fix, "flags")),
                  human(fix.at("peak_bytes")),
                  fix.contains("saves_bytes") ? fmt::format(", {} less", human(fix.at("saves_bytes"))) : "");
  for (const Json& caution : fix.value("cautions", Json::array()))
    line += " It changes the training: " + md_text(caution.get<std::string>()) + ".";
  return line + "\n";
}

std::string rule_lines(const Json& rules, bool every) {
  std::string out;
  for (const Json& r : rules) {
    const GateState state = state_of(r);
    if (!every && (state == GateState::passed || state == GateState::fresh)) continue;
    const char* sign = sign_of(state);
    out += fmt::format("- {} **{}** ({}, {}): {}{}\n", sign, text_of(r, "rule"), text_of(r, "code"),
                       md_code(text_of(r, "origin")), md_text(text_of(r, "message")),
                       state == GateState::ignored
                           ? fmt::format("; ignored until {}: {}", text_of(r, "expires"), md_text(text_of(r, "reason")))
                           : "");
  }
  return out;
}

std::string diff_tables(const Json& d, std::size_t limit) {
  return merged_changes("part", d.at("parts"), "category", limit,
                        [](const std::string& n) { return md_text(part_name(n)); }) +
         merged_changes("module", d.at("modules"), "module", limit,
                        [](const std::string& n) { return n.empty() ? "(outside modules)" : md_code(n); }) +
         tensor_changes(d, limit);
}

std::string setup_list(const Json& changes) {
  std::string out;
  const auto value = [](const Json& v) { return v.is_null() ? std::string("not set") : md_code(v.get<std::string>()); };
  for (const Json& c : changes)
    out += fmt::format("- {}: {} → {}\n", md_text(text_of(c, "name")), value(c.at("base")), value(c.at("head")));
  return out.empty() ? out : "The setup differs:\n\n" + out + "\n";
}

}  // namespace memplan::cli
