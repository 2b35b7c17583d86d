#include "cli/report/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/report/document.h"
#include "cli/report/report.h"

namespace memplan::cli {

namespace {

std::vector<const Fact*> by_evidence(const Estimate& e) {
  std::vector<const Fact*> order;
  for (const Fact& f : e.facts) order.push_back(&f);
  std::stable_sort(order.begin(), order.end(), [](const Fact* a, const Fact* b) { return a->evidence < b->evidence; });
  return order;
}

std::string where(const Fact& f) {
  std::string text = clean(f.op);
  if (!f.module.empty())
    text += (text.empty() ? "" : " ") + std::string(f.count > 1 ? "first in " : "in ") + clean(f.module);
  return text;
}

}  // namespace

std::string evidence_table(const Estimate& e, const Style& style) {
  std::string out =
      fmt::format("What the program asks for is {}; the process takes {} ({} to {}).\n", name_of(e.requested_basis),
                  to_human(e.peak.process), to_human(e.low.process), to_human(e.high.process));
  if (!e.sources.empty()) out += "\n" + style.paint("sources of the range", Paint::bold) + "\n";
  for (const RangeSource& s : e.sources)
    out += fmt::format("  {:<13}  ", name_of(s.about)) +
           wrap(fmt::format("{}: requested -{} +{}, process -{} +{}", s.text, to_human(s.below.requested),
                            to_human(s.above.requested), to_human(s.below.process), to_human(s.above.process)),
                style.width, 17, 17) +
           "\n";
  std::optional<Evidence> before;
  constexpr std::size_t indent = 24;
  for (const Fact* f : by_evidence(e)) {
    if (before != f->evidence) out += "\n" + style.paint(name_of(f->evidence), Paint::bold) + "\n";
    before = f->evidence;
    std::string text = clean(f->text);
    if (const std::string place = where(*f); !place.empty()) text += fmt::format(" ({})", place);
    if (!f->code.empty()) text += fmt::format(" [{}]", f->code);
    if (f->off)
      text += fmt::format("; off by up to {} below, {} above", to_human(f->off->below), to_human(f->off->above));
    out += fmt::format("  {:>5}  {:<13}  ", grouped(f->count), name_of(f->about)) +
           wrap(text, style.width, indent, indent) + "\n";
  }
  return out;
}

Json evidence_json(const Estimate& e) {
  Json facts = Json::array();
  for (const Fact* f : by_evidence(e))
    facts.push_back({{"evidence", name_of(f->evidence)},
                     {"about", name_of(f->about)},
                     {"code", f->code.empty() ? Json(nullptr) : Json(f->code)},
                     {"fact", clean(f->text)},
                     {"op", clean(f->op)},
                     {"module", clean(f->module)},
                     {"count", f->count},
                     {"below_bytes", f->off ? Json(f->off->below.count) : Json(nullptr)},
                     {"above_bytes", f->off ? Json(f->off->above.count) : Json(nullptr)}});
  return {{"schema_version", report_schema_version}, {"requested_basis", name_of(e.requested_basis)},
          {"peak_bytes", e.peak.process.count},      {"low_bytes", e.low.process.count},
          {"high_bytes", e.high.process.count},      {"facts", std::move(facts)}};
}

}  // namespace memplan::cli
