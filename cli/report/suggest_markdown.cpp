// What to change, as Markdown: reads from top to bottom without an image, so that it can be pasted into an issue or a
// mail.
#include <fmt/format.h>

#include <algorithm>

#include "cli/report/markdown.h"
#include "cli/report/report.h"
#include "cli/report/suggestion.h"
#include "estimators/base/shell.h"

namespace memplan::cli {

namespace {

std::string per_sample(const Candidate& c, const Candidate& present) {
  const double now = present.time.total() / static_cast<double>(present.samples),
               then = c.time.total() / static_cast<double>(c.samples);
  if (now <= 0) return "";
  const double percent = (then / now - 1) * 100;
  return std::abs(percent) < 0.5 ? "the same" : fmt::format("{:+.0f} %", percent);
}

std::string change(const Candidate& c) { return c.flags.empty() ? "as it is" : md_code(clean(c.flags), 200); }

std::string rows(const std::vector<Candidate>& list, const Candidate& present) {
  MdTable table{{"change", "peak", "stays free", "step", "time per sample"}, "lrrrr", {}};
  for (const Candidate& c : list)
    table.rows.push_back(
        {change(c), to_human(c.peak), to_human(c.headroom), time_text(c.time.total()), per_sample(c, present)});
  return table.print();
}

std::string shell(const std::string& command) { return fmt::format("```sh\n{}\n```\n\n", command); }

/// "It changes the training: …", or that it does not.
std::string cautions_of(const Candidate& c, const std::string& it) {
  if (c.cautions.empty()) return it + " leaves what the training computes as it was.";
  std::string all;
  for (const std::string& text : c.cautions) all += (all.empty() ? "" : "; ") + md_text(clean(text));
  return it + " changes the training: " + all + ".";
}

std::string without_card(const Options& options) {
  std::string words;
  for (std::size_t i = 0; i < options.setup_flags.size(); ++i) {
    if (options.setup_flags[i] == "--gpu")
      ++i;  // and its value
    else
      words += " " + shell_word(options.setup_flags[i]);
  }
  return words;
}

/// What the present peak is made of, so that it is seen what a change can reach.
std::string parts(const Estimate& e) {
  MdTable table{{"part", "bytes", "share"}, "lrr", {}};
  for (const CategoryPart& p : e.parts)
    if (p.bytes.count > 0)
      table.rows.push_back(
          {md_text(part_name(name_of(p.part))), to_human(p.bytes),
           fmt::format("{:.1f} %", static_cast<double>(p.bytes.count) * 100 /
                                       static_cast<double>(std::max<std::int64_t>(1, e.peak.process.count)))});
  table.rows.push_back({"**total of the process**", "**" + to_human(e.peak.process) + "**", "100.0 %"});
  return "### What the peak is made of now\n\n" + table.print();
}

std::string head(const SuggestAnswer& a, const Options& options) {
  const Candidate& p = a.suggestion.present;
  const std::string model = md_code(file_name(clean(a.path))), card = md_code(a.choice.device.key);
  const std::string of = fmt::format("Peak {} of {}", to_human(p.peak), to_human(a.choice.device.total));
  std::string out;
  if (p.verdict == Verdict::fits)
    out = fmt::format("## {} fits {}: what would be faster\n\n**{}, {} stay free.**", model, card, of,
                      to_human(p.headroom));
  else if (p.headroom.count < 0)
    out = fmt::format("## {} does not fit {}: what to change\n\n**{}, over by {}.**", model, card, of,
                      to_human(Bytes(-p.headroom.count)));
  else
    out = fmt::format("## {} hardly fits {}: what to change\n\n**{}, {} stay free where {} are wanted.**", model, card,
                      of, to_human(p.headroom), to_human(a.margin));
  out += fmt::format(
      " {} parameters, {} sample{} per optimizer step, {}. A setup fits when its peak stays below {}: the card less a "
      "margin of {}.\n\n",
      short_count(a.parameters), grouped(p.samples), p.samples == 1 ? "" : "s", md_text(clean(a.choice.explanation)),
      to_human(a.choice.device.total - a.margin), to_human(a.margin));
  return out + "Asked with:\n\n" +
         shell(fmt::format("memplan suggest {}{}", clean(shell_word(a.path)), clean(options.setup_words)));
}

std::string first_advice(const SuggestAnswer& a, const Options& options) {
  const Suggestion& s = a.suggestion;
  std::string out;
  if (s.smallest)
    out += fmt::format(
               "### The smallest change that fits\n\n{} brings the peak to **{}**, {} less; {} stay free. {} A step "
               "takes about {}, {} per sample.\n\n",
               change(*s.smallest), to_human(s.smallest->peak), to_human(s.present.peak - s.smallest->peak),
               to_human(s.smallest->headroom), cautions_of(*s.smallest, "It"), time_text(s.smallest->time.total()),
               per_sample(*s.smallest, s.present)) +
           shell(command_of(a, options, *s.smallest));
  if (s.fitting.empty()) {
    const std::string model = clean(shell_word(a.path)), setup = clean(options.setup_words);
    return out +
           (s.count.left > 0
                ? fmt::format("### Nothing found that fits\n\nNone of the setups that were estimated fits this card; "
                              "{} that may fit were not looked at. The search",
                              grouped(s.count.left))
                : std::string("### Nothing fits\n\nNo setup that the search may choose fits this card. It")) +
           " may choose more, also what changes the training (optimizer, adapters, 16-bit weights):\n\n" +
           shell(fmt::format("memplan suggest {}{} --allow all", model, setup)) +
           "These are the cards that are large enough for the setup as it is:\n\n" +
           shell(fmt::format("memplan size {}{}", model, clean(without_card(options))));
  }
  const Candidate& best = s.fitting.front();
  out += "### The fastest that fit\n\n" + rows(s.fitting, s.present);
  if (!best.flags.empty()) out += cautions_of(best, "The first one") + "\n\n" + shell(command_of(a, options, best));
  if (const std::string settings = clean_lines(a.settings); !settings.empty() && !best.flags.empty())
    out += fmt::format("Its settings (`--for {}`):\n\n```\n{}{}```\n\n", options.suggest.framework, settings,
                       settings.ends_with('\n') ? "" : "\n");
  return out;
}

std::string tricks(const SuggestAnswer& a) {
  MdTable table{{"saves", "peak then", "trick", "flags", "what it means"}, "rrlll", {}};
  std::vector<Advice> order;
  for (const Advice& d : a.advice)
    if (d.peak) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [](const Advice& x, const Advice& y) { return x.saves > y.saves; });
  std::string none;
  for (const Advice& d : order) {
    if (d.saves.count <= 0) {
      none += (none.empty() ? "" : ", ") + md_text(d.title);
      continue;
    }
    table.rows.push_back({to_human(d.saves), to_human(*d.peak), md_text(d.title),
                          d.flags.empty() ? "" : md_code(clean(d.flags), 60), md_text(d.note)});
  }
  std::string out = table.print();
  if (!none.empty()) out += fmt::format("Saves nothing here: {}.\n\n", none);
  return out.empty() ? out : "### What each trick saves here, by itself\n\n" + out;
}

std::string rejections(const Suggestion& s) {
  std::string out;
  std::size_t shown = 0, more = 0;
  for (const Rejection& r : s.rejected) {
    if (r.flags.empty()) continue;
    if (++shown > 8) {
      ++more;
      continue;
    }
    out += fmt::format("- {} {}{}\n", md_code(clean(r.flags), 200), md_text(clean(r.why)),
                       r.bytes ? fmt::format(": {}{}", r.bound ? "at least " : "", to_human(*r.bytes)) : std::string());
  }
  if (more) out += fmt::format("- {} more are in the JSON answer\n", more);
  return out.empty() ? out : "### Why not\n\n" + out + "\n";
}

}  // namespace

