#include "cli/report/certainty.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace memplan::cli {

namespace {

constexpr const char* record_it = "record the module with memplan.record (docs/recording.md)";

/// "tensors that names hold, or let go (-3.1 MiB, +40.2 MiB)"
std::string with_bytes(const std::string& text, Bytes below, Bytes above) {
  return fmt::format("{} (-{}, +{})", text, to_human(below), to_human(above));
}

/// The sources that move the process most, the largest first. The context says nothing about the program.
std::vector<std::string> largest_sources(const Estimate& e) {
  std::vector<std::pair<std::int64_t, std::string>> all;
  for (const RangeSource& s : e.sources)
    if (s.moves() && s.about != About::context)
      all.emplace_back(s.below.process.count + s.above.process.count,
                       with_bytes(s.text, s.below.process, s.above.process));
  std::map<std::string, Bytes> bounded;  // one name may stand for several guesses
  for (const Unmodelled& u : e.unmodelled) bounded[u.op] += u.widened_by;
  for (const auto& [op, bytes] : bounded)
    if (bytes.count > 0) all.emplace_back(bytes.count, fmt::format("{} is only bounded ({})", op, to_human(bytes)));
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> out;
  for (std::size_t i = 0; i < std::min<std::size_t>(all.size(), 2); ++i) out.push_back(all[i].second);
  return out;
}

std::string told_kinds(const Estimate& e) {
  std::set<std::string> kinds;
  for (const Fact& f : e.facts)
    if (f.evidence > Evidence::chosen && f.about != About::context && f.about != About::communication &&
        f.about != About::device)
      kinds.insert(std::string(name_of(f.about)));
  return fmt::format("{}", fmt::join(kinds, ", "));
}

}  // namespace

Certainty certainty_of(const Estimate& e) {
  const bool recorded = std::any_of(e.facts.begin(), e.facts.end(), [](const Fact& f) {
    return f.evidence == Evidence::recorded && f.about == About::program;
  });
  const bool compiled =
      std::any_of(e.facts.begin(), e.facts.end(), [](const Fact& f) { return f.code.starts_with("MP066"); });
  const bool apart = e.low.requested != e.high.requested;
  if (recorded && !apart)
    return {"recorded", fmt::format("the {} program was recorded", compiled ? "compiled" : "eager"), {}};
  if (e.requested_basis == Basis::exact && !apart)
    return {"exact", "the file allows no other reading of what PyTorch is asked for", {}};
  const std::vector<std::string> sources = largest_sources(e);
  std::string why = sources.empty() ? "what the file does not say was put back (" + told_kinds(e) + ")"
                                    : fmt::format("{}", fmt::join(sources, "; "));
  // Which of its runs a compiled program has is up to the device.
  return {"modelled", std::move(why), compiled ? "" : recorded ? "record this batch, on this card" : record_it};
}

}  // namespace memplan::cli
