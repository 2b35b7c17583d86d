#include "cli/observe/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace memplan::cli {

namespace {

Paint paint_of(Verdict v) {
  return v == Verdict::fits     ? Paint::green
         : v == Verdict::tight  ? Paint::yellow
         : v == Verdict::no_fit ? Paint::red
                                : Paint::cyan;
}

std::string where_of(const Place& p) {
  std::string where = p.code.empty() ? p.script : p.code;
  // The line as written tells more than the name of its function.
  if (!p.text.empty()) where = where.substr(0, where.find(" in ")) + ": " + p.text;
  if (p.op.starts_with("backward"))
    where = p.op + (where.empty() ? "" : " of " + where);
  else if (p.text.empty() && !p.op.empty())
    where += (where.empty() ? "" : ", ") + p.op;
  return clean(where);
}

const char* kind_text(const std::string& kind) {
  if (kind == "parameters") return "parameters";
  if (kind == "gradients") return "gradients";
  if (kind == "buffers") return "buffers of modules";
  if (kind == "optimizer") return "optimizer: state and temporaries";
  if (kind == "step") return "activations and temporaries, freed later on";
  return "other that stays: workspaces, inputs, what names hold";
}

/// What it needs, where that is known, and else how far it came.
std::string no_fit_headline(const Observation& o, const std::string& card, const Style& style) {
  const std::string verdict = style.paint("does not fit", Paint::red);
  if (!o.limited || o.out_of_memory.empty())
    return fmt::format("{}: needs {}{}; {} on {}\n", style.paint("observed", Paint::bold), to_human(o.peak),
                       o.ranks.size() > 1 ? " on the rank that needs most" : "", verdict, card);
  const OutOfMemory& x = o.out_of_memory.front();
  return fmt::format("{}: {} on {}: memory ran out at {}, with {} more wanted (--rerun says what all of it needs)\n",
                     style.paint("observed", Paint::bold), verdict, card, to_human(o.peak), to_human(x.wanted));
}

/// Up to about `most` characters, whole sentences or at least whole words.
std::string first_sentences(const std::string& text, std::size_t most) {
  const std::string line = text.substr(0, text.find('\n'));
  if (line.size() <= most) return line;
  const std::size_t sentence = line.rfind(". ", most);
  if (sentence != std::string::npos && sentence > most / 3) return line.substr(0, sentence + 1);
  return line.substr(0, std::min(line.rfind(' ', most), most)) + " …";
}

std::string headline(const Observation& o, const Style& style) {
  const Bytes usable = o.choice.device.total;
  const std::string card = fmt::format("{} ({})", o.choice.device.key, to_human(usable));
  std::string text;
  switch (o.verdict) {
    case Verdict::fits:
      text = fmt::format("{} on {}, {} stay free", style.paint("fits", Paint::green), card, to_human(usable - o.peak));
      break;
    case Verdict::tight:
      text =
          fmt::format("{} on {}, {} stay free", style.paint("tight", Paint::yellow), card, to_human(usable - o.peak));
      break;
    case Verdict::no_fit:
      return no_fit_headline(o, card, style);
    case Verdict::unknown: {
      const bool failed = std::any_of(o.exit_codes.begin(), o.exit_codes.end(), [](int code) { return code != 0; });
      text = fmt::format("{} whether it fits on {}: {}", style.paint("unknown", Paint::cyan), card,
                         failed ? "the script failed, these are the figures up to there" : "see the notes below");
      break;
    }
  }
  return fmt::format("{}: {} of GPU memory{}; {}\n", style.paint("observed", Paint::bold), to_human(o.peak),
                     o.ranks.size() > 1 ? " on the rank that needs most" : "", text);
}

std::string ranks_table(const Observation& o, const Style& style) {
  Table table;
  table.head = {"RANK", "REQUESTED", "ALLOCATED", "RESERVED", "PROCESS", "STEPS", "VERDICT"};
  table.right = {true, true, true, true, true, true, false};
  for (const Observed& r : o.ranks) {
    const std::string rank = r.ranked ? std::to_string(r.rank) : "-";
    const bool several =
        std::count_if(o.ranks.begin(), o.ranks.end(), [&](const Observed& x) { return x.rank == r.rank; }) > 1;
    table.rows.push_back({several ? fmt::format("{} gpu {}", rank, r.device) : rank, to_human(r.requested),
                          to_human(r.allocated), to_human(r.reserved), to_human(r.process), std::to_string(r.steps),
                          style.paint(name_of(r.verdict), paint_of(r.verdict))});
  }
  return table.print(style);
}

struct ShownRow {
  Bytes bytes;
  std::int64_t count = 0;
  std::string kind, where;
};

/// Rows that would read alike are one; largest first.
std::vector<ShownRow> shown_rows(const Observed& r) {
  std::vector<ShownRow> rows;
  for (const BlockRow& b : r.blocks) {
    std::string where = where_of(b.place);
    if (!b.names.empty())
      where = fmt::format("{}{}{}", b.owner.empty() ? "" : clean(b.owner) + ": ", clean(b.names.front()),
                          b.count > 1 ? fmt::format(" and {} more", b.count - 1) : "");
    if (where.empty()) where = "(no Python frame: made by PyTorch itself)";
    const auto same =
        std::find_if(rows.begin(), rows.end(), [&](const ShownRow& x) { return x.kind == b.kind && x.where == where; });
    if (same == rows.end()) {
      rows.push_back({b.bytes, b.count, b.kind, where});
    } else {
      same->bytes += b.bytes;
      same->count += b.count;
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const ShownRow& a, const ShownRow& b) { return a.bytes > b.bytes; });
  return rows;
}

std::string compiled_text(const Compiled& c, const Style& style) {
  std::int64_t breaks = 0;
  for (const auto& [reason, count] : c.breaks) breaks += count;
  std::string out = fmt::format("\ntorch.compile: {} graph{}, {} graph break{}\n", c.graphs, c.graphs == 1 ? "" : "s",
                                breaks, breaks == 1 ? "" : "s");
  for (const auto& [reason, count] : c.breaks)
    out += fmt::format("  {:>6} {}  {}\n", count, style.times(), wrap(clean(reason), style.width, 12, 12));
  if (!c.eager.empty()) out += "  PyTorch gave up compiling these functions; they run as eager code:\n";
  for (const Compiled::Eager& f : c.eager)
    out += fmt::format("  {:>6} {}  {}\n", f.count, style.times(),
                       wrap(clean(fmt::format("{}: {}", f.function, f.reason)), style.width, 12, 12));
  if (c.runs.size() < 2) return out;
  Table table;
  table.head = {"CACHES", "REQUESTED", "ALLOCATED", "RESERVED", "PROCESS"};
  table.right = {false, true, true, true, true};
  for (const Compiled::Run& r : c.runs)
    table.rows.push_back(
        {r.caches, to_human(r.requested), to_human(r.allocated), to_human(r.reserved), to_human(r.process)});
  return out + table.print(style);
}

std::string peak_text(const Observation& o, const Observed& r, std::size_t rows, const Style& style) {
  std::string out = fmt::format("\npeak{}: {} requested", o.ranks.size() > 1 ? fmt::format(" of rank {}", r.rank) : "",
                                to_human(r.peak_requested));
  if (!r.phase.empty()) out += fmt::format(", in the {}", r.phase == "optimizer" ? "optimizer step" : r.phase);
  if (const std::string at = where_of(r.peak_at); !at.empty())
    out += fmt::format(", at {}", shorten(at, style.width > 60 ? style.width - 50 : 40, style));
  out += "\n";
  for (const auto& [kind, n] : r.by_kind) out += fmt::format("  {:>10}  {}\n", to_human(n), kind_text(kind));
  if (!r.history_complete) out += "  (the record of allocations was full: what lived earlier may be missing)\n";
  if (r.blocks.empty()) return out;
  Table table;
  table.head = {"BYTES", "COUNT", "KIND", "WHERE"};
  table.right = {true, true, false, false};
  table.flexible = {3};
  for (const ShownRow& b : shown_rows(r)) {
    if (rows && table.rows.size() >= rows) break;
    table.rows.push_back({to_human(b.bytes), std::to_string(b.count), b.kind, b.where});
  }
  return out + "\n" + table.print(style);
}

}  // namespace

