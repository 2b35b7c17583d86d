// memplan-torch SUBCOMMAND < request.json > reply.json
#include <cstdio>
#include <iostream>
#include <iterator>

#include "memplan_torch/commands.h"

namespace memplan::torch_side {
namespace {

// One line per sub-command.
constexpr SubCommand sub_commands[] = {
    {"execute", "run a tape's training or inference steps on a CUDA device and say what its allocator did",
     run_execute},
    {"version", "the versions of PyTorch that this was built for and that it runs with", run_version},
    {"read-torchscript", "the program of a TorchScript file, without its weights", run_read_torchscript},
};

int answer(const nlohmann::json& reply) {
  const std::string text = reply.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return written && reply.contains("reply") ? 0 : 1;
}

nlohmann::json error(const std::string& kind, const std::string& what, const std::string& where = {},
                     const std::string& hint = {}) {
  return {{"error", {{"kind", kind}, {"what", what}, {"where", where}, {"hint", hint}}}};
}

int run(const std::string& name) {
  for (const SubCommand& command : sub_commands) {
    if (name != command.name) continue;
    try {
      const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
      return answer({{"reply", command.run(text.empty() ? nlohmann::json() : nlohmann::json::parse(text))}});
    } catch (const Refusal& r) {
      return answer(error(r.kind, r.what(), r.where, r.hint));
    } catch (const std::exception& e) {
      return answer(error("internal", e.what()));
    }
  }
  std::cerr << "usage: memplan-torch SUBCOMMAND < request.json > reply.json\n";
  for (const SubCommand& command : sub_commands) std::cerr << "  " << command.name << "  " << command.summary << "\n";
  return 2;
}

}  // namespace
}  // namespace memplan::torch_side

int main(int argc, char** argv) { return memplan::torch_side::run(argc > 1 ? argv[1] : ""); }
