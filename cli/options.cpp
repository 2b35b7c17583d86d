#include "cli/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "cli/report/formats.h"
#include "cli/strategy_values.h"
#include "cli/values.h"

namespace memplan::cli {

namespace {

std::vector<std::string> split_commas(const std::vector<std::string>& values) {
  std::vector<std::string> parts;
  for (const std::string& value : values) {
    std::size_t begin = 0;
    while (begin <= value.size()) {
      const std::size_t end = std::min(value.find(',', begin), value.size());
      if (end > begin) parts.push_back(value.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return parts;
}

/// The verdicts of --fail-on; `rules`: the words that are none are known too.
std::vector<Verdict> parse_gate(const std::vector<std::string>& values, bool rules) {
  std::vector<Verdict> gate;
  for (const std::string& word : split_commas(values)) {
    if (word == "no-fit")
      gate.push_back(Verdict::no_fit);
    else if (word == "tight")
      gate.push_back(Verdict::tight);
    else if (word == "unknown")
      gate.push_back(Verdict::unknown);
    else if (word != "never" && !(rules && (word == "regression" || word == "warning")))
      fail(ErrorKind::usage, fmt::format("'{}' is not a value for --fail-on", word), "--fail-on",
           "use no-fit, tight, unknown or never");
  }
  return gate;
}

/// The words of a gate, which judges more than the card.
std::vector<std::string> parse_gate_words(const std::vector<std::string>& values) {
  const std::vector<std::string> words = split_commas(values);
  for (const std::string& word : words)
    if (word != "no-fit" && word != "tight" && word != "unknown" && word != "regression" && word != "warning" &&
        word != "never")
      fail(ErrorKind::usage, fmt::format("'{}' is not a value for --fail-on", word), "--fail-on",
           "use no-fit, tight, unknown, regression, warning or never");
  return words;
}

Margin parse_margin(const std::string& text) {
  Margin margin;
  if (!text.empty() && text.back() == '%') {
    margin.percent = parse_number(text.substr(0, text.size() - 1), "--margin");
    if (margin.percent > 100)
      fail(ErrorKind::usage, "a margin above 100 % never fits", "--margin", "give a percentage such as 5%");
  } else {
    margin.bytes = parse_size(text, "--margin");
  }
  return margin;
}

/// "0.9" or "90%" of the card: what is left of it is the margin.
Margin parse_utilization(const std::string& text) {
  const bool percent = !text.empty() && text.back() == '%';
  const double share =
      parse_number(percent ? text.substr(0, text.size() - 1) : text, "--utilization") * (percent ? 1 : 100);
  if (share <= 0 || share > 100)
    fail(ErrorKind::usage, fmt::format("a card cannot be used to {:g} %", share), "--utilization",
         "give a share such as 0.9 or 90%");
  Margin margin;
  margin.percent = 100 - share;
  return margin;
}

void parse_dimensions(const std::vector<std::string>& values, TrainingSetup& setup) {
  for (const std::string& word : split_commas(values)) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0)
      fail(ErrorKind::usage, fmt::format("'{}' is not a dimension", word), "--dim",
           "write --dim NAME=NUMBER, as in --dim seq=2048");
    setup.dims[word.substr(0, equals)] =
        parse_count(std::string_view(word).substr(equals + 1), "--dim " + word.substr(0, equals));
  }
}

/// The flags that say what is estimated, as they would be typed again. The device comes last, so that a command can
/// leave it out by cutting nothing else.
std::vector<std::string> words_of_setup(const Parsed& parsed) {
  std::vector<std::string> words;
  for (const Flag& flag : flags()) {
    if (!(flag.commands & in_explain) ||
        (flag.group != "Device" && flag.group != "Shapes" && flag.group != "Training" && flag.group != "Parallel"))
      continue;
    const auto it = parsed.values.find(flag.name);
    if (it == parsed.values.end()) continue;
    for (const std::string& value : it->second) {
      words.push_back(fmt::format("--{}", flag.name));
      if (!flag.value.empty()) words.push_back(value);
    }
  }
  return words;
}

}  // namespace

namespace {

ParallelSetup parallel_of(const Parsed& parsed) {
  ParallelSetup p;
  const auto text = [&](std::string_view flag) -> const std::string* {
    const auto it = parsed.values.find(flag);
    return it == parsed.values.end() ? nullptr : &it->second.back();
  };
  const auto count = [&](std::string_view flag, std::int64_t& into) {
    if (auto v = text(flag)) into = parse_count(*v, fmt::format("--{}", flag));
  };
  count("gpus", p.gpus);
  count("dp", p.data);
  count("tp", p.tensor);
  count("pp", p.pipeline);
  count("cp", p.context);
  count("ep", p.expert);
  count("micro-batches", p.micro_batches);
  count("bucket-cap", p.bucket_cap_mib);
  count("hsdp", p.shard_size);
  count("reduce-bucket", p.reduce_bucket);
  p.gradient_as_bucket_view = parsed.has("bucket-view");
  p.reshard_after_forward = !parsed.has("no-reshard");
  p.sequence_parallel = parsed.has("sp");
  const bool fsdp = parsed.has("fsdp") || parsed.has("hsdp");
  const bool megatron = parsed.has("megatron") || parsed.has("dist-opt");
  if (parsed.has("ddp") + parsed.has("zero") + fsdp + megatron > 1)
    fail(ErrorKind::usage, "--ddp, --zero, --fsdp and --megatron contradict each other",
         parsed.has("ddp")    ? "--ddp"
         : parsed.has("zero") ? "--zero"
                              : "--fsdp",
         "give one of them");
  if (megatron) p.sharding = parsed.has("dist-opt") ? Sharding::megatron_dist : Sharding::megatron;
  if (fsdp) p.sharding = Sharding::fsdp;
  if (auto v = text("zero")) p.sharding = parse_zero_stage(*v);
  if (auto v = text("overlap-comm")) p.overlap_communication = parse_yes_no(*v, "--overlap-comm");
  if (auto v = text("pp-schedule")) parse_pipeline_schedule(*v, p);
  if (auto v = text("pp-split")) p.split = parse_split(*v);
  if (auto v = text("fsdp-dtype")) p.param_dtype = parse_floating(*v, "--fsdp-dtype");
  if (auto v = text("reduce-dtype")) p.reduce_dtype = parse_floating(*v, "--reduce-dtype");
  if (const auto it = parsed.values.find("blocks"); it != parsed.values.end()) p.blocks = split_commas(it->second);
  p = resolve(p);
  if (parsed.has("ddp") && p.data < 2)
    fail(ErrorKind::usage, "DDP on one data-parallel rank replicates nothing", "--ddp",
         "give --gpus N or --dp N with N of at least 2");
  return p;
}

}  // namespace

std::string shell_word(std::string_view word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_-./=,:%+@").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return std::string(word);
  std::string quoted = "'";
  for (char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

static ValidateOptions validate_options(const Parsed& parsed) {
  ValidateOptions v;
  const auto text = [&](std::string_view flag) {
    return parsed.has(flag) ? parsed.values.find(flag)->second.back() : std::string();
  };
  v.on = text("on");
  v.measured = text("measured");
  if (parsed.has("counter")) v.counter = text("counter");
  if (v.counter != "requested" && v.counter != "allocated" && v.counter != "reserved" && v.counter != "process")
    fail(ErrorKind::usage, fmt::format("'{}' is not a value for --counter", v.counter), "--counter",
         "use requested, allocated, reserved or process");
  if (std::string t = text("tolerance"); !t.empty()) {
    if (t.back() == '%') t.pop_back();
    v.tolerance = parse_number(t, "--tolerance");
  }
  if (parsed.has("timeout")) v.seconds = parse_count(text("timeout"), "--timeout");
  if (!v.measured.empty() && parsed.has("on") && parsed.origin.find("on")->second == "--on")
    fail(ErrorKind::usage, "--on and --measured are two sources of the same figures", "--measured", "give one of them");
  if (v.measured.empty() && v.on.empty()) v.on = "emulated";
  return v;
}

Bytes Margin::of(Bytes total) const {
  if (bytes) return *bytes;
  return Bytes(static_cast<std::int64_t>(std::llround(static_cast<double>(total.count) * percent / 100.0)));
}

Options make_options(const Parsed& parsed) {
  Options o;
  o.command = parsed.command;
  o.help = parsed.has("help");
  o.version = parsed.has("version");
  auto text = [&](std::string_view flag) -> const std::string* {
    const auto it = parsed.values.find(flag);
    return it == parsed.values.end() ? nullptr : &it->second.back();
  };
  auto all = [&](std::string_view flag) {
    const auto it = parsed.values.find(flag);
    return it == parsed.values.end() ? std::vector<std::string>() : it->second;
  };
  // First, because errors in the other values are printed in this format.
  if (auto v = text("format")) {
    const bool grid = o.command->id == in_sweep && *v == "csv";
    o.format_name = grid ? "csv" : report_format(*v, "--format").name;
    o.format = *v == "json" ? Format::json : *v == "text" ? Format::text : Format::other;
    const bool advice = o.command->id == in_suggest && *v == "md";
    if (o.format == Format::other && !grid && !advice && !(o.command->id & in_documents))
      fail(ErrorKind::usage, fmt::format("memplan {} has no format {}", o.command->name, *v), "--format",
           o.command->id == in_sweep     ? "use text, csv or json"
           : o.command->id == in_suggest ? "use text, json or md"
                                         : "use text or json");
  }
  for (const std::string& word : all("export")) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals + 1 == word.size())
      fail(ErrorKind::usage, fmt::format("'{}' is not a value for --export", word), "--export",
           "write FORMAT=FILE, as in --export md=report.md");
    o.exports.push_back({std::string(report_format(word.substr(0, equals), "--export").name), word.substr(equals + 1)});
  }
  o.setup_flags = words_of_setup(parsed);
  for (const std::string& word : o.setup_flags) o.setup_words += " " + shell_word(word);
  TrainingSetup& s = o.setup;
  if (auto v = text("gpu")) o.gpu = *v;
  if (auto v = text("margin")) o.margin = parse_margin(*v);
  if (auto v = text("utilization")) {
    if (o.margin)
      fail(ErrorKind::usage, "--utilization and --margin contradict each other", "--utilization", "give one of them");
    o.margin = parse_utilization(*v);
  }
  if (auto v = text("reserve")) o.reserve = parse_size(*v, "--reserve");
  if (auto v = text("batch")) s.batch = parse_count(*v, "--batch");
  if (auto v = text("seq")) s.sequence = parse_count(*v, "--seq");
  parse_dimensions(all("dim"), s);
  for (const std::string& word : all("input")) o.inputs.push_back(parse_input(word, "--input"));
  if (auto v = text("mode")) {
    s.mode = parse_mode(*v);
    o.mode_given = true;
  }
  if (auto v = text("precision")) s.precision = parse_precision(*v, s.fp8);
  if (auto v = text("amp")) {
    Fp8 none = Fp8::none;
    const Precision amp = parse_precision("amp-" + *v, none);
    if (parsed.has("precision") && (s.precision != amp || s.fp8 != Fp8::none))
      fail(ErrorKind::usage, "--amp and --precision contradict each other", "--amp", "give one of them");
    s.precision = amp;
  }
  if (auto v = text("optimizer")) s.optimizer = parse_optimizer(*v);
  if (auto v = text("optimizer-impl")) s.optimizer.impl = parse_optimizer_impl(*v);
  if (auto v = text("momentum")) {
    if (s.optimizer.kind != OptimizerKind::sgd && s.optimizer.kind != OptimizerKind::rmsprop)
      fail(ErrorKind::usage, "only sgd and rmsprop have a momentum", "--momentum",
           "add --optimizer sgd or leave --momentum out");
    s.optimizer.momentum = parse_number(*v, "--momentum");
  }
  if (auto v = text("accumulate")) s.accumulate = parse_count(*v, "--accumulate");
  s.clip_grad_norm = parsed.has("clip");
  parse_strategies(parsed, s);
  if (auto v = text("loss")) s.loss = parse_loss(*v);
  if (auto v = text("attention")) s.attention = parse_attention(*v);
  s.frozen = split_commas(all("freeze"));
  if (auto v = text("zero-grad")) s.zero_grad = parse_zero_grad(*v);
  if (auto v = text("steps")) s.steps = parse_count(*v, "--steps");
  if (auto v = text("alloc-conf")) {
    s.allocator = parse_alloc_conf(*v, "--alloc-conf");
    o.alloc_conf = *v;
  }
  s.parallel = parallel_of(parsed);
  if (auto v = text("output")) o.output = *v;
  if (auto v = text("top")) o.top = parse_count(*v, "--top", 0);
  o.quiet = parsed.has("quiet");
  o.timeline = parsed.has("timeline");
  o.ascii = parsed.has("ascii");
  o.search = !parsed.has("no-search");
  if (auto v = text("color")) {
    if (*v == "always")
      o.color = When::always;
    else if (*v == "never")
      o.color = When::never;
    else if (*v != "auto")
      fail(ErrorKind::usage, fmt::format("'{}' is not a value for --color", *v), "--color",
           "use auto, always or never");
  }
  if (auto v = text("width")) o.width = parse_count(*v, "--width", 40);
  const auto origin = [&](std::string_view flag) {
    const auto it = parsed.origin.find(flag);
    return it == parsed.origin.end() ? std::string() : it->second;
  };
  if (parsed.has("fail-on")) {
    o.fail_on_given = true;
    o.fail_on_origin = origin("fail-on");
    if (o.command->id & (in_gate | in_estimate)) o.fail_on_words = parse_gate_words(all("fail-on"));
    if (o.command->id & (in_estimate | in_observe))
      o.fail_on = parse_gate(all("fail-on"), o.command->id == in_estimate);
  }
  if (auto v = text("config")) o.config = *v;
  if (auto v = text("baseline")) o.baseline = *v, o.baseline_origin = origin("baseline");
  const auto threshold = [&](const char* flag, std::optional<Threshold>& into) {
    if (auto v = text(flag)) into = parse_threshold(*v, origin(flag)), into->origin = origin(flag);
  };
  threshold("max-peak", o.max_peak), threshold("warn-peak", o.warn_peak);
  threshold("max-increase", o.max_increase), threshold("warn-increase", o.warn_increase);
  if (auto v = text("to")) o.to = *v;
  o.force = parsed.has("force");
  o.effective = parsed.has("effective");
  o.exit_zero = parsed.has("exit-zero");
  o.program = parsed.has("program");
  o.evidence = parsed.has("evidence");
  o.unsupported = parsed.has("unsupported");
  o.allow = split_commas(all("allow"));
  o.keep = split_commas(all("keep"));
  if (auto v = text("keep-global-batch")) o.keep_samples = parse_yes_no(*v, "--keep-global-batch");
  o.emit_flags = parsed.has("emit-flags");
  if (auto v = text("for")) o.framework = parse_framework(*v);
  if (auto v = text("prices")) o.prices = *v;
  if (auto v = text("wanted")) o.wanted = parse_count(*v, "--wanted");
  if (auto v = text("tensor")) o.tensor = *v;
  if (auto v = text("module")) o.module = *v;
  if (o.command->id == in_validate) o.validate = validate_options(parsed);

  if (o.command->id == in_observe) o.observe = observe_options(parsed, o.help || o.version);
  if (parsed.positionals.size() > o.command->most_arguments)
    fail(ErrorKind::usage, fmt::format("'{}' is one argument too many", parsed.positionals[o.command->most_arguments]),
         {}, fmt::format("usage: memplan {} {} [flags]", o.command->name, o.command->usage));
  if (!parsed.positionals.empty()) o.argument = parsed.positionals.front();
  o.arguments = parsed.positionals;
  const bool wanted = o.command->id & (in_setup | in_completions | in_report | in_diff | in_baseline | in_config);
  if (wanted && o.argument.empty() && !o.help && !o.version)
    fail(ErrorKind::usage, fmt::format("{} is missing", o.command->usage), {},
         o.command->id == in_completions ? "try: memplan completions bash"
         : o.command->id == in_report    ? "try: memplan report saved.json --format md"
         : o.command->id == in_diff      ? "try: memplan diff before.json after.json"
         : o.command->id == in_baseline  ? "try: memplan baseline write"
         : o.command->id == in_config    ? "try: memplan config show --effective"
                                         : "try: memplan model.onnx --gpu 80GB");
  return o;
}

}  // namespace memplan::cli
