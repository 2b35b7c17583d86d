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
  if (!f.module.empty()) text += (text.empty() ? "in " : " in ") + clean(f.module) + (f.count > 1 ? ", …" : "");
  return text;
}

}  // namespace

std::string evidence_table(const Estimate& e, const Style& style) {
  Table table;
  table.head = {"EVIDENCE", "ABOUT", "TIMES", "FACT", "WHERE"};
  table.right = {false, false, true, false, false};
  table.flexible = {3, 4};
  Evidence before = Evidence::assumed;
  for (const Fact* f : by_evidence(e)) {
    const bool again = !table.rows.empty() && f->evidence == before;
    before = f->evidence;
    std::string text = clean(f->text);
    if (!f->code.empty()) text += fmt::format(" [{}]", f->code);
    if (f->off)
      text += fmt::format("; off by up to {} below, {} above", to_human(f->off->below), to_human(f->off->above));
    table.rows.push_back({again ? "" : name_of(f->evidence), name_of(f->about), grouped(f->count), text, where(*f)});
  }
  return fmt::format("What the program asks for is {}; the process takes {} ({} to {}).\n\n",
                     name_of(e.requested_basis), to_human(e.peak.process), to_human(e.low), to_human(e.high)) +
         table.print(style);
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
  return {{"schema_version", report_schema_version},
          {"requested_basis", name_of(e.requested_basis)},
          {"peak_bytes", e.peak.process.count},
          {"low_bytes", e.low.count},
          {"high_bytes", e.high.count},
          {"facts", std::move(facts)}};
}

}  // namespace memplan::cli
