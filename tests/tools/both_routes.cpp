// Both routes of a recording, beside each other: both_routes FILE… prints one JSON object per run and recorded batch,
// with the peaks [requested, allocated, reserved] of each step by the steps that were written down and by the calls run
// on paper. With --events RUN BATCH: the allocations and frees of both in order, [phase, op, scope, label, size,
// allocation].
#include <iostream>
#include <nlohmann/json.hpp>

#include "estimators/base/unwrap.h"
#include "estimators/estimate/recorded_difference.h"
#include "estimators/frontends/recording/setups.h"
#include "estimators/frontends/recording/steps.h"
#include "estimators/pipeline.h"

using namespace memplan;
using nlohmann::json;

namespace {

json peaks(const Estimate& e) {
  json out = json::array();
  for (const StepSummary& s : e.steps)
    if (s.step > 0) out.push_back({s.peak.requested.count, s.peak.allocated.count, s.peak.reserved.count});
  return out;
}

json events(const Schedule& s, const Tape& tape) {
  json out = json::array();
  std::size_t op = 0;
  const auto text = [&](std::int32_t name) {
    return name < 0 ? std::string() : s.names[static_cast<std::size_t>(name)];
  };
  for (std::size_t i = 0; i < s.events.size(); ++i) {
    while (op + 1 < s.ops.size() && static_cast<std::size_t>(s.ops[op + 1].first_event) <= i) ++op;
    const Event& e = s.events[i];
    if (e.kind == Event::Kind::empty_cache) continue;
    const Allocation& a = s.allocations[static_cast<std::size_t>(e.allocation)];
    const std::int32_t scope = s.ops[op].scope;
    out.push_back({s.ops[op].step, name_of(s.ops[op].phase), text(s.ops[op].name),
                   scope < 0 ? "" : tape.scopes[static_cast<std::size_t>(scope)].path, text(a.label),
                   (e.kind == Event::Kind::alloc ? 1 : -1) * a.size.count, e.allocation});
  }
  return out;
}

void show_events(const Model& model, std::size_t run, std::int64_t batch) {
  const recording::Recording& r = *model.recorded;
  const TrainingSetup s = r.runs.at(run).setup;
  const Device device = choose_device(r.gpu).device;
  const Tape steps = recording::tape_of_steps(model.recorded, batch, s);
  const Tape calls = unwrap(transform(unwrap(restore(recording::tape_of_nearest(r, batch, s), s)), s));
  std::cout << json{{"steps", events(unwrap(run_steps(steps, s, device)), steps)},
                    {"calls", events(unwrap(run_steps(calls, s, device)), calls)}}
            << "\n";
}

void show(const Model& model, const std::string& path) {
  const recording::Recording& r = *model.recorded;
  std::vector<std::int64_t> batches = r.batches;
  if (batches.empty()) batches.push_back(0);
  for (std::size_t run = 0; run < r.runs.size(); ++run)
    for (const std::int64_t batch : batches) {
      json row{{"file", path}, {"run", recording::name_of_run(r.runs[run])}, {"batch", batch}};
      try {
        const auto both = both_routes(model, run, batch, {});
        if (!both || both->batch != batch) continue;
        row["steps"] = peaks(both->steps);
        row["calls"] = peaks(both->calls);
        for (const Fact& f : both->calls.facts)
          if (f.evidence > Evidence::chosen && f.about != About::context && f.about != About::device &&
              f.about != About::communication)
            row["facts"].push_back(f.op + " " + f.text);
      } catch (const Failure& f) {
        row["error"] = f.error().what + " | " + f.error().where;
      }
      std::cout << row << "\n";
    }
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string path = argv[i];
    if (path == "--events") break;
    const auto model = load_model(path);
    if (!model || !model->recorded) {
      std::cout << json{{"file", path},
                        {"error", model ? "no recording" : model.error().what + " | " + model.error().where}}
                << "\n";
      continue;
    }
    if (i + 3 < argc && std::string(argv[i + 1]) == "--events") {
      show_events(*model, std::stoul(argv[i + 2]), std::stoll(argv[i + 3]));
      break;
    }
    show(*model, path);
  }
}
