// memplan validate MODEL --on emulated[:CARD] | cuda[:N] | --measured FILE|SIZE: the estimate against PyTorch itself.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "cli/answer/answer.h"
#include "cli/commands/commands.h"
#include "cli/flags/values.h"
#include "cli/report/report.h"
#include "cli/report/validation.h"
#include "cli/terminal/output.h"
#include "estimators/dryrun/dryrun.h"
#include "estimators/dryrun/sessions.h"
#include "estimators/frontends/recording/recording.h"
#include "estimators/measured/sessions.h"
#include "estimators/measured/sources.h"
#include "estimators/setup/runtimes.h"

namespace memplan::cli {

namespace {

struct Place {
  DryRunPlace run;
  Options options;  ///< with the card of --on as --gpu
};

Place place_of(const Options& given) {
  Place p{{}, given};
  const std::string& on = given.validate.on;
  const std::size_t colon = on.find(':');
  const std::string kind = on.substr(0, colon), rest = colon == std::string::npos ? "" : on.substr(colon + 1);
  p.run.emulated = kind == "emulated";
  if (kind == "emulated") {
    if (!rest.empty()) {
      if (given.gpu && *given.gpu != rest)
        fail(ErrorKind::usage, "--on and --gpu name different cards", "--gpu " + *given.gpu, "leave --gpu out");
      p.options.gpu = rest;
    }
  } else if (kind == "cuda") {
    if (colon != std::string::npos) p.run.index = parse_count(rest, "--on", 0);
  } else {
    fail(ErrorKind::usage, fmt::format("'{}' is not a place to run", on), "--on",
         "use emulated, emulated:CARD, cuda or cuda:N");
  }
  p.run.card = device_of(p.options).device;
  p.run.allocator_settings = given.alloc_conf;
  p.run.variables = given.setup.runtime.environment;
  p.run.time_limit = std::chrono::seconds(given.validate.seconds);
  return p;
}

/// The card that PyTorch found: the row of that name, else one like the default with what PyTorch says of it.
Device found_device(const Options& options, const Device& found) {
  if (options.gpu) return device_of(options).device;
  Device device = device_of(options).device;
  const auto& all = devices();
  const auto it = std::find_if(all.begin(), all.end(), [&](const Device& d) { return d.name == found.name; });
  if (it != all.end()) {
    device = *it;
  } else {
    device.key = "cuda";
    device.name = found.name;
    device.sm_major = found.sm_major;
    device.sm_minor = found.sm_minor;
    device.multiprocessors = found.multiprocessors;
  }
  if (options.reserve) set_context(device, *options.reserve, "--reserve");
  device.total = found.total;
  return device;
}

struct Prediction {
  Tape tape;
  Schedule schedule;
  Timeline timeline;
  Estimate estimate;
};

Prediction predict(Tape tape, const TrainingSetup& setup, const Device& device) {
  Prediction p;
  p.tape = std::move(tape);
  p.schedule = unwrap(run_steps(p.tape, setup, device));
  p.timeline = unwrap(replay(p.schedule, setup, device));
  p.estimate = unwrap(summarize(p.tape, p.schedule, p.timeline, setup, device));
  return p;
}

void judge(Validation& v) {
  const bool here = !v.predicted_out_of_memory.empty(), there = !v.measured.out_of_memory.empty();
  if (here || there) {
    v.agrees = here == there;
    v.why = here && there ? "both run out of memory"
            : here        ? fmt::format("the prediction runs out of memory, {} does not", v.measured.program)
                          : fmt::format("{} runs out of memory, the prediction does not", v.measured.program);
    return;
  }
  const ComparedCounter* worst = v.comparison.worst();
  if (!worst) {
    v.agrees = false;
    v.why = "nothing was measured that could be compared";
    return;
  }
  const double percent = 100 * std::abs(worst->relative());
  v.agrees = percent <= v.tolerance;
  if (percent == 0)
    v.why = "the peak is exact in every counter that was measured";
  else
    v.why = fmt::format("the peak of {} bytes differs by {}, {} the tolerance of {:g} %", worst->counter,
                        percent < 0.005 ? fmt::format("{} B", std::abs(worst->predicted.count - worst->measured.count))
                                        : fmt::format("{:.2f} %", percent),
                        v.agrees ? "within" : "more than", v.tolerance);
}

/// The file in an installed onnxruntime-gpu. Its weights are loaded in an order that the file does not tell, and the
/// prediction takes the one that the session had.
Validation in_sessions(const Model& model, const Place& place) {
  const Options& options = place.options;
  if (!place.run.emulated)
    fail(ErrorKind::usage, "sessions of ONNX Runtime are compared on the emulated GPU", "--on " + options.validate.on,
         "use --on emulated:CARD");
  Validation v;
  v.device = place.run.card;
  const Tape tape = unwrap(tape_of(model, options.setup));
  v.measured = measure_sessions(unwrap(slim_onnx(options.argument)), tape, options.setup, place.run,
                                options.onnxruntime == "none" ? "auto" : options.onnxruntime);
  const Schedule schedule = in_measured_order(unwrap(run_steps(tape, options.setup, v.device)), v.measured);
  const Timeline timeline = unwrap(replay(schedule, options.setup, v.device));
  v.estimate = unwrap(summarize(tape, schedule, timeline, options.setup, v.device));
  v.comparison = compare(tape, schedule, timeline, v.estimate, v.measured);
  v.comparison.regions = compare_regions(unwrap(map_memory(schedule, options.setup, v.device, 0)).driver, v.measured);
  if (timeline.out_of_memory_event)
    v.predicted_out_of_memory = v.estimate.out_of_memory_at.empty() ? "a run" : v.estimate.out_of_memory_at;
  return v;
}

Validation on_device(const Options& given) {
  const Job job = load_job(given);
  const Model& model = job.model.recorded && job.model.recorded->plain ? *job.model.recorded->plain : job.model;
  if (model.recorded)
    fail(ErrorKind::usage, "PyTorch itself made this recording, so there is nothing of it to run", given.argument,
         "compare it with a run of yours: --measured snapshot.pickle");
  const Place place = place_of(job.options);
  const Options& options = place.options;
  if (runs_nodes(options.setup.runtime)) return in_sessions(model, place);
  Tape tape = unwrap(tape_of(model, options.setup));
  Validation v;
  v.device = place.run.card;
  // The request needs the shape of the target, which depends on no device.
  Prediction p = predict(tape, options.setup, v.device);
  const DryRun run = dry_run(make_request(p.tape, options.setup, p.schedule), place.run);
  if (!place.run.emulated) {
    v.device = found_device(options, run.device);
    p = predict(std::move(tape), options.setup, v.device);
  }
  v.measured = run.measured;
  v.comparison = compare(p.tape, p.schedule, p.timeline, p.estimate, v.measured);
  v.estimate = p.estimate;
  if (p.timeline.out_of_memory_event)
    v.predicted_out_of_memory = p.estimate.out_of_memory_at.empty() ? "a step" : p.estimate.out_of_memory_at;
  return v;
}

/// A file where there is one of that name, else a figure: "11.3GiB".
Measurement measured_of(const Options& options) {
  const ValidateOptions& v = options.validate;
  if (access(v.measured.c_str(), F_OK) == 0) {
    if (runs_nodes(options.setup.runtime))
      fail(ErrorKind::usage, "a file of figures is PyTorch's, and this is a session of ONNX Runtime", "--measured",
           "give one figure, such as 11.3GiB of --counter process, or let memplan run the session: --on emulated:CARD");
    return measurement_from_file(v.measured);
  }
  const Result<Bytes> figure = catching([&] { return parse_size(v.measured, "--measured"); });
  if (!figure)
    fail(ErrorKind::input, fmt::format("'{}' is neither a file nor a figure", v.measured), "--measured",
         "give a memory snapshot, a memory_stats() JSON, or a figure such as 11.3GiB");
  return measurement_from_figure(*figure, v.counter);
}

Validation of_measurement(const Options& given) {
  const Job job = load_job(given);
  const Options& options = job.options;
  Validation v;
  v.measured = measured_of(options);
  v.device = device_of(options).device;
  const Prediction p = predict(unwrap(tape_of(job.model, options.setup)), options.setup, v.device);
  v.comparison = compare(p.tape, p.schedule, p.timeline, p.estimate, v.measured);
  v.estimate = p.estimate;
  if (p.timeline.out_of_memory_event)
    v.predicted_out_of_memory = p.estimate.out_of_memory_at.empty() ? "a step" : p.estimate.out_of_memory_at;
  return v;
}

}  // namespace

int run_validate(const Options& options) {
  if (options.setup.compile && options.validate.measured.empty())
    fail(ErrorKind::usage, "validate runs the eager program, not a compiled one", "--compile",
         "memplan observe -- python train.py counts what a compiled script takes; --measured compares with its peak");
  Validation v = options.validate.measured.empty() ? on_device(options) : of_measurement(options);
  v.tolerance = options.validate.tolerance;
  judge(v);
  const int code = v.agrees ? 0 : 1;
  write_out(options.format == Format::json ? json_validation(v, options, code)
                                           : text_validation(v, options, make_style(options)),
            options.output);
  return code;
}

}  // namespace memplan::cli
