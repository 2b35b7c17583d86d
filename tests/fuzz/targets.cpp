#include "tests/fuzz/targets.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/flags/flags.h"
#include "cli/flags/options.h"
#include "cli/flags/parsed.h"
#include "cli/gate/config.h"
#include "cli/report/document.h"
#include "estimators/frontends/detect.h"
#include "estimators/frontends/onnx/reader.h"
#include "estimators/frontends/torch_export/program.h"
#include "estimators/frontends/torch_export/reader.h"
#include "estimators/frontends/torchscript/reader.h"
#include "estimators/measured/sources.h"
#include "estimators/pipeline.h"
#include "tests/unit/scratch_archive.h"

namespace memplan::fuzz {

namespace {

/// A step of a model that was read: what its sizes and ops make of the passes, the interpreter and the allocator.
void run_model(const Model& model) {
  TrainingSetup setup;
  setup.batch = 2;
  setup.sequence = 8;
  setup.steps = 1;
  for (const bool training : {true, false}) {
    setup.mode = training ? Mode::training : Mode::inference;
    const auto tape = tape_of(model, setup);
    if (!tape) return expect_told(tape.error());
    const auto steps = run_steps(*tape, setup, Device{});
    if (!steps) return expect_told(steps.error());
  }
}

void fuzz_onnx(std::string_view bytes) {
  expect_told([&] { run_model(onnx_format::read_model(bytes, "model.onnx")); });
}

/// A file that holds these bytes until the next call: one for a process, in memory where the system has a place for
/// that.
const std::string& file_of(std::string_view bytes) {
  static const ScratchFile file({}, ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  std::ofstream(file.path(), std::ios::binary | std::ios::trunc) << bytes;
  return file.path();
}

/// Any file that is named where a model is meant: archives, weights, packed files, and what is no model at all.
void fuzz_file(std::string_view bytes) {
  const auto model = load_model(file_of(bytes));
  if (!model) return expect_told(model.error());
  run_model(*model);
}

void fuzz_program(std::string_view bytes) {
  expect_told([&] { torch_export::parse_program(std::string(bytes), {}, "model.json"); });
}

/// The whole archive around a graph's JSON.
void fuzz_exported(std::string_view bytes) {
  const ScratchArchive file(
      {{"m/archive_format", "pt2"}, {"m/archive_version", "0"}, {"m/models/model.json", std::string(bytes)}});
  const auto model = load_model(file.path());
  if (!model) return expect_told(model.error());
  run_model(*model);
}

/// A program as memplan-torch sends it: parsed, run on paper with a batch of rows for every input, and its step.
void fuzz_script(std::string_view bytes) {
  const auto reply = nlohmann::json::parse(bytes, nullptr, false);
  if (reply.is_discarded()) return;
  expect_told([&] {
    auto program = std::make_shared<torch_export::Program>();
    program->script = std::make_shared<const torchscript::Script>(torchscript::parse_script(reply));
    Model model;
    Graph& graph = model.graphs.emplace_back();
    for (const torchscript::ScriptInput& in : program->script->inputs) {
      GraphValue v;
      v.name = in.name;
      v.dtype = DType::float32;
      v.shape = std::vector<Dim>{{-1, "batch"}, {4, ""}};
      graph.inputs.push_back(static_cast<GraphValueId>(graph.values.size()));
      graph.values.push_back(std::move(v));
    }
    model.exported = std::move(program);
    run_model(model);
  });
}

void fuzz_measured(std::string_view bytes) {
  const std::string& path = file_of(bytes);
  expect_told([&] { measurement_from_file(path); });
}

void fuzz_config(std::string_view bytes) {
  const std::string& path = file_of(bytes);
  expect_told([&] {
    const cli::Config config = cli::load_config(path);
    for (const cli::Target& t : config.targets) cli::options_of(config, t);
  });
}

/// A saved report in every format that shows it.
void fuzz_report(std::string_view bytes) {
  const std::string& path = file_of(bytes);
  expect_told([&] {
    const cli::Json document = cli::load_document(path, ErrorKind::input);
    for (const cli::ReportFormat& format : cli::report_formats())
      if (format.documents & cli::kind_of(document)) expect_told([&] { cli::render(document, format, {}); });
  });
}

/// The words of a command line, one a line.
void fuzz_flags(std::string_view bytes) {
  std::vector<std::string> words = cli::split_words(bytes, '\n');
  for (std::string& word : words) word.resize(std::min(word.size(), word.find('\0')));
  expect_told([&] { cli::make_options(cli::parse_arguments(words)); });
}

/// The values of flags, "name=value" a line behind the command's name, as they are after the words were sorted.
void fuzz_values(std::string_view bytes) {
  const std::vector<std::string> words = cli::split_words(bytes, '\n');
  if (words.empty()) return;
  cli::Parsed parsed;
  parsed.command = cli::find_command(words.front());
  if (!parsed.command) parsed.command = cli::find_command("estimate");
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    const cli::Flag* flag = cli::find_flag(std::string_view(word).substr(0, equals));
    if (!flag) {
      parsed.positionals.push_back(word);
      continue;
    }
    if (!(flag->commands & parsed.command->id)) continue;
    auto& values = parsed.values[std::string(flag->name)];
    values.push_back(equals == std::string::npos || flag->value.empty() ? std::string() : word.substr(equals + 1));
    parsed.origin[std::string(flag->name)] = "--" + std::string(flag->name);
  }
  expect_told([&] { cli::make_options(parsed); });
}

constexpr std::size_t kib = 1024;
constexpr std::array table{
    Target{"onnx", Grammar::protobuf, fuzz_onnx, 32 * kib},
    Target{"file", Grammar::bytes, fuzz_file, 64 * kib},
    Target{"program", Grammar::json, fuzz_program, 20 * kib},
    Target{"exported", Grammar::json, fuzz_exported, 20 * kib},
    Target{"script", Grammar::json, fuzz_script, 8 * kib},
    Target{"measured", Grammar::json, fuzz_measured, 8 * kib},
    Target{"tape", Grammar::json, fuzz_tape, 12 * kib},
    Target{"config", Grammar::bytes, fuzz_config, 4 * kib},
    Target{"report", Grammar::json, fuzz_report, 24 * kib},
    Target{"flags", Grammar::bytes, fuzz_flags, kib},
    Target{"values", Grammar::bytes, fuzz_values, kib},
};

}  // namespace

std::span<const Target> targets() {
  static const std::vector<Target> all = [] {
    std::vector<Target> out(table.begin(), table.end());
    out.insert(out.end(), parser_targets().begin(), parser_targets().end());
    return out;
  }();
  return all;
}

}  // namespace memplan::fuzz
