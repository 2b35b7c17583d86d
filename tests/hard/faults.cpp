// A library to preload: it fails one call of a program, the Nth of a kind, and counts them.
//
//   LD_PRELOAD=libmemplan_faults.so MEMPLAN_FAULT=KIND:N[+] memplan …
//
// "+" fails all from the Nth on. KIND: memory (no memory for malloc and new), read-error (EIO), read-short (one byte),
// read-interrupted (EINTR), write-error (ENOSPC), write-short (one byte), write-interrupted (EINTR), system (open,
// mmap, rename, pipe2, fork, mkdtemp … fail as they do where a limit is reached), shrink (the file of the Nth mmap is
// empty from then on), signal (SIGTERM at that call of any of these; memory left out). MEMPLAN_FAULT_COUNT=FILE writes
// "kind count" lines to FILE at the end. Calls are counted from main() on and in this process alone: children run
// without faults.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

enum Kind { memory, reads, writes, system_calls, maps, kinds };
enum class Way { none, fail, shorter, interrupted };

std::atomic<long> counts[kinds];
std::atomic<long> signals;
std::atomic<bool> armed;
Kind chosen = kinds;
Way way = Way::none;
bool by_signal = false, from_there_on = false;
long at = 0;

struct Named {
  const char* name;
  Kind kind;
  Way way;
};
constexpr Named table[] = {{"memory", memory, Way::fail},
                           {"read-error", reads, Way::fail},
                           {"read-short", reads, Way::shorter},
                           {"read-interrupted", reads, Way::interrupted},
                           {"write-error", writes, Way::fail},
                           {"write-short", writes, Way::shorter},
                           {"write-interrupted", writes, Way::interrupted},
                           {"system", system_calls, Way::fail},
                           {"shrink", maps, Way::shorter}};

template <class F>
F* next(F*, const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}
#define REAL(name) static auto* const real = next(&::name, #name)

void read_environment() {
  const char* text = getenv("MEMPLAN_FAULT");
  if (!text) return;
  const char* colon = strchr(text, ':');
  if (!colon) return;
  char* end = nullptr;
  at = strtol(colon + 1, &end, 10);
  from_there_on = *end == '+';
  const auto length = static_cast<size_t>(colon - text);
  if (length == 6 && strncmp(text, "signal", 6) == 0) by_signal = true;
  for (const Named& n : table)
    if (strlen(n.name) == length && strncmp(n.name, text, length) == 0) chosen = n.kind, way = n.way;
}

void write_counts() {
  const char* path = getenv("MEMPLAN_FAULT_COUNT");
  armed = false;
  const int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
  if (fd < 0) return;
  static const char* const names[] = {"memory", "read", "write", "system", "map"};
  for (int k = 0; k < kinds; ++k) dprintf(fd, "%s %ld\n", names[k], counts[k].load());
  dprintf(fd, "signal %ld\n", signals.load());
  close(fd);
}

/// What happens to this call.
Way decide(Kind kind) {
  if (!armed.load(std::memory_order_relaxed)) return Way::none;
  const long n = ++counts[kind];
  if (kind != memory && ++signals == at && by_signal) raise(SIGTERM);
  if (kind != chosen) return Way::none;
  return n == at || (from_there_on && n > at) ? way : Way::none;
}

int (*program)(int, char**, char**) = nullptr;
int counted_main(int argc, char** argv, char** environment) {
  read_environment();
  unsetenv("LD_PRELOAD");  // children are not part of it
  unsetenv("MEMPLAN_FAULT");
  if (getenv("MEMPLAN_FAULT_COUNT")) atexit(write_counts);
  armed = true;
  return program(argc, argv, environment);
}

/// `call(bytes)` with all bytes or one of them, or an error.
template <class Call>
ssize_t transfer(Kind kind, size_t bytes, int error, Call call) {
  switch (decide(kind)) {
    case Way::fail:
      errno = error;
      return -1;
    case Way::interrupted:
      errno = EINTR;
      return -1;
    case Way::shorter:
      return call(bytes < 2 ? bytes : 1);
    default:
      return call(bytes);
  }
}

/// What operator new does where there is no memory.
void refuse_memory() {
  if (decide(memory) == Way::none) return;
  if (const std::new_handler handler = std::get_new_handler()) handler();
  throw std::bad_alloc();
}

bool fails(Kind kind, int error) {
  if (decide(kind) == Way::none) return false;
  errno = error;
  return true;
}

}  // namespace

