#include "cli/flags/merged_words.h"

#include <algorithm>
#include <vector>

#include "cli/flags/flags.h"
#include "cli/flags/spelling.h"
#include "estimators/base/shell.h"

namespace memplan::cli {

namespace {

struct Word {
  std::string name, rest;  ///< "--batch", " 64"
};

/// Values never hold " --": shell_word quotes what has a space, and no value of memplan starts with dashes.
std::vector<Word> split(std::string_view words) {
  std::vector<Word> out;
  std::size_t at = words.find("--");
  while (at != std::string_view::npos) {
    const std::size_t next = words.find(" --", at);
    const std::string_view piece = words.substr(at, next == std::string_view::npos ? next : next - at);
    const std::size_t space = piece.find(' ');
    out.push_back(
        {std::string(piece.substr(0, space)), space == std::string_view::npos ? "" : std::string(piece.substr(space))});
    at = next == std::string_view::npos ? next : next + 1;
  }
  return out;
}

/// A change of the number of GPUs says all of the parallelism, but not which modules are the model's blocks.
bool is_parallel_flag(const std::string& name) {
  const Flag* flag = name.starts_with("--") ? find_flag(std::string_view(name).substr(2)) : nullptr;
  return flag && flag->group == "Parallel" && flag->name != "blocks";
}

bool replaces(const Word& now, const Word& earlier) {
  const auto precision = [](const std::string& n) { return n == "--amp" || n == "--precision"; };
  const auto option = [](const Word& w) { return w.rest.substr(0, w.rest.find('=')); };
  if (now.name == "--ort") return earlier.name == now.name && option(now) == option(earlier);
  return now.name == earlier.name || (precision(now.name) && precision(earlier.name));
}

}  // namespace

std::string merged_words(std::string_view words, std::string_view change) {
  std::vector<Word> all = split(words), changes = split(as_flags(change));
  if (std::any_of(changes.begin(), changes.end(), [](const Word& w) { return w.name == "--gpus"; }))
    std::erase_if(all, [](const Word& w) { return is_parallel_flag(w.name); });
  for (Word& w : changes) {
    const auto earlier = std::find_if(all.begin(), all.end(), [&](const Word& a) { return replaces(w, a); });
    if (earlier == all.end()) {
      all.push_back(std::move(w));
    } else if (w.name == "--alloc-conf") {
      earlier->rest += "," + w.rest.substr(1);
    } else {
      *earlier = std::move(w);
    }
  }
  std::string out;
  for (const Word& w : all) out += (out.empty() ? "" : " ") + w.name + w.rest;
  return out;
}

}  // namespace memplan::cli
