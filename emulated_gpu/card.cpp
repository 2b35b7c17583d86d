// Which card is emulated.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emulated.h"

namespace emulated {

namespace {

#include "cards.inc"  // generated from data/devices/gpus.csv: constexpr Card cards[] = {…};

const Card& chosen() {
  const char* wanted = std::getenv("EMULATED_GPU");
  if (!wanted || !*wanted) wanted = "h100";
  // The short names of the usual sizes.
  static constexpr const char* usual[][2] = {
      {"h100", "h100-80gb"}, {"a100", "a100-80gb"}, {"gh200", "gh200-96gb"}, {"a100-40", "a100-40gb"}};
  for (const auto& [alias, key] : usual)
    if (!std::strcmp(wanted, alias)) wanted = key;
  for (const Card& c : cards)
    if (!std::strcmp(wanted, c.key)) return c;
  std::fprintf(stderr, "emulated GPU: no card \"%s\" in EMULATED_GPU; there are", wanted);
  for (const Card& c : cards) std::fprintf(stderr, " %s", c.key);
  std::fprintf(stderr, "\n");
  std::_Exit(2);
}

std::atomic<std::uintptr_t> next_handle{0x10000};

}  // namespace

const Card& card() {
  static const Card& c = chosen();
  return c;
}

std::uint64_t bytes_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  if (!text || !*text) return otherwise;
  char* end = nullptr;
  const double number = std::strtod(text, &end);
  int shift = 0;
  switch (*end) {
    case 'k':
    case 'K':
      shift = 10;
      break;
    case 'm':
    case 'M':
      shift = 20;
      break;
    case 'g':
    case 'G':
      shift = 30;
      break;
    case 't':
    case 'T':
      shift = 40;
      break;
    default:
      return std::strtoull(text, nullptr, 10);
  }
  return static_cast<std::uint64_t>(number * static_cast<double>(1ull << shift));
}

std::uint64_t total_bytes() {
  static const std::uint64_t n = bytes_from_environment("EMULATED_GPU_TOTAL", card().total);
  return n;
}

std::uint64_t context_bytes() {
  static const std::uint64_t n = bytes_from_environment("EMULATED_GPU_CONTEXT", 520ull << 20);
  return n;
}

int device_count() {
  // Of a job that a launcher started, every process sees as many devices as there are processes.
  static const int made = [] {
    const int wanted =
        static_cast<int>(bytes_from_environment("EMULATED_GPU_COUNT", bytes_from_environment("LOCAL_WORLD_SIZE", 1)));
    return wanted < 1 ? 1 : wanted > 16 ? 16 : wanted;
  }();
  // Read each time: scripts set it before their first use of CUDA.
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!visible) return made;
  int n = 0;
  for (const char* at = visible; *at; ++n) {
    if (*at == '-') break;
    at = std::strchr(at, ',');
    if (!at) {
      ++n;
      break;
    }
    ++at;
  }
  return n < made ? n : made;
}

int& current_device() {
  static thread_local int device = 0;
  return device;
}

}  // namespace emulated

void* emulated_gpu_handle() { return reinterpret_cast<void*>(emulated::next_handle += 64); }
