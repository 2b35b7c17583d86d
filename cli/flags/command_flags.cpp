// The flags that say how an answer looks, when it fails, and what single commands do besides.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "cli/flags/format_names.h"
#include "cli/flags/options.h"
#include "cli/flags/values.h"
#include "estimators/setup/names.h"

namespace memplan::cli {

namespace {

void parse_format(const Given& g, Options& o) {
  const std::string& word = g.text();
  const Command& command = *o.command;
  o.format_name = known_format(word, g.name());
  o.format = word == "json" ? Format::json : word == "text" ? Format::text : Format::other;
  const std::vector<std::string> names = split_words(choices_of(g.flag, command), '|');
  if (std::find(names.begin(), names.end(), word) == names.end())
    fail(ErrorKind::usage, fmt::format("memplan {} has no format {}", command.name, word), g.name(),
         fmt::format("use {}", fmt::join(names, ", ")));
}

void parse_export(const Given& g, Options& o) {
  for (const std::string& word : g.values) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals + 1 == word.size())
      fail(ErrorKind::usage, fmt::format("'{}' is not a value for {}", word, g.name()), g.name(),
           "write FORMAT=FILE, as in --export md=report.md");
    o.exports.push_back({std::string(known_format(word.substr(0, equals), g.name())), word.substr(equals + 1)});
  }
}

/// "0.9" or "90%" of the card: what is left of it is the margin.
void parse_utilization(const Given& g, Options& o) {
  if (o.setup.margin)
    fail(ErrorKind::usage, "--utilization and --margin contradict each other", "--utilization", "give one of them");
  const std::string& text = g.text();
  const bool percent = !text.empty() && text.back() == '%';
  const double share =
      parse_number(percent ? text.substr(0, text.size() - 1) : text, "--utilization") * (percent ? 1 : 100);
  if (share <= 0 || share > 100)
    fail(ErrorKind::usage, fmt::format("a card cannot be used to {:g} %", share), "--utilization",
         "give a share such as 0.9 or 90%");
  o.setup.margin = Margin{{}, 100 - share};
}

void parse_color(const Given& g, Options& o) {
  if (g.text() == "always")
    o.color = When::always;
  else if (g.text() == "never")
    o.color = When::never;
  else if (g.text() != "auto")
    fail(ErrorKind::usage, fmt::format("'{}' is not a value for --color", g.text()), "--color",
         "use auto, always or never");
}

