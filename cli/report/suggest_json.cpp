#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/report/report.h"
#include "cli/report/suggestion.h"

namespace memplan::cli {

namespace {

using Json = nlohmann::ordered_json;

Json microseconds(const StepTime& t) {
  const auto us = [](double seconds) { return std::llround(seconds * 1e6); };
  return {{"total", us(t.total())},   {"forward", us(t.forward)},     {"backward", us(t.backward)},
          {"recompute", us(t.again)}, {"optimizer", us(t.optimizer)}, {"communication", us(t.communication)},
          {"offload", us(t.offload)}, {"bubble", us(t.bubble)}};
}

Json candidate(const SuggestAnswer& a, const Options& options, const Candidate& c) {
  Json cautions = Json::array();
  for (const std::string& text : c.cautions) cautions.push_back(text);
  return {
      {"flags", clean(c.flags)},
      {"command", command_of(a, options, c)},
      {"peak_bytes", c.peak.count},
      {"verdict", name_of(c.verdict)},
      {"headroom_bytes", c.headroom.count},
      {"gpus", std::max<std::int64_t>(1, c.setup.parallel.gpus)},
      {"samples_per_step", c.samples},
      {"micro_batch", c.setup.batch.value_or(1)},
      {"accumulate", c.setup.accumulate},
      {"pipeline_micro_batches", c.setup.parallel.pipeline > 1 ? Json(c.setup.parallel.micro_batches) : Json(nullptr)},
      {"knobs_turned", c.changes},
      {"cautions", cautions},
      {"step_microseconds", microseconds(c.time)}};
}

}  // namespace

std::string suggest_json(const SuggestAnswer& a, const Options& options) {
  const Suggestion& s = a.suggestion;
  Json j;
  j["schema_version"] = planner_schema_version;
  j["tool"] = {{"name", "memplan"}, {"version", MEMPLAN_VERSION}};
  j["command"] = "suggest";
  j["input"] = {{"path", clean(a.path)}, {"parameters", a.parameters}};
  j["device"] = {{"key", a.choice.device.key},
                 {"name", a.choice.device.name},
                 {"usable_bytes", a.choice.device.total.count},
                 {"margin_bytes", a.margin.count}};
  j["present"] = candidate(a, options, s.present);
  j["smallest_change"] = s.smallest ? candidate(a, options, *s.smallest) : Json(nullptr);
  j["fitting"] = Json::array();
  for (const Candidate& c : s.fitting) j["fitting"].push_back(candidate(a, options, c));
  j["front"] = Json::array();
  for (const Candidate& c : s.front) j["front"].push_back(candidate(a, options, c));
  j["rejected"] = Json::array();
  for (const Rejection& r : s.rejected)
    j["rejected"].push_back({{"flags", clean(r.flags)},
                             {"why", clean(r.why)},
                             {"bytes", r.bytes ? Json(r.bytes->count) : Json(nullptr)},
                             {"is_bound", r.bound}});
  j["advice"] = Json::array();
  for (const Advice& d : a.advice)
    j["advice"].push_back({{"id", d.id},
                           {"title", d.title},
                           {"flags", clean(d.flags)},
                           {"snippet", d.snippet},
                           {"note", d.note},
                           {"peak_bytes", d.peak ? Json(d.peak->count) : Json(nullptr)},
                           {"saves_bytes", d.peak ? Json(d.saves.count) : Json(nullptr)},
                           {"verdict", d.peak ? Json(name_of(d.verdict)) : Json(nullptr)}});
  j["enough_gpus"] =
      a.enough ? Json{{"gpus", a.enough->gpus}, {"flags", clean(a.enough->flags)}, {"peak_bytes", a.enough->peak.count}}
               : Json(nullptr);
  j["settings"] = s.fitting.empty() ? Json(nullptr)
                                    : Json{{"framework", options.suggest.framework}, {"text", clean_lines(a.settings)}};
  j["search"] = {{"setups", s.count.setups}, {"bounded", s.count.bounded}, {"implied", s.count.implied},
                 {"slower", s.count.slower}, {"left", s.count.left},       {"replayed", s.count.replayed}};
  j["assumptions"] = sentences(a.time);
  j["exit_code"] = a.exit_code;
  return j.dump(2) + "\n";
}

}  // namespace memplan::cli
