// cuDNN's graph API. The real library answers it without a GPU: a DEVICEPROP descriptor filled from JSON stands in for
// the handle (cuDNN 9.8 and later), so engine heuristics and workspace sizes are those of the emulated card. Only
// execution is left out. Where the real library is not loaded, the device description is refused, or
// EMULATED_GPU_CUDNN=none is set, recording descriptors answer instead: one engine, no workspace.
#include <cudnn.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "emulated.h"

using namespace emulated;

namespace {

using Descriptor = cudnnBackendDescriptor_t;
using Attribute = cudnnBackendAttributeName_t;
using Type = cudnnBackendAttributeType_t;

// ---- descriptors that only remember what was set

struct Recorded {
  std::map<int, std::pair<std::int64_t, std::string>> attributes;
};

std::size_t size_of(Type t) {
  switch (t) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    case CUDNN_TYPE_FRACTION:
      return 16;
    default:
      return 4;
  }
}

cudnnStatus_t recorded_get(const Recorded& d, Attribute a, Type type, std::int64_t room, std::int64_t* count,
                           void* out) {
  const auto answer = [&](std::int64_t n) {
    if (count) *count = n;
    return CUDNN_STATUS_SUCCESS;
  };
  switch (static_cast<int>(a)) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      return answer(1);
    case CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT:
      if (out) *static_cast<std::int64_t*>(out) = 1;
      return answer(1);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
    case CUDNN_ATTR_ENGINE_KNOB_INFO:
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
      return answer(0);
  }
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) return answer(1);
  if (const auto i = d.attributes.find(static_cast<int>(a)); i != d.attributes.end()) {
    const auto& [n, bytes] = i->second;
    if (out && room > 0)
      std::memcpy(out, bytes.data(), std::min(size_of(type) * static_cast<std::size_t>(room), bytes.size()));
    return answer(n);
  }
  if (out && room > 0) std::memset(out, 0, size_of(type));
  return answer(1);
}

// ---- the real library

thread_local bool inside = false;  // calls that the real library makes to itself pass straight through

struct Inside {
  bool before = std::exchange(inside, true);
  ~Inside() { inside = before; }
};

class Real {
 public:
  decltype(&cudnnBackendCreateDescriptor) create = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy = nullptr;
  decltype(&cudnnBackendSetAttribute) set = nullptr;
  decltype(&cudnnBackendGetAttribute) get = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnGetLastErrorString) last_error = nullptr;
  Descriptor device = nullptr;

  Real() {
    const char* how = std::getenv("EMULATED_GPU_CUDNN");
    if (how && !std::strcmp(how, "none")) return;
    plans_ = how && !std::strcmp(how, "plan");
    if (void* library = dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_NOLOAD))
      ok_ = find(library, create, "cudnnBackendCreateDescriptor") &&
            find(library, destroy, "cudnnBackendDestroyDescriptor") && find(library, set, "cudnnBackendSetAttribute") &&
            find(library, get, "cudnnBackendGetAttribute") && find(library, finalize, "cudnnBackendFinalize") &&
            find(library, last_error, "cudnnGetLastErrorString") && describe();
  }

  bool ok() const { return ok_; }
  /// True: execution plans are really built (seconds of compilation for attention). False: the workspace is the one
  /// that the engine's configuration states, which was the same in every case tried.
  bool plans() const { return plans_; }

  void remember(Descriptor d, cudnnBackendDescriptorType_t type) {
    const std::lock_guard guard(lock_);
    types_[d] = type;
  }
  void forget(Descriptor d) {
    const std::lock_guard guard(lock_);
    types_.erase(d);
    workspaces_.erase(d);
  }
  /// -1: not one of the real library's.
  int type(Descriptor d) {
    const std::lock_guard guard(lock_);
    const auto i = types_.find(d);
    return i == types_.end() ? -1 : static_cast<int>(i->second);
  }
  std::int64_t& workspace(Descriptor plan) {
    const std::lock_guard guard(lock_);
    return workspaces_[plan];
  }

 private:
  template <class F>
  static bool find(void* library, F& out, const char* name) {
    return (out = reinterpret_cast<F>(dlsym(library, name)));
  }

  bool describe() {
    const Card& c = card();
    char json[1024];
    const int n = std::snprintf(
        json, sizeof json,
        R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"deviceVer":%d,"cudaDeviceId":0,"driverVer":%d,)"
        R"("totalGlobalMem":%llu,"regsPerBlock":65536,"multiProcessorCount":%d,"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
        R"("maxSharedMemoryPerBlockOptin":%zu,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":%d,)"
        R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":%d,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,)"
        R"("smClockRateKHz":1980000,"memClockRateKHz":2619000,"l2CacheSize":%d,"deviceName":"%s"})",
        c.major * 100 + c.minor * 10, versions().cuda, static_cast<unsigned long long>(c.total), c.multiprocessors,
        c.shared_optin, c.blocks_per_multiprocessor, c.threads_per_multiprocessor, c.l2, c.name);
    const Inside guard;
    if (!create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device) &&
        !set(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, n, json) && !finalize(device))
      return true;
    char why[512] = "";
    last_error(why, sizeof why);
    std::fprintf(stderr, "emulated GPU: cuDNN refuses the description of the device (%s); workspaces will be 0\n", why);
    return false;
  }

  bool ok_ = false, plans_ = false;
  std::mutex lock_;
  std::unordered_map<Descriptor, cudnnBackendDescriptorType_t> types_;
  std::unordered_map<Descriptor, std::int64_t> workspaces_;
};