/// The verdicts of --fail-on; `rules`: the words that are none are known too.
std::vector<Verdict> parse_gate(const std::vector<std::string>& words, bool rules) {
  std::vector<Verdict> gate;
  for (const std::string& word : words) {
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
void check_gate_words(const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (word != "no-fit" && word != "tight" && word != "unknown" && word != "regression" && word != "warning" &&
        word != "never")
      fail(ErrorKind::usage, fmt::format("'{}' is not a value for --fail-on", word), "--fail-on",
           "use no-fit, tight, unknown, regression, warning or never");
}

void parse_fail_on(const Given& g, Options& o) {
  const std::vector<std::string> words = g.words();
  o.gate.fail_on_given = true;
  o.gate.fail_on_origin = g.origin();
  if (o.command->id & (in_gate | in_estimate)) {
    check_gate_words(words);
    o.gate.fail_on_words = words;
  }
  if (o.command->id & (in_estimate | in_observe)) o.gate.fail_on = parse_gate(words, o.command->id == in_estimate);
}

Threshold threshold(const Given& g) {
  Threshold t = parse_threshold(g.text(), g.origin());
  t.origin = g.origin();
  return t;
}

Threshold share_of_card(const Given& g) {
  Threshold t = threshold(g);
  refuse_more_than_all(t, g.origin());
  return t;
}

void parse_measured(const Given& g, Options& o) {
  o.validate.measured = g.text();
  const auto on = g.parsed.origin.find("on");
  if (!o.validate.measured.empty() && on != g.parsed.origin.end() && on->second == "--on")
    fail(ErrorKind::usage, "--on and --measured are two sources of the same figures", "--measured", "give one of them");
}

void parse_timeout(const Given& g, Options& o) {
  (g.parsed.command->id == in_validate ? o.validate.seconds : o.timeout) = g.count();
}

void parse_counter(const Given& g, Options& o) {
  o.validate.counter = g.text();
  if (g.text() != "requested" && g.text() != "allocated" && g.text() != "reserved" && g.text() != "process")
    fail(ErrorKind::usage, fmt::format("'{}' is not a value for --counter", g.text()), "--counter",
         "use requested, allocated, reserved or process");
}

void parse_tolerance(const Given& g, Options& o) {
  std::string text = g.text();
  if (text.empty()) return;
  if (text.back() == '%') text.pop_back();
  o.validate.tolerance = parse_number(text, g.name());
}

void parse_devices(const Given& g, Options& o) {
  o.observe.devices = g.count();
  if (o.observe.devices > 16)
    fail(ErrorKind::usage, "a node has at most 16 emulated GPUs", "--devices", "more ranks than that are --world");
}

void parse_ranks(const Given& g, Options& o) {
  const std::string& text = g.text();
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::int64_t rank = parse_count(text.substr(at, comma - at), "--ranks", 0);
    if (rank >= o.observe.world)
      fail(ErrorKind::usage, fmt::format("rank {} is not one of {}", rank, o.observe.world), "--ranks",
           "ranks count from 0, and --world says how many there are");
    o.observe.ranks.push_back(rank);
    at = comma + 1;
  }
}

void parse_record(const Given& g, Options& o) {
  o.observe.record = g.text();
  if (o.observe.record.empty())
    fail(ErrorKind::usage, "there is no file to record to", "--record", "try: --record job.memplan");
  if (o.observe.world_given)
    fail(ErrorKind::usage, "a recording is of one process", "--record",
         "leave --world out, or run the job without --record");
}

/// `memplan record` hands its words to Python, which reads them.
void parse_batches(const Given& g, Options& o) {
  if (o.command && o.command->id == in_record) return;
  for (const std::string& word : split_words(g.text(), ','))
    o.observe.batches.push_back(parse_count(word, "--batches"));
  const std::set<std::int64_t> different(o.observe.batches.begin(), o.observe.batches.end());
  if (different.size() != o.observe.batches.size())
    fail(ErrorKind::usage, "a batch is there twice", "--batches", "give each one once: --batches 4,8,13");
  if (!g.parsed.has("record"))
    fail(ErrorKind::usage, "several batches are for a recording", "--batches", "add --record job.memplan");
  const auto& words = g.parsed.command_line;
  if (std::none_of(words.begin(), words.end(), [](const std::string& w) { return w.find("{batch}") != w.npos; }))
    fail(ErrorKind::usage, "the command does not say where the batch goes", "--batches",
         "put {batch} in its place: -- python train.py --batch {batch}");
}

const std::array command_rows{
    Flag{"format", "", "F", format_choices(), "Output",
         "what goes to stdout (default text); docs/cli.md says what each is for", in_reports, parse_format},
    Flag{"export", "", "FORMAT=FILE", "", "Output", "also write the report to a file in this format", in_documents,
         parse_export, true, false},
    Flag{"allow", "", "KNOBS", "", "Planner",
         "knobs that may be turned besides the usual ones: weights, optimizer, adapters, or all", in_suggest,
         [](const Given& g, Options& o) { o.suggest.allow = g.words(); }, true},
    Flag{"keep", "", "KNOBS", "", "Planner",
         "knobs that stay: allocator, implementation, batch, checkpoint, precision, parallel, offload, or all",
         in_suggest, [](const Given& g, Options& o) { o.suggest.keep = g.words(); }, true},
    Flag{"keep-global-batch", "", "YES", choices<yes_no_names>, "Planner",
         "samples per optimizer step stay (default yes: smaller micro-batches are accumulated)", in_suggest,
         [](const Given& g, Options& o) { o.suggest.keep_samples = parse_yes_no(g.text(), g.name()); }},
    Flag{"for", "", "FRAMEWORK", choices<framework_names>, "Planner", "settings to paste into (default pytorch)",
         in_suggest, [](const Given& g, Options& o) { o.suggest.framework = parse_framework(g.text()); }},
    Flag{"emit-flags", "", "", "", "Planner", "print only the flags of the first recommendation", in_suggest,
         [](const Given&, Options& o) { o.suggest.emit_flags = true; }, false, false},
    Flag{"prices", "", "FILE", "", "Planner", "lines 'card,price per hour': the cheapest cards come first", in_size,
         [](const Given& g, Options& o) { o.size.prices = g.text(); }},
    Flag{
        "utilization", "", "SHARE", "", "Planner",
        "share of the card that may be used, 0.9 or 90% (vLLM's gpu_memory_utilization; default: what --margin leaves)",
        in_size, parse_utilization},
    Flag{"wanted", "", "N", "", "Planner", "recommendations to list (default 3)", in_suggest,
         [](const Given& g, Options& o) { o.suggest.wanted = g.count(); }},
    Flag{"output", "o", "FILE", "", "Output", "write the report to a file, which appears only when it is complete",
         in_reports | in_source | in_calibrate, [](const Given& g, Options& o) { o.output = g.text(); }, false, false},
    Flag{"top", "", "N", "", "Output", "rows of the tensor table (0: all)", in_setup | in_documents | in_observe,
         [](const Given& g, Options& o) { o.top = g.count(0); }},
    Flag{"quiet", "q", "", "", "Output", "one line: verdict, peak, limit", in_documents,
         [](const Given&, Options& o) { o.quiet = true; }},
    Flag{"timeout", "", "SECONDS", "", "Output",
         "give up after so many seconds, with exit code 5 (validate: time that PyTorch may take, default 600)",
         in_reports & ~in_observe, parse_timeout},
    Flag{"color", "", "WHEN", "auto|always|never", "Output", "colours (auto: on a terminal, unless NO_COLOR is set)",
         in_reports, parse_color},
    Flag{"ascii", "", "", "", "Output", "plain ASCII", in_reports, [](const Given&, Options& o) { o.ascii = true; }},
    Flag{"width", "", "N", "", "Output", "columns (default 100, less on a narrow terminal)", in_reports,
         [](const Given& g, Options& o) { o.width = g.count(40); }},
    Flag{"timeline", "", "", "", "Output",
         "add every event of the run, other sizes and other cards (html, perfetto and snapshot always have them)",
         in_estimate, [](const Given&, Options& o) { o.timeline = true; }},
    Flag{"no-search", "", "", "", "Output", "leave out inference, the largest batch, other cards and what would fit",
         in_estimate, [](const Given&, Options& o) { o.search = false; }},
    Flag{"fail-on", "", "WHAT", "no-fit|tight|unknown|regression|warning|never", "Gate",
         "what ends with exit code 1 (default no-fit,unknown; with a baseline also regression)",
         in_estimate | in_gate | in_observe, parse_fail_on, true},
    Flag{"exit-zero", "", "", "", "Gate", "exit code 0 instead of 1", in_estimate | in_check | in_planner | in_observe,
         [](const Given&, Options& o) { o.gate.exit_zero = true; }},
    Flag{"config", "", "FILE", "", "Gate", "the configuration (default: the nearest memplan.toml from here upward)",
         in_gate, [](const Given& g, Options& o) { o.gate.config = g.text(); }},
    Flag{"max-peak", "", "SIZE|P%", "", "Gate", "what the peak may be at most; P% is of the card", in_estimate,
         [](const Given& g, Options& o) { o.gate.max_peak = share_of_card(g); }},
    Flag{"warn-peak", "", "SIZE|P%", "", "Gate", "warns when the peak is above it", in_estimate,
         [](const Given& g, Options& o) { o.gate.warn_peak = share_of_card(g); }},
    Flag{"baseline", "", "FILE", "", "Gate",
         "an earlier JSON report to compare with (FILE#TARGET: one target of a gate; check: default "
         ".memplan/baseline.json)",
         in_estimate | in_gate,
         [](const Given& g, Options& o) {
           o.gate.baseline = g.text();
           o.gate.baseline_origin = g.origin();
         }},
    Flag{"max-increase", "", "SIZE|P%", "", "Gate", "how far the peak may rise above the baseline's", in_estimate,
         [](const Given& g, Options& o) { o.gate.max_increase = threshold(g); }},
    Flag{"warn-increase", "", "SIZE|P%", "", "Gate", "warns when the peak grew by more", in_estimate,
         [](const Given& g, Options& o) { o.gate.warn_increase = threshold(g); }},
    Flag{"force", "f", "", "", "Gate", "replace a baseline that is there", in_baseline,
         [](const Given&, Options& o) { o.gate.force = true; }, false, false},
    Flag{"effective", "", "", "", "Gate", "every value with its origin: flag, environment, file or default", in_config,
         [](const Given&, Options& o) { o.gate.effective = true; }, false, false},
    Flag{"to", "", "FLAGS", "", "Compare", "the flags of the other setup, as in --to '--batch 16 --amp bf16'", in_diff,
         [](const Given& g, Options& o) { o.diff.to = g.text(); }, false, false},
    Flag{"confirm", "", "", "", "Validate",
         "run the module itself on the emulated GPU as well and compare, event by event; for sources (train.py:fn, "
         "hf:NAME and others) and files that memplan made of them",
         in_estimate, [](const Given&, Options& o) { o.confirm.run = true; }, false, false},
    Flag{"confirm-with", "", "RECORDING", "", "Validate", "the same comparison with a recording of that run",
         in_estimate, [](const Given& g, Options& o) { o.confirm.with = g.text(); }, false, false},
    Flag{"on", "", "WHERE", "", "Validate", "emulated[:CARD] (no GPU needed) or cuda[:N]: where PyTorch runs the steps",
         in_validate, [](const Given& g, Options& o) { o.validate.on = g.text(); }},
    Flag{"measured", "", "FILE|SIZE", "", "Validate",
         "compare with a memory snapshot, a memory_stats() JSON, or a figure such as 11.3GiB", in_validate,
         parse_measured, false, false},
    Flag{"counter", "", "NAME", "requested|allocated|reserved|process", "Validate",
         "what a figure of --measured is (default allocated; process: nvidia-smi)", in_validate, parse_counter},
    Flag{"tolerance", "", "P%", "", "Validate", "difference of the peak above which the exit code is 1 (default 2 %)",
         in_validate, parse_tolerance},
    Flag{"program", "", "", "", "Explain", "print the PyTorch script whose memory is estimated", in_explain,
         [](const Given&, Options& o) { o.explain.program = true; }, false, false},
    Flag{"evidence", "", "", "", "Explain", "list the facts that the estimate rests on, and where they come from",
         in_explain, [](const Given&, Options& o) { o.explain.evidence = true; }, false, false},
    Flag{"tensor", "", "TEXT", "", "Explain", "only tensors whose name contains TEXT", in_explain,
         [](const Given& g, Options& o) { o.explain.tensor = g.text(); }, false, false},
    Flag{"module", "", "TEXT", "", "Explain", "only tensors made in modules whose path contains TEXT", in_explain,
         [](const Given& g, Options& o) { o.explain.module = g.text(); }, false, false},
    Flag{"image", "", "N", "", "Export", "height and width of the images (default: the model's)", in_source, nullptr,
         false, false},
    Flag{"eval", "", "", "", "Export", "the model in evaluation mode (default: training mode)", in_source, nullptr,
         false, false},
    Flag{"static", "", "", "", "Export", "fix every size (default: batch and sequence stay open)", in_export, nullptr,
         false, false},
    Flag{"setup", "", "KEY=VALUE,...", "", "Export", "a setup to record, as in precision=amp-bf16,optimizer=sgd",
         in_record, nullptr, true, false},
    Flag{"batches", "", "N,N,N", "", "Export",
         "batch sizes to record (default: three); observe runs the command at each, where it says {batch}",
         in_record | in_observe, parse_batches, false, false},
    Flag{"unsupported", "", "", "", "Explain", "only the ops of the model that memplan has no row for", in_ops,
         [](const Given&, Options& o) { o.ops.unsupported = true; }, false, false},
    Flag{"world", "", "N", "", "Script",
         "ranks of the job; each runs by itself, with RANK, LOCAL_RANK and WORLD_SIZE set", in_observe,
         [](const Given& g, Options& o) {
           o.observe.world = g.count();
           o.observe.world_given = true;
         }},
    Flag{"ranks", "", "N,N", "", "Script", "only these ranks of --world", in_observe, parse_ranks},
    Flag{"devices", "", "N", "", "Script", "GPUs that a process sees (default: as --world, at most 8)", in_observe,
         parse_devices},
    Flag{"stop-after", "", "N", "", "Script", "end the script after N optimizer steps", in_observe,
         [](const Given& g, Options& o) { o.observe.stop_after = g.count(); }},
    Flag{"no-limit", "", "", "", "Script", "never run out of memory: how much would it need?", in_observe,
         [](const Given&, Options& o) { o.observe.no_limit = true; }},
    Flag{"rerun", "", "", "", "Script",
         "start the script again where that tells more: without a limit if memory ran out, with warm caches if it is "
         "compiled",
         in_observe, [](const Given&, Options& o) { o.observe.rerun = true; }},
    Flag{"sizes", "", "HOW", "error|empty", "Script",
         "results whose size depends on values (nonzero, a mask as an index): an error, or empty (a lower bound)",
         in_observe, [](const Given& g, Options& o) { o.observe.empty_sizes = g.text() == "empty"; }},
    Flag{"jobs", "", "N", "", "Script", "ranks that run at once (default: one per core)", in_observe,
         [](const Given& g, Options& o) { o.observe.jobs = g.count(); }},
    Flag{"record", "", "FILE", "", "Script",
         "write the steps as a recording, which memplan FILE, suggest, size and the others read", in_observe,
         parse_record},
    Flag{"device", "", "N", "", "Calibrate", "GPU of this machine, as PyTorch numbers them (default 0)", in_calibrate,
         [](const Given& g, Options& o) { o.calibrate.device = g.count(0); }, false, false},
    Flag{"submit", "", "", "", "Calibrate", "print rows for memplan's own tables instead, for a pull request",
         in_calibrate, [](const Given&, Options& o) { o.calibrate.submit = true; }, false, false},
    Flag{"help", "h", "", "", "General", "this text", in_all, [](const Given&, Options& o) { o.help = true; }, false,
         false},
    Flag{"version", "V", "", "", "General", "print the version", in_all,
         [](const Given&, Options& o) { o.version = true; }, false, false},
};

}  // namespace

std::span<const Flag> command_flags() { return command_rows; }

}  // namespace memplan::cli
