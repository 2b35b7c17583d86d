#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/report/document.h"
#include "cli/report/report.h"
#include "cli/report/state.h"
#include "cli/report/words.h"

namespace memplan::cli {

namespace {

Paint paint_of(std::string_view verdict) {
  if (verdict == "fits") return Paint::green;
  if (verdict == "no-fit") return Paint::red;
  return Paint::yellow;
}

/// The letter of a part in the bar and in the table.
char letter_of(const std::string& category) {
  static constexpr std::pair<std::string_view, char> letters[] = {
      {"parameters", 'P'},  {"buffers", 'B'},    {"gradients", 'G'}, {"optimizer state", 'O'}, {"activations", 'A'},
      {"temporaries", 'T'}, {"workspaces", 'W'}, {"batch", 'I'},     {"outputs", 'U'},         {"rounding", 'r'},
      {"cached", 'c'},      {"context", 'x'},    {"nccl", 'N'}};
  for (const auto& [name, letter] : letters)
    if (name == category) return letter;
  return '?';
}

std::string dims_words(const Json& document) {
  std::string words;
  const Json& dims = document.at("setup").at("dims");
  for (const Json& d : dims)
    words += fmt::format("  {}={}{}", text_of(d, "name"), d.at("size").get<std::int64_t>(),
                         origin_words(text_of(d, "origin")));
  if (!dims.empty()) return words;
  for (const Json& i : document.at("input").at("inputs"))
    words += fmt::format("  {} {}", text_of(i, "name"), shape_text(i.at("shape")));
  return words;
}

struct Figures {
  std::int64_t peak, low, high;
  bool given;  ///< a GPU was named
  std::int64_t limit = 0, margin = 0, headroom = 0;
  std::string verdict;
  explicit Figures(const Json& document) {
    const Json& s = document.at("summary");
    peak = s.at("peak_bytes"), low = s.at("low_bytes"), high = s.at("high_bytes");
    given = !s.at("verdict").is_null();
    if (given)
      limit = s.at("limit_bytes"), margin = s.at("margin_bytes"), headroom = s.at("headroom_bytes"),
      verdict = text_of(s, "verdict");
  }
};

/// Parts as letters over the width; what is left of the device as dots; the end of the device as '|'.
std::string bar(const Json& document, const Figures& f, const Style& style) {
  const std::size_t room = std::min<std::size_t>(style.width, 100) - 4;
  const double peak = static_cast<double>(f.peak);
  const double total = f.given ? std::max(peak, static_cast<double>(f.limit)) : peak;
  if (peak <= 0 || total <= 0) return {};
  std::string out;
  double at = 0;
  for (const Json& p : document.at("breakdown")) {
    at += static_cast<double>(p.at("bytes").get<std::int64_t>());
    const auto end =
        static_cast<std::size_t>(std::llround(std::clamp(at / total, 0.0, 1.0) * static_cast<double>(room)));
    if (end > out.size()) out.append(end - out.size(), letter_of(text_of(p, "category")));
  }
  out.append(room - std::min(room, out.size()), '.');
  if (f.given) {
    const auto limit = static_cast<std::size_t>(std::clamp(static_cast<double>(f.limit) / total, 0.0, 1.0) *
                                                static_cast<double>(room));
    out.insert(std::min(limit, out.size()), "|");
  }
  return "  " + out + "\n";
}

/// How sure the figure is, in a word, and why. Older reports do not say.
std::string certainty_line(const Json& document, const Style& style) {
  const Json& s = document.at("summary");
  if (!s.contains("certainty")) return {};
  std::string text = fmt::format("{}: {}", text_of(s, "certainty"), text_of(s, "certainty_why"));
  if (!s.at("surer").is_null()) text += "; to be surer, " + text_of(s, "surer");
  std::string out = "  " + wrap(text, style.width, 2, 2) + "\n";
  if (s.contains("confirmation") && !s.at("confirmation").is_null())
    out += "  " + wrap(text_of(s, "confirmation"), style.width, 2, 2) + "\n";
  return out;
}

std::string verdict_lines(const Json& document, const Figures& f, const Style& style) {
  std::string range;
  if (f.low != f.high) range = fmt::format(" ({} {} {})", human(f.low), style.dash(), human(f.high));
  if (!f.given)
    return style.paint("NEEDS", Paint::bold) +
           fmt::format("  {}{} as nvidia-smi shows it\n", style.paint(human(f.peak), Paint::bold), range) +
           certainty_line(document, style);
  const Json& summary = document.at("summary");
  const std::string head = headline_of(f.verdict);
  std::string out = style.paint(head, paint_of(f.verdict));
  std::string rest = fmt::format("peak {}{} of {}", human(f.peak), range, human(f.limit));
  if (f.verdict == "no-fit" && f.headroom < 0)
    rest += fmt::format(", over by {}", human(-f.headroom));
  else
    rest += "; " + text_of(summary, "why");
  out += "  " + wrap(rest, style.width, 2, columns(head) + 2);
  if (f.verdict == "no-fit" && !summary.at("out_of_memory_at").is_null())
    out += "\n  " + wrap(fmt::format("out of memory at {}", text_of(summary, "out_of_memory_at")), style.width, 2, 2);
  return out + "\n" + certainty_line(document, style);
}

std::string parts_table(const Json& document, const Style& style) {
  const Json& parts = document.at("breakdown");
  std::vector<Bytes> bytes;
  for (const Json& p : parts) bytes.push_back(Bytes(p.at("bytes").get<std::int64_t>()));
  const Column column = add_up(bytes);
  Table table;
  table.head = {"", column.unit, "SHARE", "PART", "BASIS"};
  table.right = {false, true, true, false, false};
  const double total =
      static_cast<double>(std::max<std::int64_t>(1, document.at("summary").at("peak_bytes").get<std::int64_t>()));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const Json& p = parts[i];
    // Too small to be seen in this unit, so nothing is missing from the sum either; JSON has every byte.
    if (column.parts[i].find_first_not_of("0.") == std::string::npos) continue;
    const std::string category = text_of(p, "category");
    table.rows.push_back({std::string(1, letter_of(category)), column.parts[i],
                          fmt::format("{:.1f}%", static_cast<double>(bytes[i].count) / total * 100),
                          part_name(category), text_of(p, "basis")});
  }
  table.rows.push_back({"", column.total, "100.0%", "total of the process", ""});
  return table.print(style);
}

/// PyTorch's counters of the first step and of the last one, where they differ.
std::string steps_lines(const Json& document, const Style& style) {
  std::vector<const Json*> steps;
  for (const Json& s : document.at("steps"))
    if (s.at("step").get<std::int64_t>() > 0) steps.push_back(&s);
  if (steps.empty()) return {};
  Table table;
  table.head = {"", "REQUESTED", "ALLOCATED", "RESERVED", "PROCESS"};
  table.right = {false, true, true, true, true};
  const auto row = [&](std::string name, const Json& c) {
    table.rows.push_back({std::move(name), human(c.at("requested_bytes")), human(c.at("allocated_bytes")),
                          human(c.at("reserved_bytes")), human(c.at("process_bytes"))});
  };
  row("step 1", steps.front()->at("peak"));
  if (steps.size() > 1)
    row(fmt::format("step {} (steady)", steps.back()->at("step").get<std::int64_t>()), steps.back()->at("peak"));
  return table.print(style);
}

/// Classes of ranks where there are several: the report is that of the heaviest.
std::string ranks_lines(const Json& document, const Style& style) {
  const auto ranks = document.find("ranks");
  if (ranks == document.end() || ranks->size() < 2) return {};
  Table table;
  table.head = {"RANKS", "GPUS", "BLOCKS", "IN FLIGHT", "ALLOCATED", "PROCESS"};
  table.right = {false, true, true, true, true, true};
  for (const Json& r : *ranks)
    table.rows.push_back({text_of(r, "name"), grouped(r.at("gpus")), grouped(r.at("blocks")),
                          grouped(r.at("in_flight")), human(r.at("peak").at("allocated_bytes")),
                          human(r.at("peak").at("process_bytes"))});
  return "\n" + style.paint("Ranks", Paint::bold) + "\n" + table.print(style);
}

std::string alternatives(const Json& document, const Figures& f, const Style& style) {
  std::string out;
  const auto line = [&](const std::string& text) { out += "  " + wrap(text, style.width, 4, 2) + "\n"; };
  const Json& also = document.at("alternatives");
  if (const Json& i = also.at("inference"); !i.is_null())
    line(fmt::format("inference only: peak {}{}", human(i.at("peak_bytes")),
                     f.given ? fmt::format(", {}", text_of(i, "verdict")) : ""));
  if (const Json& l = also.at("largest_batch"); !l.is_null()) {
    const std::int64_t batch = l.at("batch");
    if (batch == 0)
      line(fmt::format("no batch fits: batch 1 needs {}", human(l.at("peak_bytes"))));
    else
      line(fmt::format("largest batch that fits: {}{} (peak {})", l.at("at_least").get<bool>() ? "at least " : "",
                       grouped(batch), human(l.at("peak_bytes"))));
  }
  for (const Json& c : also.at("changes"))
    line(fmt::format("{}: peak {}, {}", text_of(c, "flags"), human(c.at("peak_bytes")), text_of(c, "verdict")));
  std::string cards;
  for (const Json& c : also.at("cards"))
    cards += fmt::format("{}{} ({} of {})", cards.empty() ? "" : ", ", text_of(c, "key"), human(c.at("peak_bytes")),
                         human(c.at("usable_bytes")));
  if (!cards.empty()) line("smallest cards that fit: " + cards);
  return out.empty() ? out : style.paint("Also estimated", Paint::bold) + "\n" + out;
}

std::string counters_title(const Json& document) {
  return document.at("setup").contains("runtime") ? "ONNX Runtime's requests and arena, highest in the run"
                                                  : "PyTorch's counters, highest in the step";
}

std::string quiet_line(const Json& document, const Figures& f) {
  std::string line = f.given ? fmt::format("{}  peak {}  limit {}", f.verdict, human(f.peak), human(f.limit))
                             : fmt::format("needs {}", human(f.peak));
  if (const auto status = document.at("gate").find("status"); status != document.at("gate").end()) {
    line += fmt::format("  gate {}", status->get<std::string>());
    for (const Json& r : document.at("gate").at("rules"))
      if (state_of(r) == GateState::failed) line += fmt::format("  {}", text_of(r, "rule"));
  }
  return line + "\n";
}

std::string report_text(const Json& document, const View& view) {
  const Style& style = view.style;
  const Figures f(document);
  if (view.quiet) return quiet_line(document, f);
  const Json& device = document.at("device");
  std::string out = wrap(fmt::format("{}  {}{}  {} parameters", file_name(text_of(document.at("input"), "path")),
                                     setup_words(document.at("setup")), dims_words(document),
                                     short_count(document.at("input").at("parameters"))),
                         style.width, 2) +
                    "\n";
  if (f.given)
    out += wrap(fmt::format("{}  margin {}", text_of(device, "explanation"), human(f.margin)), style.width, 2) + "\n";
  else
    out += wrap(fmt::format("no --gpu given: computed for {}", text_of(device, "key")), style.width, 2) + "\n";
  out += "\n" + verdict_lines(document, f, style) + bar(document, f, style) + parts_table(document, style);
  out += "\n" + style.paint("Peak", Paint::bold) + ": " + wrap(peak_place(document), style.width, 6, 6) + "\n";
  out += tensor_table(groups_at_peak(document), static_cast<std::size_t>(view.top.value_or(6)), style);
  out += "\n" + style.paint(counters_title(document), Paint::bold) + "\n" + steps_lines(document, style);
  out += ranks_lines(document, style);
  if (const std::string gate = report_gate_text(document, style); !gate.empty()) out += "\n" + gate;
  if (const std::string also = alternatives(document, f, style); !also.empty()) out += "\n" + also;
  out += "\n";
  std::string assumed;
  for (const Json& s : document.at("assumptions")) assumed += (assumed.empty() ? "" : "; ") + s.get<std::string>();
  if (!assumed.empty()) out += style.paint("Assumed", Paint::bold) + ": " + wrap(assumed, style.width, 2, 9) + "\n";
  for (const Json& n : document.at("warnings"))
    out += style.paint("Note", Paint::bold) + ": " +
           wrap(fmt::format("{} [{}]", text_of(n, "message"), text_of(n, "code")), style.width, 2, 6) + "\n";
  for (const Json& u : document.at("unmodelled")) {
    const std::int64_t widened = u.at("widened_by_bytes");
    out += style.paint("Not modelled", Paint::yellow) + ": " +
           wrap(fmt::format("{} {} {}: {}{}", u.at("count").get<std::int64_t>(), style.times(), text_of(u, "op"),
                            text_of(u, "handling"),
                            widened ? fmt::format(", widens the range by {}", human(widened)) : ""),
                style.width, 2, 14) +
           "\n";
  }
  return out + style.paint("Next", Paint::bold) + ": " + wrap(next_command(document), style.width, 2, 6) + "\n";
}

}  // namespace

std::string render_text(const Json& document, const View& view) {
  switch (kind_of(document)) {
    case check_document:
      return check_text(document, view);
    case diff_document:
      return diff_text(document, view);
    default:
      return report_text(document, view);
  }
}

}  // namespace memplan::cli