std::string observation_text(const Observation& o, std::size_t rows, const Style& style) {
  std::string out = headline(o, style);
  out += wrap(fmt::format("{}: unmodified PyTorch {} on an emulated {}{}{}; kernels do nothing. PROCESS is what the "
                          "driver handed out and {} of CUDA context{}.",
                          clean(fmt::format("{}", fmt::join(o.command, " "))), clean(o.ranks.front().torch),
                          o.choice.device.key, o.device_given ? "" : " (no --gpu was given)",
                          o.ran_out ? fmt::format(", a second time without a limit, since the first run ran out at {}",
                                                  to_human(*o.ran_out))
                          : o.limited ? ""
                                      : " without a limit",
                          to_human(o.context),
                          o.ranks.front().nccl.count
                              ? fmt::format(", with {} that NCCL takes by itself (a published figure)",
                                            to_human(o.ranks.front().nccl))
                              : ""),
              style.width, 0) +
         "\n\n";
  out += ranks_table(o, style);
  for (const OutOfMemory& x : o.out_of_memory)
    out += wrap(fmt::format("out of memory on rank {}: {} more were wanted with {} allocated and {} reserved{}", x.rank,
                            to_human(x.wanted), to_human(x.allocated), to_human(x.reserved),
                            where_of(x.place).empty() ? "" : ", at " + where_of(x.place)),
                style.width, 0) +
           "\n";
  if (!o.exception.empty())
    out +=
        wrap(fmt::format("the script ended with {}", clean(first_sentences(o.exception, 400))), style.width, 0) + "\n";
  const auto largest = std::max_element(o.ranks.begin(), o.ranks.end(),
                                        [](const Observed& a, const Observed& b) { return a.process < b.process; });
  if (o.compiled) out += compiled_text(*o.compiled, style);
  out += peak_text(o, *largest, rows, style);
  if (!o.reads.empty()) {
    out += "\nvalues read from the device (all zero here; a decision that rests on one may go another way):\n";
    std::size_t shown = 0;
    for (const Read& r : o.reads) {
      if (++shown > 10) break;
      const std::string where = where_of(r.place);
      out += fmt::format("  {:>6} {}  {}\n", r.count, style.times(),
                         shorten(where.empty() ? "(no Python frame)" : where, style.width - 12, style));
    }
    if (o.reads.size() > 10) out += fmt::format("  and {} more places\n", o.reads.size() - 10);
  }
  if (!o.unknown.empty()) {
    out += "\nnot known without a device, so not (or not fully) in the figures:\n";
    for (const auto& [what, count] : o.unknown)
      out += fmt::format("  {:>6} {}  {}\n", count, style.times(), shorten(clean(what), style.width - 12, style));
  }
  if (!o.advice.empty()) {
    out += "\nWhat to change:\n";
    for (const std::string& line : o.advice) out += "  * " + wrap(line, style.width, 4, 4) + "\n";
  }
  for (const std::string& note : o.notes) out += wrap("note: " + clean(note), style.width, 6) + "\n";
  return out;
}

}  // namespace memplan::cli
