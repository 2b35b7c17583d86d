#include "cli/report/validation.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/report/report.h"

namespace memplan::cli {

namespace {

/// "exact", "+0.31 %"
std::string difference(const ComparedCounter& c) {
  if (c.predicted == c.measured) return "exact";
  const double percent = 100 * c.relative();
  if (!std::isfinite(percent)) return "only predicted";
  const std::string text = fmt::format("{:+.2f} %", percent);
  return std::abs(percent) < 0.005 ? human_change(c.predicted.count - c.measured.count) : text;
}

std::string row_name(const ComparedPhase& p, const std::string& step) {
  if (p.phase.empty()) return p.step == 0 ? "set-up" : fmt::format("{} {}", step, p.step);
  return p.step == 0 ? p.phase : fmt::format("{} {}, {}", step, p.step, p.phase);
}

std::string table_of(const std::vector<ComparedPhase>& rows, const Measurement& measured, const Style& style) {
  Table table;
  table.head = {"", "COUNTER", "PREDICTED", "MEASURED", "DIFFERENCE"};
  table.right = {false, false, true, true, true};
  table.flexible = {0};
  for (const ComparedPhase& p : rows)
    for (std::size_t i = 0; i < p.counters.size(); ++i) {
      const ComparedCounter& c = p.counters[i];
      table.rows.push_back({i == 0 ? row_name(p, measured.step_word) : std::string(), c.counter, to_human(c.predicted),
                            to_human(c.measured), difference(c)});
    }
  return table.print(style);
}

bool all_exact(const ComparedPhase& p) {
  return std::all_of(p.counters.begin(), p.counters.end(),
                     [](const ComparedCounter& c) { return c.predicted == c.measured; });
}

std::string place(const Divergence& d, const std::string& step) {
  std::string text =
      d.step == 0 ? "in the set-up" : fmt::format("in {} {}{}", step, d.step, d.phase.empty() ? "" : ", " + d.phase);
  if (!d.module.empty()) text += ", module " + clean(d.module);
  if (!d.source.empty()) text += " (" + clean(d.source) + ")";
  return text;
}

std::string phases_text(const Comparison& c, const Measurement& measured, const Style& style) {
  std::vector<ComparedPhase> apart;
  for (const ComparedPhase& p : c.phases)
    if (!all_exact(p)) apart.push_back(p);
  std::string out = "\n" + style.paint("By phase", Paint::bold) + "\n";
  if (apart.empty()) return out + fmt::format("  all {} phases are exact in every counter\n", c.phases.size());
  out += table_of(apart, measured, style);
  if (apart.size() < c.phases.size())
    out += fmt::format("  {} of {} phases, not listed, are exact\n", c.phases.size() - apart.size(), c.phases.size());
  return out;
}

std::string categories_text(const Comparison& c, const Style& style) {
  Table table;
  table.head = {"CATEGORY", "PREDICTED", "MEASURED", "DIFFERENCE"};
  table.right = {false, true, true, true};
  for (const ComparedCategory& k : c.categories)
    table.rows.push_back({k.category, to_human(k.predicted), to_human(k.measured),
                          k.predicted == k.measured ? "exact" : human_change(k.predicted.count - k.measured.count)});
  return "\n" + style.paint("By category, requested bytes at their peak", Paint::bold) + "\n" + table.print(style);
}

std::string events_text(const Comparison& c, const Measurement& measured, const Style& style) {
  std::string out = "\n" + style.paint("Events", Paint::bold) + "\n";
  out += fmt::format("  {} allocations predicted, {} measured, {} equal\n", grouped(c.predicted_allocations),
                     grouped(c.measured_allocations), grouped(c.equal_allocations));
  if (c.regions)
    out += fmt::format("  {} regions of the arena predicted, {} measured, {} equal\n", grouped(c.regions->predicted),
                       grouped(c.regions->measured), grouped(c.regions->equal));
  if (!c.divergence)
    return out + fmt::format("  no difference: every allocation and every free is where {} has it\n", measured.program);
  const Divergence& d = *c.divergence;
  out += "  first difference, after " + grouped(d.allocation) +
         " equal allocations: " + wrap(clean(d.text) + ", " + place(d, measured.step_word), style.width, 4, 40) + "\n";
  if (!d.measured_op.empty()) out += "    " + measured.program + " is in " + clean(d.measured_op) + "\n";
  return out;
}

std::string largest_text(const Measurement& measured, const Options& options, const Style& style) {
  Table table;
  table.head = {"SIZE", "MADE BY"};
  table.right = {true, false};
  table.flexible = {1};
  const auto& blocks = measured.largest_at_peak;
  const std::size_t rows =
      options.top ? (*options.top == 0 ? blocks.size() : static_cast<std::size_t>(*options.top)) : 10;
  for (std::size_t i = 0; i < blocks.size() && i < rows; ++i)
    table.rows.push_back({to_human(Bytes(blocks[i].bytes)), clean(blocks[i].where)});
  return "\n" + style.paint("Largest blocks at the measured peak", Paint::bold) + "\n" + table.print(style);
}

}  // namespace

std::string text_validation(const Validation& v, const Options& options, const Style& style) {
  const Comparison& c = v.comparison;
  std::string out = style.paint(v.agrees ? "AGREES" : "DIFFERS", v.agrees ? Paint::green : Paint::red) +
                    fmt::format("  {}\n", wrap(v.why, style.width, 9, v.agrees ? 8 : 9));
  out += wrap(fmt::format("{}, predicted for {}; {}.", clean(v.measured.source),
                          clean(v.device.name.empty() ? v.device.key : v.device.name), clean(options.argument)),
              style.width, 0) +
         "\n\n";
  out += table_of({ComparedPhase{0, "peak", c.peak}}, v.measured, style);
  if (!c.steps.empty())
    out += "\n" + style.paint("By " + v.measured.step_word, Paint::bold) + "\n" + table_of(c.steps, v.measured, style);
  if (!c.phases.empty()) out += phases_text(c, v.measured, style);
  if (!c.categories.empty()) out += categories_text(c, style);
  if (c.events_compared) out += events_text(c, v.measured, style);
  if (!v.measured.largest_at_peak.empty()) out += largest_text(v.measured, options, style);
  if (!v.measured.out_of_memory.empty())
    out += "\n" + wrap(v.measured.program + " ran out of memory: " + clean(v.measured.out_of_memory), style.width, 2) +
           "\n";
  if (!v.measured.notes.empty()) out += "\n";
  for (const std::string& note : v.measured.notes) out += wrap("note: " + clean(note), style.width, 6) + "\n";
  return out;
}

namespace {

Json json_of(const Divergence& d) {
  return {{"after_allocations", d.allocation},
          {"kind", d.kind},
          {"text", clean(d.text)},
          {"step", d.step},
          {"phase", clean(d.phase)},
          {"module", clean(d.module)},
          {"source", clean(d.source)},
          {"predicted_op", clean(d.predicted_op)},
          {"measured_op", clean(d.measured_op)},
          {"predicted_bytes", d.predicted.count},
          {"measured_bytes", d.measured.count}};
}

}  // namespace

std::string json_validation(const Validation& v, const Options& options, int exit_code) {
  const Comparison& c = v.comparison;
  const auto counters = [](const std::vector<ComparedCounter>& list) {
    Json out = Json::object();
    for (const ComparedCounter& x : list)
      out[x.counter] = {{"predicted_bytes", x.predicted.count}, {"measured_bytes", x.measured.count}};
    return out;
  };
  Json j;
  j["schema_version"] = "1.0";
  j["kind"] = "validation";
  j["tool"] = {{"name", "memplan"}, {"version", MEMPLAN_VERSION}};
  Json flags = Json::array();
  for (const std::string& word : options.setup_flags) flags.push_back(clean(word));
  j["command"] = {{"model", clean(options.argument)}, {"flags", flags}};
  j["measured_by"] = {{"source", clean(v.measured.source)}, {"device", clean(v.measured.device)}};
  j["predicted_for"] = {{"key", v.device.key}, {"name", clean(v.device.name)}};
  j["tolerance_percent"] = v.tolerance;
  j["agrees"] = v.agrees;
  j["why"] = clean(v.why);
  j["peak"] = counters(c.peak);
  j["steps"] = Json::array();
  for (const ComparedPhase& p : c.steps) j["steps"].push_back({{"step", p.step}, {"peak", counters(p.counters)}});
  j["phases"] = Json::array();
  for (const ComparedPhase& p : c.phases)
    j["phases"].push_back({{"step", p.step}, {"phase", p.phase}, {"peak", counters(p.counters)}});
  j["categories"] = Json::array();
  for (const ComparedCategory& k : c.categories)
    j["categories"].push_back(
        {{"category", k.category}, {"predicted_bytes", k.predicted.count}, {"measured_bytes", k.measured.count}});
  j["events"] = c.events_compared ? Json{{"predicted_allocations", c.predicted_allocations},
                                         {"measured_allocations", c.measured_allocations},
                                         {"equal_allocations", c.equal_allocations}}
                                  : Json(nullptr);
  if (c.regions)
    j["regions"] = {
        {"predicted", c.regions->predicted}, {"measured", c.regions->measured}, {"equal", c.regions->equal}};
  j["first_divergence"] = c.divergence ? json_of(*c.divergence) : Json(nullptr);
  j["largest_at_measured_peak"] = Json::array();
  for (const MeasuredBlock& b : v.measured.largest_at_peak)
    j["largest_at_measured_peak"].push_back({{"bytes", b.bytes}, {"where", clean(b.where)}});
  j["out_of_memory"] = {
      {"predicted", v.predicted_out_of_memory.empty() ? Json(nullptr) : Json(clean(v.predicted_out_of_memory))},
      {"measured", v.measured.out_of_memory.empty() ? Json(nullptr) : Json(clean(v.measured.out_of_memory))}};
  j["notes"] = Json::array();
  for (const std::string& note : v.measured.notes) j["notes"].push_back(clean(note));
  j["exit_code"] = exit_code;
  return j.dump(2) + "\n";
}

}  // namespace memplan::cli
