#include "cli/flags/options.h"

#include <fmt/format.h>

#include <algorithm>

#include "estimators/base/shell.h"
#include "estimators/setup/field.h"
#include "estimators/setup/runtimes.h"
#include "estimators/setup/strategies.h"

namespace memplan::cli {

namespace {

/// The degrees that follow from the others, and what is wrong with their combination.
void finish_parallel(const Parsed& parsed, ParallelSetup& p) {
  const bool fsdp = parsed.has("fsdp") || parsed.has("hsdp");
  const bool megatron = parsed.has("megatron") || parsed.has("dist-opt");
  int given = parsed.has("ddp") + parsed.has("zero") + fsdp + megatron;
  std::string others;
  for (const DataStrategy& s : data_strategies())
    if (s.field == Field::sharding) given += parsed.has(s.name), others += ", " + s.choice();
  if (given > 1)
    fail(ErrorKind::usage,
         fmt::format("{}, {}, {}{} and {} contradict each other", setting(Field::ddp), setting(Field::zero),
                     setting(Field::fsdp), others, setting(Field::megatron)),
         setting(parsed.has("ddp")    ? Field::ddp
                 : parsed.has("zero") ? Field::zero
                                      : Field::fsdp),
         "give one of them");
  p = resolve(p);
  constexpr std::uint32_t estimates = in_estimate | in_explain | in_size | in_validate;
  if (parsed.has("pp-schedule") && p.pipeline < 2 && parsed.command->id & estimates)
    fail(ErrorKind::usage, "a schedule needs a pipeline", setting(Field::pipeline_schedule),
         "add " + setting(Field::pipeline_parallel, "N") + " with N of at least 2");
  if (parsed.has("ddp") && p.data < 2)
    fail(ErrorKind::usage, "DDP on one data-parallel rank replicates nothing", setting(Field::ddp),
         "give " + setting(Field::gpus, "N") + " or " + setting(Field::data_parallel, "N") + " with N of at least 2");
}

/// ONNX Runtime runs a model, it does not train it.
void finish_runtime(const Parsed& parsed, Options& o) {
  if (!runs_nodes(o.setup.runtime)) {
    for (const char* name : {"ort", "onnxruntime", "ort-version"})
      if (parsed.has(name))
        fail(ErrorKind::usage, "options of ONNX Runtime say nothing about PyTorch", fmt::format("--{}", name),
             "add " + setting(Field::runtime, "ort"));
    return;
  }
  if (parsed.has("mode") && o.setup.mode == Mode::training)
    fail(ErrorKind::usage, "ONNX Runtime runs inference only", setting(Field::mode, "training"),
         "leave it out, or leave out " + setting(Field::runtime, "ort"));
  o.setup.mode = Mode::inference;
  o.mode_given = true;
  for (const char* name : {"for", "allow", "keep"})
    if (parsed.has(name) && o.command->id & in_suggest)
      fail(ErrorKind::usage, "a session of ONNX Runtime has options of its own, which are all tried",
           fmt::format("--{}", name), "leave it out");
  for (const Flag& flag : flags()) {
    const bool of_torch = flag.group == "Training" || flag.group == "Parallel";
    if (of_torch && parsed.has(flag.name) && flag.name != "mode" && flag.name != "steps")
      fail(ErrorKind::usage,
           fmt::format("--{} is a choice of PyTorch's program, which ONNX Runtime does not run", flag.name),
           fmt::format("--{}", flag.name), "leave it out, or leave out " + setting(Field::runtime, "ort"));
  }
}

const char* example_of(CommandSet command) {
  switch (command) {
    case in_completions:
      return "try: memplan completions bash";
    case in_report:
      return "try: memplan report saved.json --format md";
    case in_diff:
      return "try: memplan diff before.json after.json";
    case in_baseline:
      return "try: memplan baseline write";
    case in_config:
      return "try: memplan config show --effective";
    case in_export:
    case in_record:
      return "try: a folder of transformers, hf:org/name, train.py:make_model, timm:NAME or torchvision:NAME";
    default:
      return "try: memplan model.onnx --gpu 80GB";
  }
}

void take_arguments(const Parsed& parsed, Options& o) {
  const Command& command = *o.command;
  const bool helps = o.help || o.version;
  if (command.id == in_observe && o.observe.command.empty() && !helps)
    fail(ErrorKind::usage, "there is no command to observe", {},
         "put it behind two dashes: memplan observe --gpu l4 -- python train.py");
  if (parsed.positionals.size() > command.most_arguments)
    fail(ErrorKind::usage, fmt::format("'{}' is one argument too many", parsed.positionals[command.most_arguments]), {},
         fmt::format("usage: {} [flags]", usage_of(command)));
  if (!parsed.positionals.empty()) o.argument = parsed.positionals.front();
  o.arguments = parsed.positionals;
  const bool wanted =
      command.id & (in_setup | in_source | in_completions | in_report | in_diff | in_baseline | in_config);
  if (wanted && o.argument.empty() && !helps)
    fail(ErrorKind::usage, fmt::format("{} is missing", command.usage), {}, example_of(command.id));
}

/// Flags that were typed and that a forward pass does not look at. A variable or memplan.toml may hold them for the
/// runs that train; diff and sweep change one setup into another.
void finish_mode(const Parsed& parsed, const Options& o) {
  if (o.setup.mode == Mode::training || o.command->id & (in_diff | in_sweep)) return;
  for (const std::string_view name : {"optimizer", "optimizer-impl", "accumulate", "clip", "zero-grad", "loss",
                                      "freeze", "activation-memory-budget"}) {
    const auto origin = parsed.origin.find(name);
    if (origin == parsed.origin.end() || origin->second != fmt::format("--{}", name)) continue;
    fail(ErrorKind::usage, fmt::format("--{} changes a training step, and {} is inference", name, setting(Field::mode)),
         fmt::format("--{}", name), "leave one of them out");
  }
}

/// "-o report.html" is meant as HTML, unless --format says something else.
void format_by_suffix(const Parsed& parsed, Options& o) {
  if (o.output.empty() || parsed.has("format")) return;
  const std::size_t dot = o.output.rfind('.');
  const Flag* flag = find_flag("format");
  if (dot == std::string::npos || !(flag->commands & o.command->id)) return;
  const std::string suffix = o.output.substr(dot + 1);
  const std::vector<std::string> known = split_words(choices_of(*flag, *o.command), '|');
  if (std::find(known.begin(), known.end(), suffix) != known.end()) flag->parse({*flag, {suffix}, parsed}, o);
}

/// Accelerate, and so the Trainer, have no autocast under FSDP2: bf16 becomes MixedPrecisionPolicy(param_dtype=bf16,
/// reduce_dtype=bf16, output_dtype=bf16) there (FullyShardedDataParallelPlugin.set_mixed_precision).
void as_accelerate_runs(Options& o) {
  const bool accelerate = o.suggest.framework == "hf" || o.suggest.framework == "accelerate";
  ParallelSetup& p = o.setup.parallel;
  if (!accelerate || !strategy_of(p).units || o.setup.precision != Precision::amp_bf16) return;
  o.setup.precision = Precision::fp32;
  std::vector<std::string>& words = o.setup_flags;
  const auto mixed = std::find_if(words.begin(), words.end(),
                                  [](const std::string& word) { return word == "--amp" || word == "--precision"; });
  if (mixed != words.end()) words.erase(mixed, mixed + 2);
  for (const auto& [dtype, name] : {std::pair{&p.param_dtype, "--fsdp-dtype"}, {&p.reduce_dtype, "--reduce-dtype"}}) {
    if (*dtype) continue;
    *dtype = DType::bfloat16;
    words.insert(words.end(), {name, "bf16"});
  }
  o.setup_words.clear();
  for (const std::string& word : words) o.setup_words += " " + shell_word(word);
}

/// What a framework's loop does whatever it is told: Lightning hands the whole micro-batch to the optimizer as a
/// closure, which clears the gradients between the forward and the backward pass (strategies of
/// lightning.pytorch.loops).
void as_framework_runs(const Parsed& parsed, Options& o) {
  as_accelerate_runs(o);
  if (o.suggest.framework != "lightning" || parsed.has("zero-grad") || o.setup.mode != Mode::training) return;
  o.setup.zero_grad = ZeroGrad::before_backward;
  o.setup_flags.insert(o.setup_flags.end(), {setting(Field::zero_grad), name_of(o.setup.zero_grad)});
  o.setup_words += " " + setting(Field::zero_grad, name_of(o.setup.zero_grad));
}

}  // namespace

Options make_options(const Parsed& parsed) {
  Options o;
  o.command = parsed.command;
  o.setup_flags = words_of(parsed, {"Model", "Device", "Shapes", "Training", "Parallel"});
  o.source_flags = words_of(parsed, {"Model"});
  for (const std::string& word : o.setup_flags) o.setup_words += " " + shell_word(word);
  for (const Flag& flag : flags()) {
    const auto given = parsed.values.find(flag.name);
    if (given != parsed.values.end() && flag.parse) flag.parse({flag, given->second, parsed}, o);
  }
  format_by_suffix(parsed, o);
  as_framework_runs(parsed, o);
  finish_parallel(parsed, o.setup.parallel);
  finish_runtime(parsed, o);
  finish_mode(parsed, o);
  if (o.validate.measured.empty() && o.validate.on.empty()) o.validate.on = "emulated";
  o.observe.command = parsed.command_line;
  take_arguments(parsed, o);
  return o;
}

}  // namespace memplan::cli
