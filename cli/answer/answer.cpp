#include "cli/answer/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/answer/cudnn.h"
#include "cli/answer/node_stats.h"
#include "cli/calibration/measured.h"
#include "cli/flags/spelling.h"
#include "cli/flags/values.h"
#include "cli/python/source.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/style.h"
#include "estimators/base/hash.h"
#include "estimators/facts/cards.h"
#include "estimators/frontends/recording/recording.h"
#include "estimators/frontends/recording/setups.h"
#include "estimators/graph/bound_graph.h"
#include "estimators/graph/dims.h"
#include "estimators/graph/listed.h"
#include "estimators/onnxruntime/rewritten.h"
#include "estimators/runtime/ort/versions/versions.h"
#include "estimators/runtime/torch/profile/environment.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/setup/field.h"
#include "estimators/setup/runtimes.h"
#include "planner/checkpointing/plan.h"
#include "planner/onnxruntime.h"

namespace memplan::cli {

namespace {

constexpr const char* default_device = "h100-80gb";

std::vector<Input> inputs_of(const Tape& tape) {
  std::vector<Input> out;
  for (ValueId id : tape.inputs) {
    const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
    out.push_back({v.name, std::string(name_of(v.dtype)), v.sizes});
  }
  return out;
}

std::string weights_of(const Tape& tape, const TrainingSetup& setup) {
  if (setup.precision == Precision::bf16 || setup.precision == Precision::fp16) return {};
  std::map<DType, std::int64_t> bytes;
  for (ValueId id : tape.parameters) {
    const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
    bytes[v.dtype] += bytes_of(v.dtype, v.sizes).count;
  }
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& x, const auto& y) { return x.second < y.second; });
  return most == bytes.end() || most->first == DType::float32 ? std::string() : std::string(name_of(most->first));
}

/// Two files with the same hash hold the same calls in the same modules with the same parameters. Nobody has a
/// reason to forge it.
std::string hash_of(const Tape& tape) {
  StableHash hash;
  const auto add = [&](std::string_view text) { hash.add(text); };
  for (const auto* list : {&tape.parameters, &tape.buffers})
    for (const ValueId id : *list) {
      const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
      add(v.name), add(name_of(v.dtype));
      for (const std::int64_t s : v.sizes) add(std::to_string(s));
    }
  for (const Call& call : tape.calls) {
    add(call.op);
    if (call.scope >= 0) add(tape.scopes[static_cast<std::size_t>(call.scope)].path);
  }
  if (tape.graph)
    for (const GraphNode& node : tape.graph->graph.nodes) add(node.op_type), add(node.name);
  return fmt::format("{:016x}", hash.value());
}

}  // namespace

DeviceChoice device_of(const Options& options) {
  DeviceChoice choice = choose_measured(options.gpu ? *options.gpu : default_device, options.calibration);
  if (options.reserve) set_context(choice.device, *options.reserve, "--reserve");
  return choice;
}

namespace {

/// A recording is a run of one version in one environment.
void recorded_torch(RuntimeSetup& runtime, const std::string& asked, const std::string& own) {
  if (!asked.empty() && choose_version(asked, {}).version != runtime.version)
    fail(ErrorKind::usage, fmt::format("the recording holds what PyTorch {} asked for", own),
         setting(Field::torch, asked), "record the module again with that version");
  for (const auto& [name, value] : runtime.environment)
    if (!sets_allocator(name))
      fail(ErrorKind::usage, "the recording holds what PyTorch asked for in the environment where it was made",
           setting(Field::environment, name + "=" + value), "record the module again with that variable set");
  runtime.evidence = Evidence::recorded;
  runtime.why = "which it was recorded with";
}

/// Of both names of the variable that a version reads the older one counts.
void set_allocator(Options& options) {
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    const auto given = options.setup.runtime.environment.find(name);
    if (given == options.setup.runtime.environment.end() || !profile_of(options.setup).reads.contains(name)) continue;
    options.setup.allocator = parse_alloc_conf(given->second, setting(Field::environment));
    options.alloc_conf = given->second;
  }
}

}  // namespace

