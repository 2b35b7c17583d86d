#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "cli/commands/commands.h"
#include "cli/program/session.h"
#include "cli/program/settings.h"
#include "cli/report/suggestion.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "estimators/base/shell.h"
#include "estimators/graph/dims.h"
#include "planner/batch.h"
#include "planner/onnxruntime.h"

namespace memplan::cli {

namespace {

Knobs parse_knobs(const Options& options) {
  const auto each = [](const std::string& name, std::string_view flag, auto&& turn) {
    bool known = name == "all";
    std::string names = "all";
    for (int i = 0; i < knob_count; ++i) {
      const Knob k = static_cast<Knob>(i);
      names += fmt::format(", {}", name_of(k));
      if (name == "all" || name == name_of(k)) turn(k), known = true;
    }
    if (!known) fail(ErrorKind::usage, fmt::format("'{}' is no knob", name), std::string(flag), "use some of " + names);
  };
  Knobs knobs = Knobs::usual();
  for (const std::string& name : options.suggest.keep) each(name, "--keep", [&](Knob k) { knobs.keep(k); });
  // What is allowed by name wins over --keep all.
  for (const std::string& name : options.suggest.allow) each(name, "--allow", [&](Knob k) { knobs.allow(k); });
  return knobs;
}

/// A session of ONNX Runtime: its own options, and the lines that set them.
int suggest_for_session(const Options& given) {
  SuggestAnswer a;
  a.path = given.argument;
  a.choice = device_of(given);
  a.margin = margin_of(given.setup, a.choice.device);
  Job job = load_job(given);
  Options& options = job.options;
  options.suggest.framework = "onnxruntime";
  Progress progress;
  progress.show("trying the options of a session");
  const MarginOf margin = [&](const Device& d) { return margin_of(options.setup, d); };
  a.suggestion = suggest_session(job.model, options.setup, a.choice.device, margin);
  progress.clear();
  a.parameters = a.suggestion.parameters;
  const bool present = a.suggestion.present.verdict == Verdict::fits;
  if (present || !a.suggestion.fitting.empty()) {
    const Candidate& first = a.suggestion.fitting.empty() ? a.suggestion.present : a.suggestion.fitting.front();
    a.settings = session_program(a.path, first.setup.ort);
  }
  a.exit_code = !present && a.suggestion.fitting.empty() && !options.gate.exit_zero ? 1 : 0;
  if (options.format_name == "md")
    fail(ErrorKind::usage, "suggestions for a session are text or JSON", "--format md", "use text or json");
  std::string text;
  if (options.suggest.emit_flags)
    text = a.suggestion.fitting.empty() ? "" : clean(a.suggestion.fitting.front().flags) + "\n";
  else
    text = options.format == Format::json ? suggest_json(a, options)
                                          : session_suggest_text(a, options, make_style(options));
  write_out(text, options.output);
  return a.exit_code;
}

}  // namespace

int run_suggest(const Options& options) {
  if (!options.gpu)
    fail(ErrorKind::usage, "suggest needs to know the card", "--gpu",
         fmt::format("memplan suggest {} --gpu 80GB{}", shell_word(options.argument), options.setup_words));
  if (runs_nodes(options.setup.runtime)) return suggest_for_session(options);
  SuggestAnswer a;
  a.path = options.argument;
  a.choice = device_of(options);
  a.margin = margin_of(options.setup, a.choice.device);
  Progress progress;
  SuggestOptions search;
  search.knobs = parse_knobs(options);
  search.keep_samples = options.suggest.keep_samples;
  search.unsaid = [&](const TrainingSetup& s) { return unsaid_in(options.suggest.framework, s); };
  search.wanted = static_cast<std::size_t>(options.suggest.wanted);
  search.progress = [&](std::size_t done, std::size_t most, const std::string& what) {
    progress.show(fmt::format("estimated {} of at most {} setups  {}", done, most, clean(what)));
  };
  Job loaded = load_job(options);
  const Model model = searchable(std::move(loaded.model));
  const MarginOf margin = [&](const Device& d) { return margin_of(options.setup, d); };
  // What is pasted names the batch, also where only the file says it.
  const TrainingSetup job = with_batch(model, loaded.options.setup, batch_of(model, loaded.options.setup));
  Tapes tapes(model);
  search.tapes = &tapes;
  a.suggestion = suggest(model, job, a.choice.device, margin, search);
  const bool report = !options.suggest.emit_flags, parallel = is_parallel(job.parallel);
  // The tricks are those of one GPU; what sharding saves is what the search says.
  if (report && !parallel) {
    progress.show("what each known trick saves");
    a.advice = advice(model, tapes, job, a.choice.device, margin, a.suggestion.estimate);
  }
  if (report && parallel && a.suggestion.fitting.empty()) {
    progress.show("how many GPUs are enough");
    TrainingSetup alone = job;
    alone.parallel = ParallelSetup{};
    alone.parallel.blocks = job.parallel.blocks;
    a.enough = fewest_gpus(model, alone, a.choice.device, margin);
  }
  if (!a.suggestion.fitting.empty()) {
    const TrainingSetup& first = a.suggestion.fitting.front().setup;
    a.settings = framework_settings(first, parts_of(model, first, a.choice.device), options.suggest.framework);
  }
  progress.clear();
  a.parameters = a.suggestion.parameters;
  a.time = search.time;
  a.exit_code = a.suggestion.fitting.empty() && !options.gate.exit_zero ? 1 : 0;
  std::string text;
  if (options.suggest.emit_flags)
    text = a.suggestion.fitting.empty() ? "" : clean(a.suggestion.fitting.front().flags) + "\n";
  else if (options.format_name == "md")
    text = suggest_markdown(a, options);
  else
    text = options.format == Format::json ? suggest_json(a, options) : suggest_text(a, options, make_style(options));
  write_out(text, options.output);
  return a.exit_code;
}

}  // namespace memplan::cli
