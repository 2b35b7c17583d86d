#include <fmt/format.h>

#include <algorithm>

#include "cli/flags/merged_words.h"
#include "cli/report/report.h"
#include "cli/report/suggestion.h"
#include "estimators/base/shell.h"

namespace memplan::cli {

namespace {

std::string slower_text(const Candidate& c, const Candidate& present) {
  const double now = present.time.total() / static_cast<double>(present.samples),
               then = c.time.total() / static_cast<double>(c.samples);
  if (now <= 0) return {};
  const double percent = (then / now - 1) * 100;
  return std::abs(percent) < 0.5 ? "same" : fmt::format("{:+.0f} %", percent);
}

std::string flags_or_none(const Candidate& c) { return c.flags.empty() ? "as it is" : clean(c.flags); }

/// Figures first, then the flags, which may go on in the next line.
std::string candidate_lines(const std::vector<Candidate>& list, const Candidate& present, bool numbered,
                            const Style& style) {
  Table table;
  table.head = {numbered ? "#" : "", "PEAK", "FREE", "STEP", "PER SAMPLE", "CHANGE"};
  table.right = {true, true, true, true, true, false};
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Candidate& c = list[i];
    table.rows.push_back({numbered ? std::to_string(i + 1) : "", to_human(c.peak), to_human(c.headroom),
                          time_text(c.time.total()), slower_text(c, present), "@"});
  }
  std::string text = table.print(style), out;
  std::size_t at = 0;
  for (std::size_t i = 0; at < text.size(); ++i) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (i > 0 && i <= list.size()) {
      line.erase(line.rfind('@'));
      line += wrap(flags_or_none(list[i - 1]), style.width, columns(line), columns(line));
    }
    out += line + "\n";
    at = end + 1;
  }
  return out;
}

std::string verdict_line(const SuggestAnswer& a, const Style& style) {
  const Candidate& p = a.suggestion.present;
  if (p.verdict == Verdict::fits)
    return style.paint("FITS", Paint::green) + fmt::format(" as it is: peak {} of {}, {} free\n", to_human(p.peak),
                                                           to_human(a.choice.device.total), to_human(p.headroom));
  const char* word = p.verdict == Verdict::tight     ? "TIGHT"
                     : p.verdict == Verdict::unknown ? "MAY NOT FIT"
                                                     : "DOES NOT FIT";
  const std::string over = p.headroom.count < 0 ? fmt::format(", over by {}", to_human(Bytes(-p.headroom.count)))
                                                : fmt::format(", {} free", to_human(p.headroom));
  return style.paint(word, p.verdict == Verdict::no_fit ? Paint::red : Paint::yellow) +
         fmt::format(" as it is: peak {} of {}{}\n", to_human(p.peak), to_human(a.choice.device.total), over);
}

std::string rejections(const Suggestion& s, const Style& style) {
  std::string out;
  std::size_t shown = 0;
  for (const Rejection& r : s.rejected) {
    if (r.flags.empty()) continue;
    if (++shown > 8) break;
    const std::string bytes =
        r.bytes ? fmt::format(": {}{}", r.bound ? "at least " : "", to_human(*r.bytes)) : std::string();
    out += "  " + wrap(fmt::format("{}  {}{}", clean(r.flags), clean(r.why), bytes), style.width, 4, 2) + "\n";
  }
  if (shown > 8) out += fmt::format("  {} and more: --format json has all {}\n", style.ellipsis(), s.rejected.size());
  return out.empty() ? out : "\n" + style.paint("Why not", Paint::bold) + "\n" + out;
}

/// Those that move something, the most saved first; those that were not estimated last.
std::vector<Advice> by_what_they_save(std::vector<Advice> all) {
  std::erase_if(all, [](const Advice& a) { return a.peak && a.saves.count == 0; });
  std::stable_sort(all.begin(), all.end(), [](const Advice& a, const Advice& b) {
    return a.peak.has_value() != b.peak.has_value() ? a.peak.has_value() : a.peak && a.saves > b.saves;
  });
  return all;
}

/// Each known trick with what it saves here, and what to write.
std::string advice_lines(const std::vector<Advice>& known, const Style& style) {
  const std::vector<Advice> all = by_what_they_save(known);
  if (all.empty()) return {};
  std::string out = "\n" + style.paint("What each trick saves here", Paint::bold) + " (docs/oom.md)\n";
  for (const Advice& a : all) {
    const std::string bytes = !a.peak              ? ""
                              : a.saves.count >= 0 ? to_human(a.saves)
                                                   : "+" + to_human(Bytes(-a.saves.count));
    const std::string head = fmt::format("  {:>9}  ", bytes);
    out += head +
           wrap(fmt::format("{}{}: {}", a.title, a.flags.empty() ? "" : " (" + clean(a.flags) + ")", a.note),
                style.width, 13, 13) +
           "\n";
    out += "             " + style.paint(wrap(a.snippet, style.width, 13, 13), Paint::dim) + "\n";
  }
  return out;
}

}  // namespace

