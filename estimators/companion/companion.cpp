#include "estimators/companion/companion.h"

#include <unistd.h>

#include <climits>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>

#include "estimators/base/error.h"
#include "estimators/companion/surroundings.h"

namespace memplan {

namespace {

using End = ProcessResult::End;

constexpr const char* how_to_get =
    "run pip install torch and build with cmake -DMEMPLAN_TORCH_PYTHON=/path/to/python, or name a built one with "
    "MEMPLAN_TORCH=/path/to/memplan-torch";

std::string find_program() {
  if (const std::string named = variable("MEMPLAN_TORCH"); !named.empty()) {
    if (access(named.c_str(), X_OK) == 0) return named;
    fail(ErrorKind::usage, "MEMPLAN_TORCH names no program that can be run", named, how_to_get);
  }
  const std::string here = program_folder();
  if (!here.empty())
    for (const char* place : {"/memplan-torch", "/../libexec/memplan/memplan-torch"})
      if (access((here + place).c_str(), X_OK) == 0) return here + place;
  fail(ErrorKind::usage, "this needs PyTorch, and memplan-torch is not installed beside memplan", {}, how_to_get);
}

/// The library folder of a Python's torch package, found without importing it.
std::optional<std::string> torch_libraries(const std::string& python) {
  const ProcessResult r = run_process({python, "-c",
                                       "import importlib.util as u; s = u.find_spec('torch'); "
                                       "print(s.submodule_search_locations[0] if s else '', end='')"},
                                      {}, {}, {std::chrono::seconds(20), 65536});
  if (r.end != End::exited || r.code != 0 || r.output.empty()) return std::nullopt;
  return r.output + "/lib";
}

ProcessResult start(const CompanionCall& call, const std::string& program, const std::string& text,
                    const std::optional<std::string>& libraries) {
  auto environment = call.environment;
  if (libraries) {
    const std::string old = variable("LD_LIBRARY_PATH");
    environment.emplace_back("LD_LIBRARY_PATH", old.empty() ? *libraries : *libraries + ":" + old);
  }
  return run_process({program, call.sub_command}, text, environment, call.limits);
}

/// The dynamic loader's complaint ends the program before it reads or writes anything.
bool did_not_load(const ProcessResult& r) { return r.end == End::exited && r.code == 127 && r.output.empty(); }

std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const auto newline = text.rfind('\n');
  return newline == std::string::npos ? text : text.substr(newline + 1);
}

ProcessResult start_with_torch(const CompanionCall& call, const std::string& program, const std::string& text) {
  const std::string named = variable("MEMPLAN_TORCH_PYTHON");
  if (!named.empty()) {
    const auto libraries = torch_libraries(named);
    if (!libraries)
      fail(ErrorKind::usage, "the Python that MEMPLAN_TORCH_PYTHON names has no torch package", named,
           named + " -m pip install torch");
    return start(call, program, text, libraries);
  }
  ProcessResult r = start(call, program, text, std::nullopt);
  if (!did_not_load(r)) return r;
  const auto libraries = torch_libraries("python3");
  if (!libraries)
    fail(ErrorKind::usage, "this needs PyTorch, and python3 has no torch package", {},
         "run pip install torch, or set MEMPLAN_TORCH_PYTHON=/path/to/python to one that has it");
  return start(call, program, text, libraries);
}

[[noreturn]] void report(const CompanionCall& call, const ProcessResult& r) {
  const std::string what = "memplan-torch " + call.sub_command;
  switch (r.end) {
    case End::timed_out:
      fail(ErrorKind::internal,
           what + " took longer than " + std::to_string(call.limits.time.count()) + " s and was stopped");
    case End::too_much_output:
      fail(ErrorKind::internal, what + " answered with more than " + std::to_string(call.limits.output_bytes >> 20) +
                                    " MiB and was stopped");
    case End::signalled:
      // By somebody else, as the system does where memory runs out; any other signal is a crash.
      if (r.code == SIGKILL || r.code == SIGTERM || r.code == SIGINT || r.code == SIGHUP)
        fail_input(what + " was ended by signal " + std::to_string(r.code), {},
                   "try again; a system without memory ends processes this way");
      fail(ErrorKind::internal, what + " was ended by signal " + std::to_string(r.code), last_line(r.errors));
    case End::not_started:
      fail_input(what + " could not be started", {}, "the system has no process or no pipe to give; try again");
    case End::exited:
      break;
  }
  fail(ErrorKind::internal, what + " ended with code " + std::to_string(r.code) + " and no answer",
       last_line(r.errors));
}

}  // namespace

std::string program_folder() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  if (n <= 0) return {};
  const std::string text(path, static_cast<std::size_t>(n));
  return text.substr(0, text.rfind('/'));
}

std::string find_emulated_gpu() {
  if (const std::string named = variable("MEMPLAN_EMULATED_GPU"); !named.empty()) {
    if (access(named.c_str(), R_OK) == 0) return named;
    fail(ErrorKind::usage, "the library of the emulated GPU is not there", named,
         "correct or unset MEMPLAN_EMULATED_GPU");
  }
  const std::string here = program_folder();
  for (const char* place :
       {"/emulated_gpu/libemulated_gpu.so", "/libemulated_gpu.so", "/../lib/memplan/libemulated_gpu.so",
        "/../lib64/memplan/libemulated_gpu.so", "/../lib/x86_64-linux-gnu/memplan/libemulated_gpu.so"})
    if (!here.empty() && access((here + place).c_str(), R_OK) == 0) return here + place;
  return {};
}

std::string emulated_gpu_library() {
  if (std::string found = find_emulated_gpu(); !found.empty()) return found;
  fail(ErrorKind::usage, "the emulated GPU is not built", {},
       "run pip install torch, then cmake --preset release -DMEMPLAN_TORCH_PYTHON=$(command -v python3) and cmake "
       "--build build/release");
}

nlohmann::json ask_companion(const CompanionCall& call, const nlohmann::json& request) {
  const std::string program = find_program();
  const std::string text = request.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const ProcessResult r = start_with_torch(call, program, text);
  if (did_not_load(r))
    fail(ErrorKind::usage, "memplan-torch does not run with the PyTorch that is installed", last_line(r.errors),
         "set MEMPLAN_TORCH_PYTHON=/path/to/python to one with the version of torch that memplan-torch was built for");
  nlohmann::json answer = nlohmann::json::parse(r.output, nullptr, false);
  if (!answer.is_object()) report(call, r);
  if (const auto reply = answer.find("reply"); reply != answer.end()) return std::move(*reply);
  const auto error = answer.find("error");
  if (error == answer.end() || !error->is_object()) report(call, r);
  const std::string kind = error->value("kind", "internal");
  fail(kind == "usage"   ? ErrorKind::usage
       : kind == "input" ? ErrorKind::input
                         : ErrorKind::internal,
       error->value("what", "memplan-torch failed"), error->value("where", ""), error->value("hint", ""));
}

}  // namespace memplan
