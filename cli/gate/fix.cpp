#include "cli/gate/fix.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "cli/report/words.h"
#include "planner/suggest.h"

namespace memplan::cli {

namespace {

constexpr std::size_t replays = 20;    // estimates of the search at most: a second or two for most models
constexpr std::size_t most_tried = 6;  // candidates that are put through the rules

/// Changed least first: what the planner calls the smallest, then few knobs, then little memory saved.
std::vector<Candidate> candidates(const Options& options, const Json& report, Bytes wanted, bool margin_too) {
  DeviceChoice choice = device_of(options);
  // A setup without a card is measured against the limit alone.
  if (!options.gpu) choice.device.total = std::max(choice.device.total, wanted);
  // Growth is judged by the peak and limits by the upper end of the range; the planner asks for the upper end.
  const Json& s = report.at("summary");
  const Bytes above(s.at("high_bytes").get<std::int64_t>() - s.at("peak_bytes").get<std::int64_t>());
  const MarginOf margin = [&](const Device& device) {
    const Bytes asked = margin_too ? margin_of(options.setup, device) : Bytes(0);
    return std::max(asked, device.total - wanted - above);
  };
  SuggestOptions search;
  search.replays = replays;
  const Job job = load_job(options);
  const Suggestion found = suggest(job.model, job.options.setup, choice.device, margin, search);
  std::vector<Candidate> out(found.fitting);
  out.insert(out.end(), found.front.begin(), found.front.end());
  std::erase_if(out, [](const Candidate& c) { return c.flags.empty(); });
  std::stable_sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) {
    return a.changes != b.changes ? a.changes < b.changes : a.peak > b.peak;
  });
  if (found.smallest) out.insert(out.begin(), *found.smallest);
  if (out.size() > most_tried) out.resize(most_tried);
  return out;
}

Json with(const Candidate& c, const Json& before, const Json& after) {
  const Json& s = after.at("summary");
  const std::int64_t peak = s.at("peak_bytes");
  Json cautions = Json::array();
  for (const std::string& text : c.cautions) cautions.push_back(clean(text));
  // A report without a card has no verdict of its own; the planner's is against the limit.
  return {{"flags", clean(c.flags)},
          {"peak_bytes", peak},
          {"verdict", s.at("verdict").is_null() ? Json(name_of(c.verdict)) : s.at("verdict")},
          {"headroom_bytes", s.at("headroom_bytes").is_null() ? Json(c.headroom.count) : s.at("headroom_bytes")},
          {"saves_bytes", before.at("summary").at("peak_bytes").get<std::int64_t>() - peak},
          {"cautions", cautions},
          {"configuration", configuration_lines(clean(c.flags))}};
}

}  // namespace

Json configuration_lines(const std::string& flags) {
  Json lines = Json::array();
  std::string line, value;
  const auto finish = [&] {
    if (line.empty()) return;
    const bool number =
        !value.empty() && std::all_of(value.begin(), value.end(), [](unsigned char c) { return std::isdigit(c); });
    lines.push_back(line + " = " + (value.empty() ? "true" : number ? value : Json(value).dump()));
    line.clear(), value.clear();
  };
  for (std::size_t begin = 0; begin < flags.size();) {
    const std::size_t end = std::min(flags.find(' ', begin), flags.size());
    const std::string word = flags.substr(begin, end - begin);
    if (word.starts_with("--")) {
      finish();
      line = word.substr(2);
      std::replace(line.begin(), line.end(), '-', '_');
    } else if (!word.empty()) {
      value += (value.empty() ? "" : " ") + word;
    }
    begin = end + 1;
  }
  finish();
  return lines;
}

Json smallest_fix(const Options& options, const RuleContext& context, const Json& report, const Json& base) {
  const Json rules = rules_of(context, report, base);
  const auto found_by = [&](GateRule rule) {
    return std::any_of(rules.begin(), rules.end(),
                       [&](const Json& r) { return rule_of(r) == rule && complains(state_of(r)); });
  };
  const std::optional<Bytes> wanted = wanted_peak(context, report, base);
  if (!wanted) return nullptr;
  // A model that the search cannot take in leaves the gate without advice, not without a verdict.
  const auto tried = catching(
      [&] { return candidates(options, report, *wanted, found_by(GateRule::tight) || found_by(GateRule::no_fit)); });
  if (!tried) return nullptr;
  Json least = nullptr;
  for (const Candidate& c : *tried) {
    Options changed = options;
    changed.setup = c.setup;
    changed.search = changed.timeline = false;
    changed.format_name = "json";
    changed.exports.clear();
    const auto after = catching([&] { return document_of(compute(changed, run_wanted(changed)), changed); });
    if (!after) continue;
    const GateState state = worst_of(rules_of(context, *after, base));
    if (state == GateState::passed) return with(c, report, *after);
    if (state == GateState::warned && worst_of(rules) == GateState::failed && least.is_null())
      least = with(c, report, *after);
  }
  return least;
}

}  // namespace memplan::cli
