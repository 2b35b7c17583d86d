#include "cli/report/markdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/report/report.h"
#include "cli/report/state.h"

namespace memplan::cli {

std::string md_code(std::string_view text, std::size_t limit) {
  std::string out, fence = "`";
  const std::string cut = shorten(text, limit, Style{});
  for (const char c : cut) {
    if (c == '`') fence = "``";
    out += c == '|' ? std::string("\\|") : std::string(1, c);
  }
  // Two backticks in a row would end the longer fence.
  for (std::size_t at = out.find("``"); at != std::string::npos; at = out.find("``", at)) out.replace(at, 2, "` ");
  if (out.empty()) return "–";
  const bool pad = fence.size() > 1 || out.front() == ' ';
  return fence + (pad ? " " : "") + out + (pad ? " " : "") + fence;
}

std::string md_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\`*_{}[]<>|~#&!").find(c) != std::string_view::npos) out += '\\';
    out += c;
    if (c == '@') out += "<!-- -->";  // nobody is called
  }
  return out;
}

std::string md_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '@')
      out += "@<!-- -->";
    else
      out += c;
  }
  return out;
}

std::string MdTable::print() const {
  if (rows.empty()) return {};
  std::string out = "|";
  for (const std::string& h : head) out += " " + h + " |";
  out += "\n|";
  for (const char a : align) out += a == 'r' ? " ---: |" : " --- |";
  out += "\n";
  for (const auto& row : rows) {
    out += "|";
    for (const std::string& c : row) out += " " + c + " |";
    out += "\n";
  }
  return out + "\n";
}

std::string MdPage::print() const {
  std::string out;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    constexpr std::size_t note = 100;
    if (i > 0 && out.size() + blocks[i].size() + note > md_limit) {
      out += fmt::format("… {} parts are left out here, the JSON report has them.\n", blocks.size() - i);
      break;
    }
    out += blocks[i];
  }
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

namespace {

std::size_t row_limit(const View& view, std::size_t usual) {
  return !view.top ? usual : *view.top == 0 ? 200 : std::min<std::size_t>(200, static_cast<std::size_t>(*view.top));
}

std::string fold(const std::string& title, const std::string& body) {
  return body.empty() ? std::string() : fmt::format("<details><summary>{}</summary>\n\n{}</details>\n\n", title, body);
}

std::string change_of(const Json& diff) {
  const Json& d = diff.at("summary");
  const std::int64_t delta = d.at("delta_bytes");
  if (delta == 0) return "0 B";
  if (text_of(d, "state") == "new") return human_change(delta) + " (new)";
  return human_change(delta) +
         (d.at("change_percent").is_null() ? "" : fmt::format(" ({:+.1f} %)", d.at("change_percent").get<double>()));
}

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

/// `fix`: the change that a gate asks for; the least that fits the card otherwise.
std::string changes_block(const Json& d, bool needed, const Json& fix = nullptr) {
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

std::string sums_block(const Json& d, const char* list, const char* member, const char* title, std::size_t limit,
                       const char* nameless) {
  std::int64_t total = 0, rest = 0;
  for (const Json& r : d.at(list)) total += r.at("bytes").get<std::int64_t>();
  MdTable table{{title, "bytes", "share"}, "lrr", {}};
  std::size_t left = 0;
  for (const NamedRow& r : merged_rows(d.at(list), member)) {
    if (table.rows.size() >= limit) {
      ++left, rest += r.bytes;
      continue;
    }
    std::string name = r.name.empty() ? nameless : md_code(r.name);
    if (r.count > 1) name += fmt::format(" ×{}", r.count);
    table.rows.push_back(
        {name, human(r.bytes),
         fmt::format("{:.1f} %", total ? static_cast<double>(r.bytes) * 100 / static_cast<double>(total) : 0.0)});
  }
  if (left)
    table.rows.push_back(
        {fmt::format("{} others", left), human(rest),
         fmt::format("{:.1f} %", total ? static_cast<double>(rest) * 100 / static_cast<double>(total) : 0.0)});
  return table.print();
}

std::string headline(const Json& d) {
  const Json& s = d.at("summary");
  const std::string model = md_code(file_name(text_of(d.at("input"), "path")));
  if (s.at("verdict").is_null()) return fmt::format("## {} needs {}\n\n", model, human(s.at("peak_bytes")));
  const std::string verdict = text_of(s, "verdict"), card = md_code(text_of(d.at("device"), "key"));
  const std::int64_t headroom = s.at("headroom_bytes");
  std::string out = fmt::format("## {}: {} on {}\n\n**Peak {} of {}", headline_of(verdict), model, card,
                                human(s.at("peak_bytes")), human(s.at("limit_bytes")));
  out += headroom < 0 ? fmt::format(", over by {}.**", human(-headroom))
                      : fmt::format(", {} stay free.**", human(headroom));
  if (s.at("low_bytes") != s.at("high_bytes"))
    out += fmt::format(" The range is {} to {}.", human(s.at("low_bytes")), human(s.at("high_bytes")));
  if (s.contains("certainty"))
    out += fmt::format(" It is {}: {}.", md_text(text_of(s, "certainty")), md_text(text_of(s, "certainty_why")));
  if (verdict != "no-fit") out += " " + md_text(text_of(s, "why")) + ".";
  if (verdict == "no-fit" && !s.at("out_of_memory_at").is_null())
    out += fmt::format(" Memory runs out at {}.", md_code(text_of(s, "out_of_memory_at")));
  return out + "\n\n";
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

std::string diff_tables(const Json& d, std::size_t limit);
std::string setup_list(const Json& changes);

/// Of a report with limits or a baseline of its own.
std::string gate_block(const Json& d) {
  const Json& gate = d.at("gate");
  if (!gate.contains("rules")) return {};
  const GateState state = state_of(gate);
  std::string out = fmt::format("### The gate {}\n\n{}",
                                state == GateState::failed   ? "fails"
                                : state == GateState::warned ? "warns"
                                                             : "passes",
                                rule_lines(gate.at("rules"), true));
  if (const Json fix = gate.value("fix", Json(nullptr)); !fix.is_null()) {
    out += fix_line(fix);
    out += fmt::format("\n```sh\n{}\n```\n", command_of(d, {}, text_of(fix, "flags")));
  }
  return out + "\n";
}

std::string report_md(const Json& d, const View& view) {
  MdPage page;
  const Json& s = d.at("summary");
  const bool needed = !s.at("verdict").is_null() && s.at("verdict") != "fits";
  std::string setup = setup_words(d.at("setup"));
  for (std::size_t at = setup.find("  "); at != std::string::npos; at = setup.find("  ", at))
    setup.replace(at, 2, ", ");
  for (const Json& dim : d.at("setup").at("dims"))
    setup += fmt::format(", {} = {}{}", text_of(dim, "name"), dim.at("size").get<std::int64_t>(),
                         text_of(dim, "origin") == "assumed" ? " (assumed)" : "");
  page.blocks.push_back(headline(d) + fmt::format("Setup: {}; {} parameters. The peak is in {}.\n\n", md_text(setup),
                                                  short_count(d.at("input").at("parameters")),
                                                  md_code(peak_place(d), 200)));
  if (std::string gate = gate_block(d); !gate.empty()) page.blocks.push_back(std::move(gate));
  if (const auto diff = d.find("diff"); diff != d.end())
    page.blocks.push_back(fmt::format("### Against the baseline\n\n**{} → {}**, {}.\n\n",
                                      human(diff->at("summary").at("base_bytes")),
                                      human(diff->at("summary").at("head_bytes")), change_of(*diff)) +
                          setup_list(diff->at("setup")) + diff_tables(*diff, row_limit(view, 8)));
  const std::string changes = changes_block(d, needed);
  if (needed) page.blocks.push_back(changes);

  MdTable parts{{"part", "bytes", "share", ""}, "lrrl", {}};
  const double peak = static_cast<double>(std::max<std::int64_t>(1, s.at("peak_bytes").get<std::int64_t>()));
  for (const Json& p : d.at("breakdown")) {
    const std::int64_t bytes = p.at("bytes");
    const double share = static_cast<double>(bytes) / peak;
    if (bytes == 0) continue;
    std::string bar;
    for (int i = 0; i < static_cast<int>(std::clamp(share, 0.0, 1.0) * 20 + 0.5); ++i) bar += "█";
    parts.rows.push_back(
        {md_text(part_name(text_of(p, "category"))), human(bytes), fmt::format("{:.1f} %", share * 100), bar});
  }
  parts.rows.push_back({"**total of the process**", "**" + human(s.at("peak_bytes")) + "**", "100.0 %", ""});
  page.blocks.push_back("### What the peak is made of\n\n" + parts.print());

  MdTable phases{{"phase", "requested", "allocated", "reserved"}, "lrrr", {}};
  for (const Json& p : d.at("phases"))
    phases.rows.push_back({md_text(text_of(p, "phase")), human(p.at("requested_bytes")), human(p.at("allocated_bytes")),
                           human(p.at("reserved_bytes"))});
  page.blocks.push_back("### Memory over the step\n\nHighest of PyTorch's counters in each phase.\n\n" +
                        phases.print());

  MdTable tensors{{"size", "count", "kind", "tensor", "shape", "why alive"}, "rrllll", {}};
  const std::vector<TensorGroup> groups = groups_of(rows_of(d.at("tensors_at_peak")));
  const std::size_t limit = row_limit(view, 15);
  std::int64_t rest = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const TensorGroup& g = groups[i];
    if (i < limit)
      tensors.rows.push_back({human(g.bytes), std::to_string(g.count), md_text(g.category), md_code(g.name),
                              g.dtype.empty() ? "" : md_code(g.shape + " " + g.dtype), md_text(g.reason)});
    else
      rest += g.bytes;
  }
  if (groups.size() > limit)
    tensors.rows.push_back({human(rest), "", "", fmt::format("{} more rows", groups.size() - limit), "", ""});
  page.blocks.push_back("### Alive at the peak\n\n" + tensors.print());

  page.blocks.push_back("### By module\n\n" + sums_block(d, "at_peak_by_module", "module", "module",
                                                         row_limit(view, 12), "(outside modules)"));
  page.blocks.push_back(fold("By op and by dtype",
                             sums_block(d, "at_peak_by_op", "op", "made by", row_limit(view, 12), "(not by an op)") +
                                 sums_block(d, "at_peak_by_dtype", "dtype", "dtype", 12, "(none)")));
  if (!needed && !changes.empty()) page.blocks.push_back(changes);

  std::string assumed;
  for (const Json& a : d.at("assumptions")) assumed += "- " + md_text(a.get<std::string>()) + "\n";
  for (const Json& w : d.at("warnings"))
    assumed += fmt::format("- {} ({})\n", md_text(text_of(w, "message")), md_text(text_of(w, "code")));
  for (const Json& u : d.at("unmodelled")) {
    const std::int64_t widened = u.at("widened_by_bytes");
    assumed += fmt::format("- Not modelled: {} of {}: {}{}\n", u.at("count").get<std::int64_t>(),
                           md_code(text_of(u, "op")), md_text(text_of(u, "handling")),
                           widened ? fmt::format(", which widens the range by {}", human(widened)) : "");
  }
  page.blocks.push_back("### What this rests on\n\n" + assumed + "\n");
  page.blocks.push_back(fmt::format(
      "### Again\n\n```sh\n{}\n```\n\nmemplan {}, {}. *Requested* is what the program asks for, *allocated* the blocks "
      "it gets, *reserved* the segments that "
      "PyTorch's allocator holds; the process, which nvidia-smi shows, adds the CUDA context.\n",
      command_of(d), md_text(text_of(d.at("tool"), "version")), md_text(text_of(d.at("device"), "explanation"))));
  return page.print();
}

std::string diff_tables(const Json& d, std::size_t limit) {
  std::string out;
  const auto table = [&](const char* title, const char* list, const char* member) {
    MdTable t{{title, "base", "head", "change", ""}, "lrrrl", {}};
    std::size_t left = 0;
    if (std::string_view(member) == "name") {  // tensors
      for (const Json& r : d.at(list)) {
        if (t.rows.size() >= limit) {
          ++left;
          continue;
        }
        const std::string state = text_of(r, "state"), module = text_of(r, "module");
        t.rows.push_back({fmt::format("{}{} {}", md_code(text_of(r, "name")),
                                      module.empty() ? "" : " in " + md_code(module), md_text(text_of(r, "category"))),
                          human(r.at("base_bytes")), human(r.at("head_bytes")), human_change(r.at("delta_bytes")),
                          state == "new" || state == "gone" ? state : ""});
      }
    } else {
      for (const NamedRow& r : merged_rows(d.at(list), member)) {
        if (r.delta == 0 && r.state == "same") continue;
        if (t.rows.size() >= limit) {
          ++left;
          continue;
        }
        std::string shown = std::string_view(member) == "category" ? md_text(part_name(r.name))
                            : r.name.empty()                       ? "(outside modules)"
                                                                   : md_code(r.name);
        if (r.count > 1) shown += fmt::format(" ×{}", r.count);
        t.rows.push_back({shown, human(r.base), human(r.head), human_change(r.delta),
                          r.state == "new" || r.state == "gone" ? r.state : ""});
      }
    }
    if (left) t.rows.push_back({fmt::format("{} more", left), "", "", "", ""});
    out += t.print();
  };
  table("part", "parts", "category");
  table("module", "modules", "module");
  table("tensor", "tensors", "name");
  return out;
}

std::string setup_list(const Json& changes) {
  std::string out;
  const auto value = [](const Json& v) { return v.is_null() ? std::string("not set") : md_code(v.get<std::string>()); };
  for (const Json& c : changes)
    out += fmt::format("- {}: {} → {}\n", md_text(text_of(c, "name")), value(c.at("base")), value(c.at("head")));
  return out.empty() ? out : "The setup differs:\n\n" + out + "\n";
}

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

std::string check_md(const Json& d, const View& view) {
  const Json& s = d.at("summary");
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
  head += "\n\n";

  // The worst first: failing targets, then warnings, then what moved most.
  std::vector<const Json*> order;
  for (const Json& t : d.at("targets")) order.push_back(&t);
  const auto weight = [](const Json& t) {
    const GateState state = state_of(t);
    return state == GateState::error ? 0 : state == GateState::failed ? 1 : state == GateState::warned ? 2 : 3;
  };
  const auto moved = [](const Json& t) {
    return t.at("diff").is_null() ? std::int64_t{0}
                                  : std::abs(t.at("diff").at("summary").at("delta_bytes").get<std::int64_t>());
  };
  std::stable_sort(order.begin(), order.end(), [&](const Json* a, const Json* b) {
    return weight(*a) != weight(*b) ? weight(*a) < weight(*b) : moved(*a) > moved(*b);
  });
  constexpr std::size_t most_sentences = 3, most_rows = 100;
  std::string sentences;
  for (std::size_t i = 0; i < order.size() && i < most_sentences; ++i)
    if (i == 0 || weight(*order[i]) < 3) sentences += target_sentence(*order[i]) + "\n";
  head += sentences + "\n";
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
      if (rule.at("rule") == "over-limit" ||
          (limit.empty() && rule.at("rule") == "no-fit" && !rule.at("threshold_bytes").is_null()))
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
  MdPage page;
  page.blocks.push_back(head);
  page.blocks.push_back(table.print());
  for (const Json* entry : order) {
    const Json& t = *entry;
    if (weight(t) == 3 && std::none_of(t.at("rules").begin(), t.at("rules").end(),
                                       [](const Json& r) { return state_of(r) == GateState::ignored; }))
      continue;
    std::string block = fmt::format("#### {}\n\n", md_code(text_of(t, "name")));
    if (const Json& e = t.at("error"); !e.is_null()) {
      page.blocks.push_back(block + fmt::format("- {} {}: {}\n\n", md_code(text_of(e, "where")),
                                                md_text(text_of(e, "message")), md_text(text_of(e, "hint"))));
      continue;
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
    page.blocks.push_back(block + "\n");
  }
  for (const Json* entry : order) {
    const Json& diff = entry->at("diff");
    if (diff.is_null() || (diff.at("summary").at("delta_bytes") == 0 && diff.at("setup").empty())) continue;
    page.blocks.push_back(fold("What moved in " + md_html(text_of(*entry, "name")),
                               setup_list(diff.at("setup")) + diff_tables(diff, row_limit(view, 10))));
  }
  for (const Json* entry : order) {
    if (entry->at("report").is_null() || weight(*entry) == 3) continue;
    std::string body = changes_block(entry->at("report"), true, entry->at("fix"));
    for (const Json& a : entry->at("report").at("assumptions")) body += "- " + md_text(a.get<std::string>()) + "\n";
    page.blocks.push_back(
        fold("How to fix " + md_html(text_of(*entry, "name")) + ", and what the figures rest on", body + "\n"));
  }
  page.blocks.push_back(
      fmt::format("memplan {}, {}\n", md_text(text_of(d.at("tool"), "version")), md_code(text_of(d, "config"))));
  return page.print();
}

}  // namespace

std::string render_markdown(const Json& document, const View& view) {
  const std::string kind = document.value("kind", "report");
  return kind == "check"  ? check_md(document, view)
         : kind == "diff" ? diff_md(document, view)
                          : report_md(document, view);
}

}  // namespace memplan::cli
