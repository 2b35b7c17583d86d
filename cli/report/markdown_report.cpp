// The page of one report.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/report/markdown_blocks.h"
#include "cli/report/report.h"
#include "cli/report/state.h"

namespace memplan::cli {

namespace {

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

std::string setup_sentence(const Json& d) {
  std::string setup = setup_words(d.at("setup"));
  for (std::size_t at = setup.find("  "); at != std::string::npos; at = setup.find("  ", at))
    setup.replace(at, 2, ", ");
  for (const Json& dim : d.at("setup").at("dims"))
    setup += fmt::format(", {} = {}{}", text_of(dim, "name"), dim.at("size").get<std::int64_t>(),
                         origin_words(text_of(dim, "origin")));
  return setup;
}

std::string parts_block(const Json& d) {
  MdTable parts{{"part", "bytes", "share", ""}, "lrrl", {}};
  const std::int64_t total = d.at("summary").at("peak_bytes");
  const double peak = static_cast<double>(std::max<std::int64_t>(1, total));
  for (const Json& p : d.at("breakdown")) {
    const std::int64_t bytes = p.at("bytes");
    const double share = static_cast<double>(bytes) / peak;
    if (bytes == 0) continue;
    std::string bar;
    for (long left = std::lround(std::clamp(share, 0.0, 1.0) * 20); left > 0; --left) bar += "█";
    parts.rows.push_back(
        {md_text(part_name(text_of(p, "category"))), human(bytes), fmt::format("{:.1f} %", share * 100), bar});
  }
  parts.rows.push_back({"**total of the process**", "**" + human(total) + "**", "100.0 %", ""});
  return "### What the peak is made of\n\n" + parts.print();
}

std::string phases_block(const Json& d) {
  MdTable phases{{"phase", "requested", "allocated", "reserved"}, "lrrr", {}};
  for (const Json& p : d.at("phases"))
    phases.rows.push_back({md_text(text_of(p, "phase")), human(p.at("requested_bytes")), human(p.at("allocated_bytes")),
                           human(p.at("reserved_bytes"))});
  return "### Memory over the step\n\nHighest of PyTorch's counters in each phase.\n\n" + phases.print();
}

std::string tensors_block(const Json& d, std::size_t limit) {
  MdTable tensors{{"size", "count", "kind", "tensor", "shape", "why alive"}, "rrllll", {}};
  const std::vector<TensorGroup> groups = groups_of(rows_of(d.at("tensors_at_peak")));
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
  return "### Alive at the peak\n\n" + tensors.print();
}

std::string grounds_block(const Json& d) {
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
  return "### What this rests on\n\n" + assumed + "\n";
}

}  // namespace

std::string report_md(const Json& d, const View& view) {
  MdPage page;
  const Json& s = d.at("summary");
  const bool needed = !s.at("verdict").is_null() && s.at("verdict") != "fits";
  page.blocks.push_back(headline(d) +
                        fmt::format("Setup: {}; {} parameters. The peak is in {}.\n\n", md_text(setup_sentence(d)),
                                    short_count(d.at("input").at("parameters")), md_code(peak_place(d), 200)));
  if (std::string gate = gate_block(d); !gate.empty()) page.blocks.push_back(std::move(gate));
  if (const auto diff = d.find("diff"); diff != d.end())
    page.blocks.push_back(fmt::format("### Against the baseline\n\n**{} → {}**, {}.\n\n",
                                      human(diff->at("summary").at("base_bytes")),
                                      human(diff->at("summary").at("head_bytes")), change_of(*diff)) +
                          setup_list(diff->at("setup")) + diff_tables(*diff, row_limit(view, 8)));
  const std::string changes = changes_block(d, needed, nullptr);
  if (needed) page.blocks.push_back(changes);

  page.blocks.push_back(parts_block(d));
  page.blocks.push_back(phases_block(d));
  page.blocks.push_back(tensors_block(d, row_limit(view, 15)));
  page.blocks.push_back("### By module\n\n" + sums_block(d, "at_peak_by_module", "module", "module",
                                                         row_limit(view, 12), "(outside modules)"));
  page.blocks.push_back(md_fold("By op and by dtype",
                                sums_block(d, "at_peak_by_op", "op", "made by", row_limit(view, 12), "(not by an op)") +
                                    sums_block(d, "at_peak_by_dtype", "dtype", "dtype", 12, "(none)")));
  if (!needed && !changes.empty()) page.blocks.push_back(changes);

  page.blocks.push_back(grounds_block(d));
  page.blocks.push_back(fmt::format(
      "### Again\n\n```sh\n{}\n```\n\nmemplan {}, {}. *Requested* is what the program asks for, *allocated* the blocks "
      "it gets, *reserved* the segments that "
      "PyTorch's allocator holds; the process, which nvidia-smi shows, adds the CUDA context.\n",
      command_of(d), md_text(text_of(d.at("tool"), "version")), md_text(text_of(d.at("device"), "explanation"))));
  return page.print();
}

}  // namespace memplan::cli