extern "C" {

int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(), void (*fini)(),
                      void (*rtld_fini)(), void* stack_end) {
  program = main;
  using Start = int(int (*)(int, char**, char**), int, char**, void (*)(), void (*)(), void (*)(), void*);
  auto* const real = reinterpret_cast<Start*>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return real(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}

ssize_t read(int fd, void* into, size_t bytes) {
  REAL(read);
  return transfer(reads, bytes, EIO, [&](size_t n) { return real(fd, into, n); });
}
ssize_t pread64(int fd, void* into, size_t bytes, off64_t from) {
  REAL(pread64);
  return transfer(reads, bytes, EIO, [&](size_t n) { return real(fd, into, n, from); });
}
ssize_t write(int fd, const void* data, size_t bytes) {
  REAL(write);
  return transfer(writes, bytes, ENOSPC, [&](size_t n) { return real(fd, data, n); });
}
ssize_t writev(int fd, const iovec* parts, int count) {
  REAL(writev);
  switch (decide(writes)) {
    case Way::none:
      return real(fd, parts, count);
    case Way::shorter:
      return real(fd, parts, count < 1 ? count : 1);
    case Way::interrupted:
      errno = EINTR;
      return -1;
    default:
      errno = ENOSPC;
      return -1;
  }
}
// What stdio does inside of the C library is its own: its calls fail as a whole. They are never interrupted.
size_t fread(void* into, size_t size, size_t count, FILE* file) {
  REAL(fread);
  const Way w = decide(reads);
  if (w != Way::fail) return real(into, size, count, file);
  errno = EIO;
  return 0;
}
int fseeko64(FILE* file, off64_t to, int whence) {
  REAL(fseeko64);
  return fails(system_calls, EIO) ? -1 : real(file, to, whence);
}
FILE* fopen64(const char* path, const char* mode) {
  REAL(fopen64);
  return fails(system_calls, EMFILE) ? nullptr : real(path, mode);
}
FILE* fopen(const char* path, const char* mode) {
  REAL(fopen);
  return fails(system_calls, EMFILE) ? nullptr : real(path, mode);
}

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  static auto* const real = reinterpret_cast<int (*)(const char*, int, ...)>(dlsym(RTLD_NEXT, "open"));
  return fails(system_calls, EMFILE) ? -1 : real(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  static auto* const real = reinterpret_cast<int (*)(const char*, int, ...)>(dlsym(RTLD_NEXT, "open64"));
  return fails(system_calls, EMFILE) ? -1 : real(path, flags, mode);
}
void* mmap(void* where, size_t bytes, int protection, int flags, int fd, off_t from) {
  static auto* const real = next(&::mmap, "mmap");
  if (fd < 0) return real(where, bytes, protection, flags, fd, from);
  if (fails(system_calls, ENOMEM)) return MAP_FAILED;
  void* const mapped = real(where, bytes, protection, flags, fd, from);
  if (decide(maps) != Way::none) {
    char name[64], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(name, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    if (truncate(path, 0) != 0) _exit(99);
  }
  return mapped;
}
int close(int fd) {
  REAL(close);
  if (!fails(system_calls, EIO)) return real(fd);
  real(fd);  // Linux closes it in any case
  errno = EIO;
  return -1;
}
int rename(const char* from, const char* to) {
  REAL(rename);
  return fails(system_calls, ENOSPC) ? -1 : real(from, to);
}
int pipe2(int ends[2], int flags) noexcept {
  REAL(pipe2);
  return fails(system_calls, EMFILE) ? -1 : real(ends, flags);
}
pid_t fork() noexcept {
  REAL(fork);
  if (fails(system_calls, EAGAIN)) return -1;
  const pid_t child = real();
  if (child == 0) armed = false;
  return child;
}
char* mkdtemp(char* pattern) noexcept {
  REAL(mkdtemp);
  return fails(system_calls, ENOSPC) ? nullptr : real(pattern);
}

void* malloc(size_t bytes) noexcept {
  static auto* const real = reinterpret_cast<void* (*)(size_t)>(dlsym(RTLD_NEXT, "malloc"));
  return fails(memory, ENOMEM) ? nullptr : real(bytes);
}
void* realloc(void* block, size_t bytes) noexcept {
  static auto* const real = reinterpret_cast<void* (*)(void*, size_t)>(dlsym(RTLD_NEXT, "realloc"));
  return fails(memory, ENOMEM) ? nullptr : real(block, bytes);
}

// mimalloc, where the program takes new from it.
void* mi_new(size_t bytes) {
  static auto* const real = reinterpret_cast<void* (*)(size_t)>(dlsym(RTLD_NEXT, "mi_new"));
  refuse_memory();
  return real(bytes);
}
void* mi_new_aligned(size_t bytes, size_t alignment) {
  static auto* const real = reinterpret_cast<void* (*)(size_t, size_t)>(dlsym(RTLD_NEXT, "mi_new_aligned"));
  refuse_memory();
  return real(bytes, alignment);
}
void* mi_new_nothrow(size_t bytes) {
  static auto* const real = reinterpret_cast<void* (*)(size_t)>(dlsym(RTLD_NEXT, "mi_new_nothrow"));
  return fails(memory, ENOMEM) ? nullptr : real(bytes);
}

}  // extern "C"
