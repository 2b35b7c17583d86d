// NVML, the library behind nvidia-smi: PyTorch asks it what the process holds when memory runs out, and scripts
// (pynvml, torch.cuda.utilization) ask it for totals. Its header is in no package of PyTorch's, so what is needed of it
// is declared here, as NVML's API reference has it.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "emulated.h"

using namespace emulated;

namespace {

using Result = int;
constexpr Result success = 0, invalid_argument = 2, not_supported = 3, insufficient_size = 7;

/// A device's handle is its number, plus one so that it is not null.
using Handle = std::uintptr_t;

int number(Handle h) { return static_cast<int>(h) - 1; }
bool known(Handle h) { return h >= 1 && number(h) < device_count(); }

struct Memory {
  unsigned long long total, free, used;
};
struct Memory2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
struct Utilization {
  unsigned gpu, memory;
};
struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

unsigned long long used_by_process(int device) {
  const std::uint64_t used = used_bytes(device);
  return used + context_bytes();
}

Result text(char* out, unsigned room, const char* value) {
  if (std::strlen(value) >= room) return insufficient_size;
  std::strcpy(out, value);
  return success;
}

}  // namespace

EMULATED Result nvmlInit_v2() { return success; }
EMULATED Result nvmlInit() { return success; }
EMULATED Result nvmlInitWithFlags(unsigned) { return success; }
EMULATED Result nvmlShutdown() { return success; }
EMULATED const char* nvmlErrorString(Result r) {
  return r == success ? "Success" : r == not_supported ? "Not Supported" : "error of the emulated GPU";
}
EMULATED Result nvmlSystemGetDriverVersion(char* out, unsigned room) { return text(out, room, "emulated"); }
EMULATED Result nvmlSystemGetNVMLVersion(char* out, unsigned room) { return text(out, room, "emulated"); }
EMULATED Result nvmlSystemGetCudaDriverVersion_v2(int* v) {
  *v = versions().cuda;
  return success;
}
EMULATED Result nvmlDeviceGetCount_v2(unsigned* n) {
  *n = static_cast<unsigned>(device_count());
  return success;
}
EMULATED Result nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle* h) {
  *h = index + 1;
  return known(*h) ? success : invalid_argument;
}
EMULATED Result nvmlDeviceGetHandleByPciBusId_v2(const char* bus, Handle* h) {
  unsigned domain = 0, at = 0;  // as cudaDeviceGetPCIBusId writes it
  if (std::sscanf(bus, "%x:%x", &domain, &at) != 2) return invalid_argument;
  *h = at;
  return known(*h) ? success : invalid_argument;
}
EMULATED Result nvmlDeviceGetHandleByUUID(const char*, Handle* h) {
  *h = 1;
  return success;
}
EMULATED Result nvmlDeviceGetIndex(Handle h, unsigned* index) {
  *index = static_cast<unsigned>(number(h));
  return known(h) ? success : invalid_argument;
}
EMULATED Result nvmlDeviceGetName(Handle, char* out, unsigned room) { return text(out, room, card().name); }
EMULATED Result nvmlDeviceGetUUID(Handle h, char* out, unsigned room) {
  char uuid[64];
  std::snprintf(uuid, sizeof uuid, "GPU-00000000-0000-0000-0000-%012d", number(h));
  return text(out, room, uuid);
}
EMULATED Result nvmlDeviceGetCudaComputeCapability(Handle, int* major, int* minor) {
  *major = card().major;
  *minor = card().minor;
  return success;
}
EMULATED Result nvmlDeviceGetMemoryInfo(Handle h, Memory* m) {
  if (!known(h)) return invalid_argument;
  m->total = total_bytes();
  m->used = used_by_process(number(h));
  m->free = m->total - m->used;
  return success;
}
EMULATED Result nvmlDeviceGetMemoryInfo_v2(Handle h, Memory2* m) {
  Memory plain;
  if (!known(h)) return invalid_argument;
  nvmlDeviceGetMemoryInfo(h, &plain);
  m->total = plain.total;
  m->reserved = 0;
  m->free = plain.free;
  m->used = plain.used;
  return success;
}
/// This process is the only one.
EMULATED Result nvmlDeviceGetComputeRunningProcesses_v3(Handle h, unsigned* count, ProcessInfo* found) {
  if (!known(h)) return invalid_argument;
  const bool room = *count >= 1 && found;
  *count = 1;
  if (!room) return insufficient_size;
  found[0] = {static_cast<unsigned>(getpid()), used_by_process(number(h)), ~0U, ~0U};
  return success;
}
EMULATED Result nvmlDeviceGetComputeRunningProcesses_v2(Handle h, unsigned* count, ProcessInfo* found) {
  return nvmlDeviceGetComputeRunningProcesses_v3(h, count, found);
}
/// The name without a version is the first version, whose rows end after the bytes; it is the one that PyTorch takes.
EMULATED Result nvmlDeviceGetComputeRunningProcesses(Handle h, unsigned* count, void* found) {
  ProcessInfo p;
  unsigned one = 1;
  if (!known(h)) return invalid_argument;
  const bool room = *count >= 1 && found;
  *count = 1;
  if (!room) return insufficient_size;
  nvmlDeviceGetComputeRunningProcesses_v3(h, &one, &p);
  std::memcpy(found, &p, 16);
  return success;
}
EMULATED Result nvmlDeviceGetGraphicsRunningProcesses_v3(Handle, unsigned* count, ProcessInfo*) {
  *count = 0;
  return success;
}
EMULATED Result nvmlDeviceGetUtilizationRates(Handle, Utilization* u) {
  *u = {0, 0};
  return success;
}
EMULATED Result nvmlDeviceGetPciInfo_v3(Handle h, PciInfo* p) {
  if (!known(h)) return invalid_argument;
  std::memset(p, 0, sizeof *p);
  p->bus = static_cast<unsigned>(number(h)) + 1;
  std::snprintf(p->bus_id, sizeof p->bus_id, "00000000:%02x:00.0", p->bus);
  std::snprintf(p->legacy, sizeof p->legacy, "0000:%02x:00.0", p->bus);
  return success;
}
EMULATED Result nvmlDeviceGetTemperature(Handle, int, unsigned* t) {
  *t = 30;
  return success;
}
EMULATED Result nvmlDeviceGetPowerUsage(Handle, unsigned* milliwatts) {
  *milliwatts = 100'000;
  return success;
}
EMULATED Result nvmlDeviceGetClockInfo(Handle, int, unsigned* megahertz) {
  *megahertz = 1980;
  return success;
}
// Links between devices: none, so symmetric memory and NVLS stay off.
EMULATED Result nvmlDeviceGetNvLinkRemoteDeviceType(Handle, unsigned, int*) { return not_supported; }
EMULATED Result nvmlDeviceGetNvLinkRemotePciInfo_v2(Handle, unsigned, PciInfo*) { return not_supported; }
EMULATED Result nvmlDeviceGetNvLinkState(Handle, unsigned, int*) { return not_supported; }
/// Behind the version: cluster, status, clique, and the state 0, "not supported".
EMULATED Result nvmlDeviceGetGpuFabricInfoV(Handle, void* info) {
  std::memset(static_cast<char*>(info) + 4, 0, 28);
  return success;
}
EMULATED Result nvmlDeviceSetCpuAffinity(Handle) { return not_supported; }
