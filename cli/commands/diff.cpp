// What moved between two reports, two models, or two setups of one model.
#include "cli/gate/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/answer/answer.h"
#include "cli/commands/commands.h"
#include "cli/report/report.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/setup/field.h"

namespace memplan::cli {

namespace {

Json estimate_of(Options options, const std::string& model) {
  options.argument = model;
  options.search = false;
  return document_of(compute(options, run_wanted(options)), options);
}

/// A saved report (path#target for one of a gate's), or a model that is estimated with the flags of the command.
Json side(const Options& options, const std::string& word) {
  std::string path = word, target;
  if (const std::size_t hash = word.rfind('#'); hash != std::string::npos && !is_document(word))
    path = word.substr(0, hash), target = word.substr(hash + 1);
  if (is_document(path)) {
    const Json document = load_document(path, ErrorKind::input);
    return report_in(document, target, path);
  }
  return estimate_of(options, word);
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false, inside = false;
  for (const char c : text) {
    if (c == '\'')
      quoted = !quoted, inside = true;
    else if (c == ' ' && !quoted) {
      if (inside) words.push_back(word);
      word.clear(), inside = false;
    } else
      word += c, inside = true;
  }
  if (inside) words.push_back(word);
  return words;
}

/// The same model with other flags: those of the command, then those of `to`, of which the later one counts.
Options with_flags(const Options& options, const std::vector<std::string>& to) {
  std::vector<std::string> words{"estimate", options.argument};
  // A flag that --to gives again replaces the command's.
  for (std::size_t i = 0; i < options.setup_flags.size(); ++i) {
    const std::string& word = options.setup_flags[i];
    const bool flag = word.starts_with("--");
    bool replaced = false;
    for (const std::string& t : to) {
      const std::string name = t.substr(0, t.find('='));
      // --amp and --precision say the same thing.
      const auto precision = [](const std::string& n) { return n == "--amp" || n == "--precision"; };
      replaced = replaced || (flag && (name == word || (precision(name) && precision(word))));
    }
    if (!replaced)
      words.push_back(word);
    else
      while (i + 1 < options.setup_flags.size() && !options.setup_flags[i + 1].starts_with("--")) ++i;
  }
  words.insert(words.end(), to.begin(), to.end());
  Parsed parsed = parse_arguments(words);
  // What stays of the other setup was not typed for this one, which may be one of inference.
  for (const std::string& word : options.setup_flags)
    if (word.starts_with("--") &&
        std::none_of(to.begin(), to.end(), [&](const std::string& t) { return t.starts_with(word); }))
      parsed.origin.erase(word.substr(2));
  Options made = make_options(parsed);
  made.search = false;
  return made;
}

Json other_setup(const Options& options) {
  if (is_document(options.argument))
    fail(ErrorKind::usage, "--to needs a model, a report has no other setup", "--to",
         "try: memplan diff model.onnx --batch 8 --to '--batch 16'");
  return estimate_of(with_flags(options, words_of(options.diff.to)), options.argument);
}

std::size_t place_of(const std::string& version) {
  for (std::size_t i = 0; i < profiles().size(); ++i)
    if (profiles()[i].version == version) return i;
  return 0;  // a report names rows only
}

/// Whether a call of the model is one that a change is about.
bool concerns(const VersionChange& change, const Tape& tape) {
  return std::any_of(tape.calls.begin(), tape.calls.end(),
                     [&](const Call& call) { return call.op.find(change.ops) != std::string::npos; });
}

/// What one version moves against the one before it: parts in bytes, and what it does otherwise that reaches them.
Json version_step(const TorchProfile& profile, const Tape& tape, const Json& before, const Json& after, bool back) {
  const Json moved = diff_of(before, after);
  Json parts = Json::array(), why = Json::array();
  for (const Json& part : moved.at("parts"))
    if (part.at("delta_bytes") != 0)
      parts.push_back({{"category", part.at("category")}, {"delta_bytes", part.at("delta_bytes")}});
  for (const VersionChange& change : profile.changes) {
    const bool reaches = std::any_of(parts.begin(), parts.end(), [&](const Json& part) {
      return change.parts.find(part.at("category").get<std::string>()) != std::string_view::npos;
    });
    if (reaches && concerns(change, tape)) why.push_back(change.what);
  }
  return {{"version", profile.version},
          {"undone", back},
          {"delta_bytes", moved.at("summary").at("delta_bytes")},
          {"parts", parts},
          {"why", why}};
}

/// Upgrading, version by version; a downgrade undoes what the same versions brought.
Json upgrade(const Options& options, const std::string& from, const std::string& to) {
  Job job = load_job(with_flags(options, {"--torch", to}));
  const auto at = [&](const std::string& version) {
    job.options = with_flags(options, {"--torch", version});
    choose_torch(job.options, job.model);
    return document_of(compute(job, run_wanted(job.options)), job.options);
  };
  const Json base = at(from), head = at(to);
  const auto version_in = [](const Json& report) {
    return report.at("setup").at("torch").at("version").get<std::string>();
  };
  const std::size_t first = place_of(version_in(base)), last = place_of(version_in(head));
  const Tape tape = unwrap(tape_of(job.model, job.options.setup));
  Json document = diff_of(base, head), steps = Json::array(), before = base;
  for (std::size_t i = first; i != last;) {
    const bool back = last < first;
    i = back ? i - 1 : i + 1;
    const Json after = i == last ? head : at(std::string(profiles()[i].version));
    steps.push_back(version_step(profiles()[back ? i + 1 : i].profile(), tape, before, after, back));
    before = after;
  }
  document["versions"] = steps;
  return document;
}

}  // namespace

int run_diff(const Options& options) {
  if (const std::size_t comma = options.torch.find(','); comma != std::string::npos) {
    if (options.arguments.size() != 1 || !options.diff.to.empty() || is_document(options.argument) ||
        options.torch.find(',', comma + 1) != std::string::npos)
      fail(ErrorKind::usage, "two versions compare one model with itself", setting(Field::torch, options.torch),
           "try: memplan diff model.onnx --torch 2.11,2.15");
    deliver(upgrade(options, options.torch.substr(0, comma), options.torch.substr(comma + 1)), options);
    return 0;
  }
  const bool two = options.arguments.size() == 2;
  if (two == !options.diff.to.empty())
    fail(ErrorKind::usage, two ? "two things to compare and --to as well" : "there is nothing to compare with",
         "memplan diff", "give two reports or models, or one model and --to '--batch 16' or --torch 2.11,2.15");
  const Json base = side(options, options.arguments.front());
  const Json head = two ? side(options, options.arguments.back()) : other_setup(options);
  deliver(diff_of(base, head), options);
  return 0;
}

}  // namespace memplan::cli