std::string indented(const std::string& text) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += (end > at ? "  " : "") + text.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return out;
}

std::string time_text(double seconds) {
  if (seconds < 0.01) return fmt::format("{:.2f} ms", seconds * 1e3);
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::string command_of(const SuggestAnswer& a, const Options& options, const Candidate& c) {
  const std::string words = merged_words(options.setup_words, c.flags);
  return fmt::format("memplan {}{}{}", clean(shell_word(a.path)), words.empty() ? "" : " ", clean(words));
}

std::string enough_text(const FewestGpus& enough, const Device& device) {
  return fmt::format("{} x {} with {} (peak {} each)", grouped(enough.gpus), device.key, clean(enough.flags),
                     to_human(enough.peak));
}

namespace {

/// The setups that fit, or that none does.
std::string fitting_lines(const SuggestAnswer& a, const Style& style) {
  const Suggestion& s = a.suggestion;
  std::string out;
  if (s.smallest) {
    out += "\n" + style.paint("Smallest change that fits", Paint::bold) + "\n" +
           candidate_lines({*s.smallest}, s.present, false, style);
    for (const std::string& caution : s.smallest->cautions)
      out += "  " + wrap("changes the training: " + caution, style.width, 4, 2) + "\n";
  }
  if (!s.fitting.empty()) {
    out +=
        "\n" + style.paint("Fastest that fit", Paint::bold) + "\n" + candidate_lines(s.fitting, s.present, true, style);
    for (const std::string& caution : s.fitting.front().cautions)
      out += "  " + wrap("1 changes the training: " + caution, style.width, 4, 2) + "\n";
    return out;
  }
  out += "\n" +
         style.paint(s.count.left > 0
                         ? fmt::format("Nothing found that fits, {} setups not looked at", grouped(s.count.left))
                         : "Nothing fits",
                     Paint::red) +
         wrap(
             " with the knobs that may be turned; --allow all offers those that change the training, memplan size "
             "the cards that are large enough",
             style.width, 2, 12) +
         "\n";
  if (a.enough) out += wrap("Enough: " + enough_text(*a.enough, a.choice.device), style.width, 2) + "\n";
  return out;
}

/// How the search went, what it took for granted, and what to do next.
std::string closing_lines(const SuggestAnswer& a, const Options& options, const Style& style) {
  const Suggestion& s = a.suggestion;
  const SearchCount& n = s.count;
  std::string out =
      "\n" +
      wrap(fmt::format(
               "Searched {} setups: {} need too much by a bound from below, {} were estimated by replay; {}.",
               grouped(n.setups), grouped(n.bounded), grouped(n.replayed),
               n.left > 0 ? grouped(n.left) + " were not looked at" : "the rest is slower or follows from those"),
           style.width, 2) +
      "\n";
  std::string assumed;
  for (const std::string& sentence : sentences(a.time)) assumed += (assumed.empty() ? "" : "; ") + sentence;
  out += style.paint("Assumed", Paint::bold) + ": " + wrap(assumed, style.width, 2, 9) + "\n";
  if (!s.fitting.empty())
    out += style.paint("Next", Paint::bold) + ": " +
           wrap(command_of(a, options, s.fitting.front()), style.width, 2, 6) + "\n" +
           style.paint("Check it", Paint::bold) + ": " +
           wrap(fmt::format("memplan observe --gpu {} -- python train.py runs your script on an emulated card",
                            clean(shell_word(options.gpu.value_or("80GB")))),
                style.width, 2, 10) +
           "\n";
  return out;
}

}  // namespace

std::string suggest_text(const SuggestAnswer& a, const Options& options, const Style& style) {
  const Suggestion& s = a.suggestion;
  std::string out =
      wrap(fmt::format("{}  {} parameters  {} sample{} per optimizer step", clean(a.path), short_count(a.parameters),
                       grouped(s.present.samples), s.present.samples == 1 ? "" : "s"),
           style.width, 2) +
      "\n";
  out += wrap(fmt::format("{}  margin {}", clean(a.choice.explanation), to_human(a.margin)), style.width, 2) + "\n\n";
  out += verdict_line(a, style) + fitting_lines(a, style);
  if (s.front.size() > 1)
    out += "\n" + style.paint("Memory against time", Paint::bold) +
           " (nothing estimated is both smaller and faster)\n" + candidate_lines(s.front, s.present, false, style);
  out += rejections(s, style);
  if (!s.fitting.empty())
    out += "\n" +
           style.paint(fmt::format("Settings of the first one, for {}", options.suggest.framework), Paint::bold) +
           "\n" + indented(clean_lines(a.settings));
  return out + advice_lines(a.advice, style) + closing_lines(a, options, style);
}

}  // namespace memplan::cli
