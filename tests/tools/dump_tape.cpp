// Prints the tape of a model, one call per line:   dump_tape MODEL [name=size …] [--inference] [--json]
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "estimators/pipeline.h"
#include "estimators/tape/tape_json.h"
#include "estimators/tape/tape_text.h"

using namespace memplan;

namespace {

int failed(const Error& e) {
  std::cerr << "error: " << e.what << "\n";
  if (!e.where.empty()) std::cerr << "  where: " << e.where << "\n";
  if (!e.hint.empty()) std::cerr << "  hint: " << e.hint << "\n";
  return e.kind == ErrorKind::usage ? 2 : e.kind == ErrorKind::input ? 3 : 70;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: dump_tape MODEL [name=size …] [--inference] [--json]\n";
    return 2;
  }
  TrainingSetup setup;
  bool json = false;
  for (int i = 2; i < argc; ++i) {
    const std::string arg = argv[i];
    const std::size_t equals = arg.find('=');
    if (arg == "--json")
      json = true;
    else if (arg == "--inference")
      setup.mode = Mode::inference;
    else if (equals != std::string::npos)
      setup.dims[arg.substr(0, equals)] = std::atoll(arg.c_str() + equals + 1);
  }
  const auto model = load_model(argv[1]);
  if (!model.ok()) return failed(model.error());
  const auto tape = tape_of(*model, setup);
  if (!tape.ok()) return failed(tape.error());
  std::cout << (json ? to_json(*tape).dump() : to_text(*tape)) << "\n";
}
