// What moved between two reports, two models, or two setups of one model.
#include "cli/gate/diff.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/report/report.h"

namespace memplan::cli {

namespace {

Json estimate_of(Options options, const std::string& model) {
  options.argument = model;
  options.search = false;
  return document_of(compute(options, timeline_wanted(options)), options);
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

/// The same model with other flags: those of the command, then those of --to, of which the later one counts.
Json other_setup(const Options& options) {
  if (is_document(options.argument))
    fail(ErrorKind::usage, "--to needs a model, a report has no other setup", "--to",
         "try: memplan diff model.onnx --batch 8 --to '--batch 16'");
  std::vector<std::string> words{"estimate", options.argument};
  const std::vector<std::string> to = words_of(options.diff.to);
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
  return estimate_of(make_options(parse_arguments(words)), options.argument);
}

}  // namespace

int run_diff(const Options& options) {
  const bool two = options.arguments.size() == 2;
  if (two == !options.diff.to.empty())
    fail(ErrorKind::usage, two ? "two things to compare and --to as well" : "there is nothing to compare with",
         "memplan diff", "give two reports or models, or one model and --to '--batch 16'");
  const Json base = side(options, options.arguments.front());
  const Json head = two ? side(options, options.arguments.back()) : other_setup(options);
  deliver(diff_of(base, head), options);
  return 0;
}

}  // namespace memplan::cli
