// The entry points of libFuzzer for the target that MEMPLAN_FUZZ_TARGET names; any other word lists them, each with the
// most bytes of its inputs.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/mutate.h"
#include "tests/fuzz/targets.h"

using namespace memplan::fuzz;

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace {

const Target& target() {
  static const Target* const chosen = [] {
    const char* name = std::getenv("MEMPLAN_FUZZ_TARGET");
    const Target* t = name ? find_target(name) : nullptr;
    if (!t) {
      std::fprintf(stderr, "MEMPLAN_FUZZ_TARGET names one of:");
      for (const Target& one : targets())
        std::fprintf(stderr, " %.*s=%zu", static_cast<int>(one.name.size()), one.name.data(), one.most);
      std::fprintf(stderr, "\n");
      std::exit(2);
    }
    return t;
  }();
  return *chosen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > target().most) return -1;
  target().run({reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most,
                                               unsigned int seed) {
  if (target().grammar != Grammar::bytes && seed % 4 != 0) {
    Random random(seed);
    const std::string text(reinterpret_cast<const char*>(data), size);
    const std::string changed =
        target().grammar == Grammar::json ? mutated_json(text, random) : mutated_protobuf(text, random);
    if (!changed.empty() && changed.size() <= most) {
      std::memcpy(data, changed.data(), changed.size());
      return changed.size();
    }
  }
  return LLVMFuzzerMutate(data, size, most);
}