void choose_torch(Options& options, const Model& model) {
  if (runs_nodes(options.setup.runtime)) {
    if (!options.torch.empty())
      fail(ErrorKind::usage, "ONNX Runtime runs the file itself, without PyTorch", setting(Field::torch, options.torch),
           "leave the version of PyTorch out, or the runtime");
    choose_ort_version(options.setup.ort, options.ort_version,
                       model.rewritten_by.empty() ? installed_onnxruntime(options.onnxruntime) : model.rewritten_by);
    options.setup.runtime.cudnn = cudnn_to_ask(options.cudnn);
    return;
  }
  RuntimeSetup runtime = choose_version(model.recorded ? std::string() : options.torch, model.torch);
  runtime.environment = std::move(options.setup.runtime.environment);
  if (model.recorded) recorded_torch(runtime, options.torch, model.torch);
  runtime.cudnn = cudnn_to_ask(options.cudnn);
  options.setup.runtime = std::move(runtime);
  set_allocator(options);
}

namespace {

/// The graph that an installed ONNX Runtime makes of the file's, where one is asked. Another batch than the one that
/// a file fixes is followed through the file's own nodes.
Model as_session_runs_it(Model model, const std::string& path, const Options& options) {
  const bool resized = options.setup.batch || options.setup.sequence || !options.setup.dims.empty();
  if (resized && !fixed_sizes(model.graphs.front()).empty()) return model;
  Rewritten rewritten = rewritten_by_onnxruntime(
      model, [&] { return unwrap(slim_onnx(path)); }, options.onnxruntime);
  if (!rewritten.complaint.empty()) fmt::print(stderr, "memplan: {}\n", clean(rewritten.complaint));
  return rewritten.model ? open_fixed(std::move(*rewritten.model)) : std::move(model);
}

/// What has to be recorded: only a run of the set-up that is asked for tells what a compiled step needs.
std::vector<std::string> to_record(const Options& options) {
  const TrainingSetup& s = options.setup;
  if (!s.compile) return {};
  const std::string card = options.gpu ? card_of(choose_device(*options.gpu).device) : std::string();
  std::vector<std::string> words{"--setup", recording::words_of(s), "--gpu", card.empty() ? "h100-80gb" : card};
  if (s.batch) words.insert(words.end(), {"--batches", std::to_string(*s.batch)});
  if (s.sequence) words.insert(words.end(), {"--seq", std::to_string(*s.sequence)});
  return words;
}

}  // namespace

Model model_of(const Options& options) {
  const ModelFile file = model_file(options.argument, options, to_record(options));
  Model model = unwrap(load_model(file.path, file.exported() ? std::vector<GivenInput>{} : options.inputs));
  if (runs_nodes(options.setup.runtime) && options.onnxruntime != "none" && !model.exported && !model.recorded)
    model = as_session_runs_it(std::move(model), file.path, options);
  model.path = options.argument;
  return model;
}

void take_over(Options& options, const Model& model) {
  choose_torch(options, model);
  if (model.recorded)
    options.setup = recording::as_recorded(*model.recorded, options.setup, [&](Field field) {
      const std::string flag = as_flags(setting(field));
      return std::find(options.setup_flags.begin(), options.setup_flags.end(), flag) != options.setup_flags.end();
    });
  TrainingSetup& setup = options.setup;
  if (setup.mode == Mode::training && setup.checkpoint.empty() && !setup.checkpoint_optimal)
    setup.checkpoint = own_checkpoints(model);
}

namespace {

/// A recording that travels in a file is of one version of PyTorch in one environment; the file's graph answers others.
void leave_recording_out(Job& job) {
  const Model& model = job.model;
  if (!model.recorded || !model.recorded->plain) return;
  std::string why;
  const auto& environment = job.options.setup.runtime.environment;
  if (runs_nodes(job.options.setup.runtime))
    why = "ONNX Runtime runs the nodes";
  else if (!job.options.torch.empty() &&
           choose_version(job.options.torch, {}).version != choose_version({}, model.torch).version)
    why = fmt::format("it was made with PyTorch {}", model.torch);
  else if (std::any_of(environment.begin(), environment.end(), [](const auto& e) { return !sets_allocator(e.first); }))
    why = "it was made in another environment";
  if (why.empty()) return;
  Model plain = *model.recorded->plain;
  if (!runs_nodes(job.options.setup.runtime)) plain.warnings.push_back("the recording in the file is not used: " + why);
  job.model = std::move(plain);
}

}  // namespace

