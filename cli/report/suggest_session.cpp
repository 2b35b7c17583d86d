#include <fmt/format.h>

#include "cli/report/report.h"
#include "cli/report/suggestion.h"
#include "estimators/base/shell.h"

namespace memplan::cli {

namespace {

const char* word_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::fits:
      return "FITS";
    case Verdict::tight:
      return "TIGHT";
    case Verdict::unknown:
      return "MAY NOT FIT";
    default:
      return "DOES NOT FIT";
  }
}

/// What it needs and saves, then the options, and below them what they cost.
std::string option_lines(const SuggestAnswer& a, const Style& style) {
  std::string out;
  for (const Candidate& c : a.suggestion.fitting) {
    const std::int64_t saved = a.suggestion.present.peak.count - c.peak.count;
    const std::string head = fmt::format("  {:>10}  {:>10} less  ", to_human(c.peak), to_human(Bytes(saved)));
    out += head + wrap(clean(c.flags), style.width, columns(head), columns(head)) + "\n";
    std::string costs;
    for (const std::string& text : c.cautions) costs += (costs.empty() ? "costs: " : "; ") + text;
    const std::size_t margin = columns(head);
    out += std::string(margin, ' ') + wrap(costs, style.width, margin, margin) + "\n";
  }
  return out;
}

}  // namespace

std::string session_suggest_text(const SuggestAnswer& a, const Options& options, const Style& style) {
  const Suggestion& s = a.suggestion;
  const Candidate& p = s.present;
  std::string out =
      wrap(fmt::format("{}  {} parameters  a session of ONNX Runtime", clean(a.path), short_count(a.parameters)),
           style.width, 2) +
      "\n";
  out += wrap(fmt::format("{}  margin {}", clean(a.choice.explanation), to_human(a.margin)), style.width, 2) + "\n\n";
  const Paint color = p.verdict == Verdict::fits     ? Paint::green
                      : p.verdict == Verdict::no_fit ? Paint::red
                                                     : Paint::yellow;
  out += style.paint(word_of(p.verdict), color) +
         fmt::format(" as it is: peak {} ({} to {}) of {}\n", to_human(p.peak), to_human(s.estimate.low.process),
                     to_human(s.estimate.high.process), to_human(a.choice.device.total));
  if (s.fitting.empty())
    out += "\n" +
           wrap(p.verdict == Verdict::fits
                    ? fmt::format("None of the {} other combinations of options needs less.", s.count.replayed)
                    : fmt::format("Nothing fits: {} combinations of options were estimated. memplan size names "
                                  "the cards that are large enough.",
                                  s.count.replayed),
                style.width, 2) +
           "\n";
  else
    out += "\n" + style.paint(p.verdict == Verdict::fits ? "What needs less" : "What fits", Paint::bold) +
           ", the cheapest first\n" + option_lines(a, style);
  if (!a.settings.empty())
    out += "\n" +
           style.paint(s.fitting.empty() ? "The session" : "Settings of the first one, for ONNX Runtime", Paint::bold) +
           "\n" + indented(clean_lines(a.settings));
  if (!s.fitting.empty())
    out += "\n" + style.paint("Next", Paint::bold) + ": " +
           wrap(command_of(a, options, s.fitting.front()), style.width, 2, 6) + "\n";
  return out;
}

}  // namespace memplan::cli
