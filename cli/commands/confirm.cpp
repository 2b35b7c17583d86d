#include "cli/commands/confirm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/python/source.h"
#include "cli/terminal/progress.h"
#include "estimators/companion/temporary_folder.h"
#include "estimators/frontends/recording/recording.h"
#include "estimators/frontends/recording/setups.h"
#include "estimators/measured/compare.h"
#include "estimators/measured/recorded.h"

namespace memplan::cli {

namespace {

struct Source {
  std::string argument;
  std::vector<std::string> flags;
};

Source source_of(const Job& job) {
  const Options& options = job.options;
  if (is_source(options.argument)) {
    Source s{options.argument, options.source_flags};
    for (const std::string& input : options.input_words) s.flags.insert(s.flags.end(), {"--input", input});
    return s;
  }
  if (job.model.recorded && !job.model.recorded->source.empty())
    return {job.model.recorded->source, job.model.recorded->source_flags};
  fail(
      ErrorKind::usage, "the file does not say what makes its module, so PyTorch cannot run that", "--confirm",
      job.model.recorded && !job.model.recorded->script.empty()
          ? "run the script again: memplan observe -- " + job.model.recorded->script
          : "memplan train.py:make_model --confirm runs a function's module; in Python, memplan.estimate(module, args, "
            "confirm=True). memplan validate runs what is in the file");
}

std::optional<std::int64_t> batch_of(const Answer& a) {
  if (a.setup.batch) return a.setup.batch;
  const auto found = std::find_if(a.dims.begin(), a.dims.end(), [](const BoundDim& d) { return d.name == "batch"; });
  return found == a.dims.end() ? std::nullopt : std::optional(found->size);
}

/// The recording of one run with nobody looking on.
Model run_module(const Source& source, const Answer& a, const std::string& folder) {
  Progress progress;
  progress.show(fmt::format("running {} on the emulated GPU", source.argument));
  std::vector<std::string> words{
      "record", "--for-program",    "--output", folder + "/run.memplan", "--setup", recording::words_of(a.setup),
      "--gpu",  a.choice.device.key};
  if (const auto batch = batch_of(a)) words.insert(words.end(), {"--batches", std::to_string(*batch)});
  if (a.setup.sequence) words.insert(words.end(), {"--seq", std::to_string(*a.setup.sequence)});
  words.insert(words.end(), source.flags.begin(), source.flags.end());
  return unwrap(load_model(made_by_package(std::move(words), source.argument, folder)));
}

std::vector<std::vector<std::int64_t>> sizes_of(const auto& inputs) {
  std::vector<std::vector<std::int64_t>> out;
  for (const auto& input : inputs)
    if (!input.sizes.empty()) out.push_back(input.sizes);
  std::sort(out.begin(), out.end());
  return out;
}

void check_inputs(const Model& run, const Answer& a) {
  const auto theirs = sizes_of(run.recorded->inputs), ours = sizes_of(a.inputs);
  if (theirs != ours)
    fail(ErrorKind::usage, fmt::format("the module ran with inputs of {}, and {} are estimated", theirs, ours),
         "--confirm", "estimate the sizes that the module is called with");
}

std::string sentence(const Comparison& c, const Measurement& m) {
  std::string counters;
  for (const ComparedCounter& p : c.peak)
    if (p.predicted != p.measured)
      counters += fmt::format("{}{} {:+.3f} %", counters.empty() ? "" : ", ", p.counter, 100 * p.relative());
  if (!c.divergence && counters.empty())
    return fmt::format("confirmed by {}, event by event: {} allocations and every counter", m.source,
                       c.measured_allocations);
  std::string text = fmt::format("{} does otherwise: {}", m.source,
                                 counters.empty() ? "the peaks are equal" : "at the peak " + counters);
  if (!c.divergence) return text + fmt::format("; all {} allocations are equal", c.measured_allocations);
  const Divergence& d = *c.divergence;
  text += fmt::format("; the first difference, after {} equal allocations, in step {}{}: {}", d.allocation, d.step,
                      d.phase.empty() ? "" : ", " + d.phase, d.text);
  return text;
}

}  // namespace

Confirmation confirm(const Job& job, const Answer& a) {
  const TemporaryFolder folder;
  if (const std::string what = recording::beyond_recording(a.setup); !what.empty())
    fail(ErrorKind::usage, fmt::format("PyTorch runs the module as it is, and {} would change it", what), "--confirm",
         "leave one of them out, or change the module itself");
  const Model run = job.options.confirm.with.empty() ? run_module(source_of(job), a, folder.path())
                                                     : unwrap(load_model(job.options.confirm.with));
  if (!run.recorded) fail_input("the file is no recording", job.options.confirm.with, "make one with memplan.record");
  check_inputs(run, a);
  const auto& batches = run.recorded->batches;
  const std::int64_t batch = batches.empty() ? 0 : batch_of(a).value_or(batches.front());
  const Measurement measured = measurement_from_recording(run, a.setup, batch);
  const Tape tape = unwrap(tape_of(job.model, a.setup));
  const Schedule schedule = unwrap(run_steps(tape, a.setup, a.choice.device));
  const Timeline timeline = unwrap(replay_unlimited(schedule, a.setup, a.choice.device));
  const Comparison c = compare(tape, schedule, timeline, a.estimate, measured);
  Confirmation out;
  out.agrees = !c.divergence && std::all_of(c.peak.begin(), c.peak.end(),
                                            [](const ComparedCounter& p) { return p.predicted == p.measured; });
  out.text = sentence(c, measured);
  return out;
}

}  // namespace memplan::cli
