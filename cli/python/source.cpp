#include "cli/python/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/python/package.h"
#include "cli/terminal/progress.h"
#include "estimators/base/error.h"
#include "estimators/companion/process.h"

namespace memplan::cli {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// An 80-layer model takes a minute.
constexpr ProcessLimits limits{std::chrono::seconds(900), std::size_t{1} << 20};

/// A file that says what a model of transformers is made of, whatever its name; a report of memplan is none.
bool is_configuration(const std::string& path) {
  constexpr std::streamsize most = 8 << 20;
  if (!path.ends_with(".json")) return false;
  std::string text(static_cast<std::size_t>(most), '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(text.data(), most);
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  const auto has = [&](std::string_view key) { return text.find(key) != std::string::npos; };
  return (has("\"model_type\"") || has("\"architectures\"")) && !has("\"schema_version\"");
}

bool is_name(std::string_view argument) {
  return argument.starts_with("hf:") || argument.starts_with("timm:") || argument.starts_with("torchvision:");
}

bool of_transformers(const std::string& argument) {
  return argument.starts_with("hf:") || (!is_name(argument) && argument.find(".py:") == std::string::npos);
}

/// The last line of its output; what a script prints before is none of ours.
json answer_of(const ProcessResult& r) {
  std::string_view text = r.output;
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  return json::parse(text.substr(text.rfind('\n') + 1), nullptr, false);
}

[[noreturn]] void report_no_answer(const ProcessResult& r, const std::string& argument) {
  using End = ProcessResult::End;
  constexpr const char* by_hand = "`memplan export` shows all that it prints";
  if (r.end == End::timed_out)
    fail_input(fmt::format("the export took longer than {} s and was stopped", limits.time.count()), argument, by_hand);
  if (r.end == End::signalled)
    fail_input(fmt::format("the export was ended by signal {}{}", r.code, r.code == 9 ? " (out of memory?)" : ""),
               argument, by_hand);
  std::string_view last = r.errors;
  while (!last.empty() && (last.back() == '\n' || last.back() == ' ')) last.remove_suffix(1);
  last = last.substr(last.rfind('\n') + 1);
  fail_input(fmt::format("the export ended with code {} and no file{}{}", r.code, last.empty() ? "" : ": ",
                         last.substr(0, 300)),
             argument, by_hand);
}

}  // namespace

bool is_source(const std::string& argument) {
  std::error_code ec;
  if (fs::is_directory(argument, ec)) return fs::is_regular_file(argument + "/config.json", ec);
  if (fs::exists(argument, ec)) return is_configuration(argument);
  const std::size_t script = argument.rfind(".py:");
  return is_name(argument) || (script != std::string::npos && script + 4 < argument.size());
}

std::string made_by_package(std::vector<std::string> words, const std::string& source, const std::string& folder) {
  std::vector<std::string> needed{"torch"};
  if (of_transformers(source)) needed.emplace_back("transformers");
  const std::string python = find_python(needed);
  words.insert(words.end(), {"--", source});
  const ProcessResult r = run_process(package_command(python, folder, words), {}, package_environment(), limits);
  const json answer = answer_of(r);
  if (!answer.is_object()) report_no_answer(r, source);
  if (const auto path = answer.find("path"); path != answer.end() && path->is_string()) return path->get<std::string>();
  fail(answer.value("code", 3) == 2 ? ErrorKind::usage : ErrorKind::input, answer.value("message", "the export failed"),
       answer.value("where", source), answer.value("hint", ""));
}

ModelFile model_file(const std::string& argument, const JobOptions& options, std::vector<std::string> recorded) {
  if (!is_source(argument)) {
    if (!options.source_flags.empty())
      fail(ErrorKind::usage, "the model is a file already, and this flag is about exporting one",
           options.source_flags.front(), "leave it out, or give a configuration, a name or a function");
    return {argument, nullptr};
  }
  Progress progress;
  const bool record = !recorded.empty();
  progress.show(fmt::format("{} {}", record ? "running" : "exporting", argument));
  ModelFile file{{}, std::make_unique<TemporaryFolder>()};
  std::vector<std::string> words{record ? "record" : "export", "--for-program", "--output",
                                 file.scratch->path() + (record ? "/model.memplan" : "/model.pt2")};
  words.insert(words.end(), recorded.begin(), recorded.end());
  words.insert(words.end(), options.source_flags.begin(), options.source_flags.end());
  for (const std::string& input : options.input_words) words.insert(words.end(), {"--input", input});
  file.path = made_by_package(std::move(words), argument, file.scratch->path());
  return file;
}

}  // namespace memplan::cli
