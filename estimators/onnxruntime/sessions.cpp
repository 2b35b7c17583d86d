#include "estimators/onnxruntime/sessions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "estimators/base/error.h"
#include "estimators/companion/process.h"
#include "estimators/companion/surroundings.h"
#include "estimators/companion/temporary_folder.h"
#include "estimators/onnxruntime/protos.h"
#include "onnx/onnx-ml.pb.h"

namespace memplan {

namespace embedded {
std::string_view onnxruntime_session_py();
}

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t most_zeros = std::int64_t{64} << 30;  // pages of a hole: none of them is ever written
constexpr const char* how_to_install =
    "run pip install 'onnxruntime-gpu[cuda,cudnn]' in the active Python, or name one that has it";

struct GpuPackage {
  std::string python, packages;
};

GpuPackage gpu_package(const std::string& where) {
  for (const std::string& python : where == "auto" ? pythons() : std::vector<std::string>{where})
    for (const std::string& packages : package_folders(python))
      if (!matches(packages + "/onnxruntime_gpu-*.dist-info").empty()) return {python, packages};
  fail(ErrorKind::usage,
       where == "auto" ? "this runs onnxruntime-gpu, and no Python here has it"
                       : "this runs onnxruntime-gpu, and this Python does not have it",
       where == "auto" ? "" : where, how_to_install);
}

/// The folders of CUDA's and cuDNN's libraries: those of the same Python first, then those that come with a PyTorch.
std::string libraries_for(const GpuPackage& package) {
  std::vector<std::string> folders = matches(package.packages + "/nvidia/*/lib");
  for (const std::string& python : pythons())
    for (const std::string& packages : package_folders(python))
      for (const std::string& found : matches(packages + "/nvidia/*/lib"))
        if (std::find(folders.begin(), folders.end(), found) == folders.end()) folders.push_back(found);
  if (const std::string old = variable("LD_LIBRARY_PATH"); !old.empty()) folders.push_back(old);
  return fmt::format("{}", fmt::join(folders, ":"));
}

void write_model(const std::string& slim, const std::string& folder) {
  ::onnx::ModelProto model;
  if (!model.ParseFromString(slim)) fail(ErrorKind::internal, "the slim file cannot be read again");
  const std::int64_t zeros = give_zeros(model, most_zeros);
  if (zeros < 0)
    fail_input("the weights take more than memplan gives a session of ONNX Runtime", to_human(Bytes(most_zeros)));
  std::ofstream out(folder + "/model.onnx", std::ios::binary), weights(folder + "/weights", std::ios::binary);
  model.SerializeToOstream(&out);
  out.close();
  weights.close();
  if (!out || !weights || truncate((folder + "/weights").c_str(), zeros) != 0)
    fail_input("a temporary file cannot be written", folder, "set TMPDIR to a folder with room");
}

/// Inputs in the file's order: a session copies them to the device in the order in which it is given them.
nlohmann::ordered_json request_of(const std::vector<SessionInput>& inputs, const OrtSetup& setup, std::int64_t runs,
                                  bool arena) {
  using nlohmann::ordered_json;
  const auto none = ordered_json::object();
  ordered_json request{{"inputs", none}, {"provider", none}, {"session", none}, {"members", none},
                       {"run", none},    {"runs", runs},     {"arena", arena}};
  for (const SessionInput& i : inputs) request["inputs"][i.name] = ordered_json::array({i.dtype, i.sizes});
  for (const auto& [name, value] : ort_options(setup)) switch (place_of_ort_option(name)) {
      case OrtPlace::member:
        request["members"][name] = value != "0";
        break;
      case OrtPlace::session_entry:
        request["session"][name] = value;
        break;
      case OrtPlace::run_entry:
        if (arena) request["run"][name] = value;  // there is nothing to shrink without
        break;
      case OrtPlace::provider:
        request["provider"][name] = value;
        break;
      case OrtPlace::arena:
        fail(ErrorKind::usage, "Python has no way to give a session this option of its arena", name,
             "leave it out, or measure a program in C++");
    }
  return request;
}

[[noreturn]] void refuse(const json& reply) {
  const std::string what = reply.value("error", "");
  if (reply.value("kind", "") == "missing") fail(ErrorKind::usage, what, {}, how_to_install);
  fail(ErrorKind::input, "ONNX Runtime does not run this file: " + what, {},
       "the emulated GPU computes nothing, so that a size that depends on values on the device is 0 there");
}

json answer_of(const ProcessResult& r, std::chrono::seconds limit) {
  using End = ProcessResult::End;
  if (r.end == End::timed_out)
    fail(ErrorKind::internal,
         fmt::format("the session of ONNX Runtime took longer than {} s and was stopped", limit.count()));
  json reply = json::parse(r.output, nullptr, false);
  if (r.end == End::exited && reply.is_object()) return reply;
  std::string said = r.errors.substr(0, r.errors.find_last_not_of(" \n") + 1);
  said = said.substr(said.find_last_of('\n') + 1);
  // cuDNN's functions are looked up by name when they are called first: one that is not there ends the process.
  if (r.end == End::signalled)
    fail(ErrorKind::usage, fmt::format("the session of ONNX Runtime was ended by signal {}", r.code), said,
         "if the emulated GPU does not know this version, build it for that: cmake --preset release "
         "-DMEMPLAN_ORT_PYTHON=PYTHON && cmake --build build/release");
  fail(ErrorKind::internal, fmt::format("the session of ONNX Runtime ended with code {} and without an answer", r.code),
       said);
}

SessionLog log_of(const json& reply) try {
  if (reply.contains("error")) refuse(reply);
  SessionLog log;
  log.version = reply.at("version").get<std::string>();
  log.out_of_memory = reply.value("out_of_memory", "");
  for (const json& phase : reply.at("phases")) {
    auto& out = log.phases.emplace_back();
    for (const json& r : phase) {
      out.push_back({r.at(0).get<bool>(), r.at(1).get<std::int64_t>(), r.at(2).get<std::uint64_t>()});
      if (out.back().bytes < 0) fail(ErrorKind::internal, "a session of ONNX Runtime asked for less than nothing");
    }
  }
  return log;
} catch (const json::exception& e) {
  fail(ErrorKind::internal, std::string("the reply of a session of ONNX Runtime is not as expected: ") + e.what());
}

}  // namespace

SessionLogs run_sessions(const std::string& slim, const std::vector<SessionInput>& inputs, const OrtSetup& setup,
                         std::int64_t runs, const SessionPlace& place) {
  const GpuPackage package = gpu_package(place.python);
  const TemporaryFolder folder;
  write_model(slim, folder.path());
  const std::string libraries = libraries_for(package);
  ProcessLimits limits;
  limits.time = place.time_limit;
  const auto run = [&](bool arena) {
    auto environment = arena ? place.card : place.unlimited;
    environment.emplace_back("LD_LIBRARY_PATH", libraries);
    const ProcessResult r = run_process(
        {package.python, "-I", "-c", std::string(embedded::onnxruntime_session_py()), package.packages, folder.path()},
        request_of(inputs, setup, runs, arena).dump(), environment, limits);
    return log_of(answer_of(r, place.time_limit));
  };
  return {run(false), run(true)};
}

}  // namespace memplan
