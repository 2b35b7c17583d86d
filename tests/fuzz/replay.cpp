// Runs every input of the corpora through its target, and mutations of each with fixed seeds:
//   memplan_fuzz_replay CORPUS [ROUNDS [TARGET [SEED]]]
// CORPUS has a folder for every target; TARGET runs that one alone. From the second round on a mutation may be one of
// the mutation before. MEMPLAN_FUZZ_LAST names a file that each input is written to before it runs, for those that end
// the program. The last line is "N passed, N failed", the exit status 1 where one failed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/fuzz/mutate.h"
#include "tests/fuzz/targets.h"
#include "tests/unit/damage.h"

using namespace memplan;
using namespace memplan::fuzz;

namespace {

std::vector<std::filesystem::path> inputs_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> out;
  if (std::filesystem::is_directory(folder))
    for (const auto& entry : std::filesystem::directory_iterator(folder)) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

std::string mutated(const Target& target, const std::string& bytes, Random& random) {
  const std::string formed = target.grammar == Grammar::json       ? mutated_json(bytes, random)
                             : target.grammar == Grammar::protobuf ? mutated_protobuf(bytes, random)
                                                                   : std::string();
  return formed.empty() && !bytes.empty() ? damaged(bytes, random) : formed;
}

/// False, with a line that says so, where the input is a finding.
template <class Name>
bool holds(const Target& target, const std::string& bytes, const Name& name) {
  static const char* const last = std::getenv("MEMPLAN_FUZZ_LAST");
  if (last) std::ofstream(last, std::ios::binary) << bytes;
  try {
    target.run(bytes);
    return true;
  } catch (const std::exception& finding) {
    std::printf("FAILED %s: %s\n", name().c_str(), finding.what());
    return false;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: memplan_fuzz_replay CORPUS [ROUNDS]\n");
    return 2;
  }
  const long rounds = argc > 2 ? std::atol(argv[2]) : 0;
  const std::string_view only = argc > 3 ? argv[3] : "";
  const std::uint64_t seed = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 20261122;
  std::int64_t passed = 0, failed = 0;
  for (const Target& target : targets()) {
    if (!only.empty() && target.name != only) continue;
    const auto inputs = inputs_of(std::filesystem::path(argv[1]) / target.name);
    if (inputs.empty()) {
      std::printf("FAILED %.*s has no inputs\n", static_cast<int>(target.name.size()), target.name.data());
      ++failed;
    }
    for (const auto& path : inputs) {
      std::ifstream in(path, std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(in), {}};
      bool good = holds(target, bytes, [&] { return path.string(); });
      Random random(seed);
      std::string input = bytes;
      for (long i = 0; i < rounds; ++i) {
        input = mutated(target, random() % 4 == 0 && input.size() <= target.most ? input : bytes, random);
        good = holds(target, input, [&] { return path.string() + " round " + std::to_string(i); }) && good;
      }
      ++(good ? passed : failed);
    }
  }
  std::printf("%lld passed, %lld failed\n", static_cast<long long>(passed), static_cast<long long>(failed));
  return failed ? 1 : 0;
}