Real& real() {
  static Real& r = *new Real;  // never destroyed: threads of PyTorch destroy their plans while the process ends
  return r;
}

/// Variant packs name memory addresses and are only good for execution: always recorded.
bool recorded(Descriptor d) {
  if (!real().ok()) return true;
  return !inside && real().type(d) == -1;
}

Recorded& as_recorded(Descriptor d) { return *static_cast<Recorded*>(d); }

}  // namespace

EMULATED cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, Descriptor* d) {
  Real& r = real();
  if (!r.ok() || (!inside && type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)) {
    *d = new Recorded;
    return CUDNN_STATUS_SUCCESS;
  }
  if (inside) return r.create(type, d);
  const Inside guard;
  const cudnnStatus_t status = r.create(type, d);
  if (status == CUDNN_STATUS_SUCCESS) r.remember(*d, type);
  return status;
}

EMULATED cudnnStatus_t cudnnBackendDestroyDescriptor(Descriptor d) {
  if (recorded(d)) {
    delete static_cast<Recorded*>(d);
    return CUDNN_STATUS_SUCCESS;
  }
  real().forget(d);
  const Inside guard;
  return real().destroy(d);
}

EMULATED cudnnStatus_t cudnnBackendSetAttribute(Descriptor d, Attribute a, Type type, std::int64_t count,
                                                const void* value) {
  if (recorded(d)) {
    if (value && count > 0)
      as_recorded(d).attributes[static_cast<int>(a)] = {
          count, std::string(static_cast<const char*>(value), size_of(type) * static_cast<std::size_t>(count))};
    return CUDNN_STATUS_SUCCESS;
  }
  Real& r = real();
  if (inside) return r.set(d, a, type, count, value);
  if (type == CUDNN_TYPE_HANDLE) return CUDNN_STATUS_SUCCESS;  // the device description takes its place
  const Inside guard;
  if (!r.plans() && a == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) {
    std::int64_t n = 0, bytes = 0;
    r.get(*static_cast<Descriptor const*>(value), CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes);
    r.workspace(d) = bytes;
  }
  return r.set(d, a, type, count, value);
}

EMULATED cudnnStatus_t cudnnBackendFinalize(Descriptor d) {
  if (recorded(d)) return CUDNN_STATUS_SUCCESS;
  Real& r = real();
  if (inside) return r.finalize(d);
  const Inside guard;
  const auto on_device = [&](Attribute a) { r.set(d, a, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &r.device); };
  switch (r.type(d)) {
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      on_device(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
      break;
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
      on_device(CUDNN_ATTR_ENGINE_DEVICEPROP);
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      if (!r.plans()) return CUDNN_STATUS_SUCCESS;
      on_device(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
      break;
    default:
      break;
  }
  return r.finalize(d);
}

EMULATED cudnnStatus_t cudnnBackendGetAttribute(Descriptor d, Attribute a, Type type, std::int64_t room,
                                                std::int64_t* count, void* out) {
  if (recorded(d)) return recorded_get(as_recorded(d), a, type, room, count, out);
  Real& r = real();
  if (inside) return r.get(d, a, type, room, count, out);
  if (a == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && !r.plans()) {
    if (out) *static_cast<std::int64_t*>(out) = r.workspace(d);
    if (count) *count = 1;
    return CUDNN_STATUS_SUCCESS;
  }
  const Inside guard;
  const cudnnStatus_t status = r.get(d, a, type, room, count, out);
  if (status != CUDNN_STATUS_SUCCESS && a == CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT) {
    if (out) *static_cast<std::int64_t*>(out) = 1;
    if (count) *count = 1;
    return CUDNN_STATUS_SUCCESS;
  }
  return status;
}

EMULATED cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, Descriptor, Descriptor) { return CUDNN_STATUS_SUCCESS; }