Job load_job(const Options& options) {
  Job job{model_of(options), options};
  leave_recording_out(job);
  take_over(job.options, job.model);
  return job;
}

Answer compute(const Options& given, RunShown shown) {
  device_of(given);  // a card that is not known is said before a large file is read
  std::optional<Job> job;
  {
    Progress progress;
    progress.show("reading the model");
    job = load_job(given);
  }
  return compute(*job, shown);
}

Answer compute(const Job& job, RunShown shown) {
  const Options& options = job.options;
  const Model& model = job.model;
  Answer a;
  a.choice = device_of(options);
  a.device_given = options.gpu.has_value();
  a.margin = margin_of(options.setup, a.choice.device);
  Progress progress;
  a.setup = options.setup;
  a.path = options.argument;
  a.format = model.format;
  a.file_bytes = model.file_bytes;
  const Tape tape = unwrap(tape_of(model, a.setup));
  a.graph_hash = hash_of(tape);
  a.dims = tape.dims;
  a.inputs = inputs_of(tape);
  a.weights = weights_of(tape, a.setup);
  progress.show("replaying the steps");
  a.estimate = unwrap(answer_for(model, tape, a.setup, a.choice.device));
  a.judgement = judge(a.estimate, a.choice.device, a.margin);

  if (node_stats_wanted(options)) a.node_stats = node_stats_of(options, a.choice.device);
  const MarginOf margin = [&](const Device& d) { return margin_of(options.setup, d); };
  if (shown != RunShown::none) {
    a.run = run_of(tape, a.setup, a.choice.device, a.estimate);
    const bool change =
        a.device_given && (a.judgement.verdict == Verdict::tight || a.judgement.verdict == Verdict::no_fit);
    if (options.search && shown == RunShown::surrounded)
      add_surroundings(*a.run, model, tape, a.setup, a.choice.device, margin, change,
                       std::max<std::size_t>(1, a.estimate.ranks.size()));
  }
  if (options.search && (!options.quiet || !options.exports.empty())) {
    if (a.setup.mode == Mode::training && !options.mode_given) {
      TrainingSetup forward = a.setup;
      forward.mode = Mode::inference;
      const Result<Estimate> e = estimate_planned(model, forward, a.choice.device);
      if (e) a.inference = alternative_of("--mode inference", *e, a.choice.device, a.margin);
    }
    progress.show("looking for the largest batch");
    if (a.device_given) a.largest = largest_batch(model, a.setup, a.choice.device, margin, a.estimate);
    const bool tight = a.judgement.verdict == Verdict::tight || a.judgement.verdict == Verdict::no_fit;
    progress.show("looking for cards that fit");
    if (!a.device_given || tight) a.cards = smallest_cards(tape, a.setup, margin, a.estimate, 3);
    const bool over = options.gate.limit && a.estimate.high.process > *options.gate.limit;
    progress.show("trying smaller changes");
    if (runs_nodes(a.setup.runtime)) {
      a.changes = smaller_sessions(tape, a.setup, a.choice.device, a.margin, a.estimate);
      for (Alternative& c : a.changes) c.flags = as_flags(c.flags);
    } else if ((a.device_given && tight) || over) {
      a.changes = smaller_changes(model, tape, a.setup, a.choice.device, a.margin, a.estimate, options.gate.limit);
    }
  }
  if (a.device_given && !options.gate.exit_zero &&
      std::find(options.gate.fail_on.begin(), options.gate.fail_on.end(), a.judgement.verdict) !=
          options.gate.fail_on.end())
    a.exit_code = 1;
  return a;
}

}  // namespace memplan::cli