std::string suggest_markdown(const SuggestAnswer& a, const Options& options) {
  const Suggestion& s = a.suggestion;
  MdPage page;
  page.blocks.push_back(head(a, options));
  page.blocks.push_back(first_advice(a, options));
  page.blocks.push_back(parts(s.estimate));
  if (s.front.size() > 1)
    page.blocks.push_back(
        "### Memory against time\n\nNothing that was estimated is both smaller and faster than a line of this "
        "table.\n\n" +
        rows(s.front, s.present));
  if (std::string text = tricks(a); !text.empty()) page.blocks.push_back(std::move(text));
  if (std::string text = rejections(s); !text.empty()) page.blocks.push_back(std::move(text));
  std::string rests = fmt::format(
      "### What this rests on\n\n- Every peak was estimated by replaying the steps of that setup. {} setups were "
      "searched: {} need too much by a bound from below, {} were replayed, the rest is slower or follows "
      "from those.\n",
      grouped(s.count.setups), grouped(s.count.bounded), grouped(s.count.replayed));
  for (const std::string& sentence : sentences(a.time)) rests += "- " + md_text(sentence) + "\n";
  page.blocks.push_back(rests + fmt::format("\nmemplan {}\n", MEMPLAN_VERSION));
  return page.print();
}

}  // namespace memplan::cli
