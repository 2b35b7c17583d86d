// What was asked of this library and only a device can answer: counted by name, so that a report can say what is
// missing.
#include <cstring>
#include <mutex>

#include "emulated.h"

namespace {

struct Unknown {
  const char* what;
  std::uint64_t count;
};

std::mutex lock;
Unknown found[128];
int number = 0;

}  // namespace

void emulated_gpu_unknown(const char* what) {
  const std::lock_guard guard(lock);
  for (int i = 0; i < number; ++i)
    if (!std::strcmp(found[i].what, what)) {
      ++found[i].count;
      return;
    }
  if (number < 128) found[number++] = {what, 1};
}

/// The i-th of them and how often it was asked; null behind the last one.
EMULATED const char* emulated_gpu_unknown_at(int i, std::uint64_t* count) {
  const std::lock_guard guard(lock);
  if (i >= number) return nullptr;
  *count = found[i].count;
  return found[i].what;
}
