#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "cli/report/report.h"
#include "estimators/estimate/assumptions.h"

namespace memplan::cli {

namespace {

Paint paint_of(Verdict v) {
  switch (v) {
    case Verdict::fits: return Paint::green;
    case Verdict::tight: return Paint::yellow;
    case Verdict::no_fit: return Paint::red;
    case Verdict::unknown: return Paint::yellow;
  }
  return Paint::none;
}

const char* headline(Verdict v) {
  switch (v) {
    case Verdict::fits: return "FITS";
    case Verdict::tight: return "TIGHT";
    case Verdict::no_fit: return "DOES NOT FIT";
    case Verdict::unknown: return "UNKNOWN";
  }
  return "?";
}

/// The letter of a part in the bar and in the table.
char letter_of(const std::string& category) {
  static const std::map<std::string, char, std::less<>> letters{
      {"parameters", 'P'}, {"buffers", 'B'}, {"gradients", 'G'}, {"optimizer state", 'O'}, {"activations", 'A'}, {"temporaries", 'T'},
      {"workspaces", 'W'}, {"batch", 'I'}, {"outputs", 'U'}, {"rounding", 'r'}, {"cached", 'c'}, {"context", 'x'}};
  const auto it = letters.find(category);
  return it == letters.end() ? '?' : it->second;
}

std::string long_name(const std::string& category) {
  static const std::map<std::string, std::string, std::less<>> names{
      {"buffers", "buffers of the modules"}, {"workspaces", "library workspaces"}, {"batch", "input batch"}, {"outputs", "model outputs"},
      {"rounding", "rounding of blocks"}, {"cached", "cached by the allocator"}, {"context", "CUDA context and libraries"}};
  const auto it = names.find(category);
  return it == names.end() ? category : it->second;
}

std::string setup_words(const TrainingSetup& s) {
  std::string words = fmt::format("{}  {}", name_of(s.mode), name_of(s.precision));
  if (s.mode == Mode::inference) return words;
  std::string optimizer = name_of(s.optimizer.kind);
  if (s.optimizer.kind == OptimizerKind::none) optimizer = "no optimizer";
  if (s.optimizer.amsgrad) optimizer += " amsgrad";
  if (s.optimizer.momentum > 0) optimizer += fmt::format(" momentum {:g}", s.optimizer.momentum);
  if (s.optimizer.impl != OptimizerImpl::automatic) optimizer += fmt::format(" ({})", name_of(s.optimizer.impl));
  words += "  " + optimizer;
  if (s.accumulate > 1) words += fmt::format("  {} micro-batches", s.accumulate);
  if (s.clip_grad_norm) words += "  clipping";
  if (!s.checkpoint.empty()) words += "  checkpointing";
  if (!s.frozen.empty()) words += "  partly frozen";
  return words;
}

std::string dims_words(const Answer& a) {
  std::string words;
  for (const BoundDim& d : a.dims) words += fmt::format("  {}={}{}", clean(d.name), d.size, d.assumed ? " (assumed)" : "");
  if (!a.dims.empty()) return words;
  for (const Input& i : a.inputs) words += fmt::format("  {} {}", clean(i.name), shape_text(i.sizes));
  return words;
}

std::string file_name(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  return clean(slash == std::string::npos ? path : path.substr(slash + 1));
}

/// Parts as letters over the width; what is left of the device as dots; the end of the device as '|'.
std::string bar(const Answer& a, const Style& style) {
  const std::size_t room = std::min<std::size_t>(style.width, 100) - 4;
  const double peak = static_cast<double>(a.estimate.peak.process.count);
  const double total = a.device_given ? std::max(peak, static_cast<double>(a.judgement.usable.count)) : peak;
  if (peak <= 0 || total <= 0) return {};
  std::string out;
  double at = 0;
  for (const CategoryPart& p : a.estimate.parts) {
    at += static_cast<double>(p.bytes.count);
    const auto end = static_cast<std::size_t>(std::llround(at / total * static_cast<double>(room)));
    if (end > out.size()) out.append(end - out.size(), letter_of(p.category));
  }
  out.append(room - std::min(room, out.size()), '.');
  if (a.device_given) {
    const auto limit = static_cast<std::size_t>(static_cast<double>(a.judgement.usable.count) / total * static_cast<double>(room));
    out.insert(std::min(limit, out.size()), "|");
  }
  return "  " + out + "\n";
}

std::string peak_place(const Estimate& e) {
  std::string text = fmt::format("step {} of {}, {}", e.peak_step, e.steps.empty() ? 0 : e.steps.back().step, name_of(e.peak_phase));
  if (!e.peak_op.empty()) text += ", " + clean(e.peak_op);
  if (!e.peak_module.empty()) text += " in " + clean(e.peak_module);
  return text;
}

std::string verdict_lines(const Answer& a, const Style& style) {
  const Estimate& e = a.estimate;
  const Judgement& j = a.judgement;
  std::string range;
  if (e.low != e.high) range = fmt::format(" ({} {} {})", to_human(e.low), style.dash(), to_human(e.high));
  if (!a.device_given)
    return style.paint("NEEDS", Paint::bold) + fmt::format("  {}{} as nvidia-smi shows it\n", style.paint(to_human(e.peak.process), Paint::bold), range);
  std::string out = style.paint(headline(j.verdict), paint_of(j.verdict));
  std::string rest = fmt::format("peak {}{} of {}", to_human(e.peak.process), range, to_human(j.usable));
  if (j.verdict == Verdict::no_fit && j.headroom.count < 0) rest += fmt::format(", over by {}", to_human(Bytes(-j.headroom.count)));
  else rest += "; " + j.why;
  out += "  " + wrap(rest, style.width, 2, columns(headline(j.verdict)) + 2);
  if (j.verdict == Verdict::no_fit && e.out_of_memory) out += "\n  " + wrap(fmt::format("out of memory at {}", clean(e.out_of_memory_at)), style.width, 2, 2);
  return out + "\n";
}

std::string parts_table(const Answer& a, const Style& style) {
  std::vector<Bytes> bytes;
  for (const CategoryPart& p : a.estimate.parts) bytes.push_back(p.bytes);
  const Column column = add_up(bytes);
  Table table;
  table.head = {"", column.unit, "SHARE", "PART", "BASIS"};
  table.right = {false, true, true, false, false};
  const double total = static_cast<double>(std::max<std::int64_t>(1, a.estimate.peak.process.count));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const CategoryPart& p = a.estimate.parts[i];
    // Too small to be seen in this unit, so nothing is missing from the sum either; JSON has every byte.
    if (column.parts[i].find_first_not_of("0.") == std::string::npos) continue;
    table.rows.push_back({std::string(1, letter_of(p.category)), column.parts[i], fmt::format("{:.1f}%", static_cast<double>(p.bytes.count) / total * 100),
                          long_name(p.category), p.basis});
  }
  table.rows.push_back({"", column.total, "100.0%", "total of the process", ""});
  return table.print(style);
}

/// PyTorch's counters of the first step and of the last one, where they differ.
std::string steps_lines(const Answer& a, const Style& style) {
  std::vector<StepSummary> steps;
  for (const StepSummary& s : a.estimate.steps)
    if (s.step > 0) steps.push_back(s);
  if (steps.empty()) return {};
  Table table;
  table.head = {"", "REQUESTED", "ALLOCATED", "RESERVED", "PROCESS"};
  table.right = {false, true, true, true, true};
  const auto row = [&](std::string name, const Counters& c) {
    table.rows.push_back({std::move(name), to_human(c.requested), to_human(c.allocated), to_human(c.reserved), to_human(c.process)});
  };
  row("step 1", steps.front().peak);
  if (steps.size() > 1) row(fmt::format("step {} (steady)", steps.back().step), steps.back().peak);
  return table.print(style);
}

std::string alternatives(const Answer& a, const Style& style) {
  std::string out;
  const auto line = [&](const std::string& text) { out += "  " + wrap(text, style.width, 4, 2) + "\n"; };
  if (a.inference)
    line(fmt::format("inference only: peak {}{}", to_human(a.inference->peak), a.device_given ? fmt::format(", {}", name_of(a.inference->verdict)) : ""));
  if (a.largest) {
    if (a.largest->batch == 0) line(fmt::format("no batch fits: batch 1 needs {}", to_human(a.largest->peak)));
    else
      line(fmt::format("largest batch that fits: {}{} (peak {})", a.largest->at_least ? "at least " : "", grouped(a.largest->batch), to_human(a.largest->peak)));
  }
  for (const Alternative& c : a.changes) line(fmt::format("{}: peak {}, {}", c.flags, to_human(c.peak), name_of(c.verdict)));
  if (!a.cards.empty()) {
    std::string cards;
    for (const Card& c : a.cards) cards += fmt::format("{}{} ({} of {})", cards.empty() ? "" : ", ", c.device.key, to_human(c.peak), to_human(c.device.total));
    line("smallest cards that fit: " + cards);
  }
  return out.empty() ? out : style.paint("Also estimated", Paint::bold) + "\n" + out;
}

/// The flags without --batch, for a command that sets another one.
std::string without_batch(std::string flags) {
  const std::size_t at = flags.find(" --batch ");
  if (at == std::string::npos) return flags;
  return flags.erase(at, flags.find(' ', at + 9) == std::string::npos ? std::string::npos : flags.find(' ', at + 9) - at);
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& sizes) {
  std::string text;
  for (std::int64_t s : sizes) text += fmt::format("{}{}", text.empty() ? "" : "x", s);
  return text.empty() ? "scalar" : text;
}

std::string one_line(const Answer& a) {
  if (!a.device_given) return fmt::format("peak={} limit=none", a.estimate.peak.process.count);
  return fmt::format("verdict={} peak={} limit={}", name_of(a.judgement.verdict), a.estimate.peak.process.count, a.judgement.usable.count);
}

std::string text_report(const Answer& a, const Options& options, const Style& style) {
  const Estimate& e = a.estimate;
  if (options.quiet) {
    if (!a.device_given) return fmt::format("needs {}\n", to_human(e.peak.process));
    return fmt::format("{}  peak {}  limit {}\n", name_of(a.judgement.verdict), to_human(e.peak.process), to_human(a.judgement.usable));
  }
  std::string out = wrap(fmt::format("{}  {}{}  {} parameters", file_name(a.path), setup_words(a.setup), dims_words(a), short_count(e.parameter_count)),
                         style.width, 2) + "\n";
  if (a.device_given)
    out += wrap(fmt::format("{}  margin {}", clean(a.choice.explanation), to_human(a.margin)), style.width, 2) + "\n";
  else
    out += wrap(fmt::format("no --gpu given: computed for {}", a.choice.device.key), style.width, 2) + "\n";
  out += "\n" + verdict_lines(a, style) + bar(a, style) + parts_table(a, style);
  out += "\n" + style.paint("Peak", Paint::bold) + ": " + wrap(peak_place(e), style.width, 6, 6) + "\n";
  const std::int64_t rows = options.top.value_or(6);
  out += tensor_table(e.live_at_peak, rows == 0 ? e.live_at_peak.size() : static_cast<std::size_t>(rows), style);
  out += "\n" + style.paint("PyTorch's counters, highest in the step", Paint::bold) + "\n" + steps_lines(a, style);
  if (const std::string also = alternatives(a, style); !also.empty()) out += "\n" + also;
  out += "\n";
  std::string assumed;
  for (const std::string& s : e.assumptions) assumed += (assumed.empty() ? "" : "; ") + clean(s);
  if (!assumed.empty()) out += style.paint("Assumed", Paint::bold) + ": " + wrap(assumed, style.width, 2, 9) + "\n";
  for (const Note& n : e.notes) out += style.paint("Note", Paint::bold) + ": " + wrap(fmt::format("{} [{}]", clean(n.text), n.code), style.width, 2, 6) + "\n";
  for (const Unmodelled& u : e.unmodelled)
    out += style.paint("Not modelled", Paint::yellow) + ": " +
           wrap(fmt::format("{} {} {}: {}{}", u.count, style.times(), clean(u.op), clean(u.handling),
                            u.widened_by.count ? fmt::format(", widens the range by {}", to_human(u.widened_by)) : ""), style.width, 2, 14) + "\n";
  // Ready to paste: with the flags of this run, without those that the advice replaces.
  const std::string path = clean(shell_word(a.path)), flags = clean(options.setup_words);
  std::string next = fmt::format("memplan explain {}{}", path, flags);
  if (!a.device_given) next = fmt::format("memplan {}{} --gpu {}", path, flags, a.cards.empty() ? "80GB" : a.cards.front().device.key);
  else if (a.judgement.verdict == Verdict::unknown) next = fmt::format("memplan ops {} --unsupported", path);
  else if (a.largest && a.largest->batch > 0 && a.judgement.verdict == Verdict::no_fit) next = fmt::format("memplan {}{} --batch {}", path, without_batch(flags), a.largest->batch);
  out += style.paint("Next", Paint::bold) + ": " + wrap(next, style.width, 2, 6) + "\n";
  return out;
}

}  // namespace memplan::cli
