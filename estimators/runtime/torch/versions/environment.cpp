#include "estimators/runtime/torch/profile/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <mutex>
#include <optional>
#include <utility>

#include "estimators/setup/field.h"

namespace memplan {

namespace {

[[noreturn]] void refuse_value(std::string_view name, std::string_view value, const std::string& hint) {
  fail(ErrorKind::usage, fmt::format("PyTorch does not understand {}={}", name, value), setting(Field::environment),
       hint);
}

constexpr std::int64_t most_kib = std::int64_t{1} << 30;  // no card has a TiB

/// Digits from the start of the text, which is moved behind them; nothing where they are more than `most_kib`.
std::optional<std::int64_t> leading_number(std::string_view& text) {
  std::int64_t n = 0;
  if (text.empty() || text.front() < '0' || text.front() > '9') return {};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || n > most_kib) return {};
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return n;
}

/// c10::utils::check_env: 0 and 1; other values are ignored with a warning.
bool switched_on(std::string_view name, std::string_view value) {
  if (value != "0" && value != "1") refuse_value(name, value, "give 0 or 1");
  return value == "1";
}

/// parseChosenWorkspaceSize (aten/src/ATen/cuda/CublasHandlePool.cpp): the sum of all pairs, sizes in KiB.
void cublas_config(TorchProfile& p, std::string_view value) {
  std::string_view rest = value;
  std::int64_t kib = 0;
  do {
    std::optional<std::int64_t> size, count;
    if (rest.starts_with(':')) rest.remove_prefix(1), size = leading_number(rest);
    if (size && rest.starts_with(':')) rest.remove_prefix(1), count = leading_number(rest);
    if (!count)
      refuse_value("CUBLAS_WORKSPACE_CONFIG", value,
                   "write :KIB:COUNT, as in :4096:8; several of them add up (:4096:2:16:8)");
    kib += *size * *count;
    if (kib > most_kib) refuse_value("CUBLAS_WORKSPACE_CONFIG", value, "give sizes in KiB that a GPU has");
  } while (!rest.empty());
  p.workspaces.cublas = Bytes(kib * 1024);
  p.workspaces.cublas_of_sm.clear();
}

/// parseCUDABlasLtWorkspaceSize, likewise; in KiB.
void cublas_lt_size(TorchProfile& p, std::string_view value) {
  std::string_view rest = value;
  const std::optional<std::int64_t> kib = leading_number(rest);
  if (!kib || !rest.empty()) refuse_value("CUBLASLT_WORKSPACE_SIZE", value, "give a whole number of KiB");
  p.workspaces.cublas_lt = Bytes(*kib * 1024);
}

/// isCUDABlasWorkspaceCachingEnabled, likewise.
void cublas_cache(TorchProfile& p, std::string_view value) {
  const WorkspaceLife life =
      switched_on("TORCH_CUBLAS_WORKSPACE_CACHE", value) ? WorkspaceLife::kept : WorkspaceLife::per_call;
  p.workspaces.cublas_life = p.workspaces.cublas_lt_life = life;
}

/// unified_cublas_and_lt_workspaces, likewise.
void cublas_unified(TorchProfile& p, std::string_view value) {
  p.workspaces.cublas_lt_shares_cublas = switched_on("TORCH_CUBLASLT_UNIFIED_WORKSPACE", value);
}

/// check_prefer_cudnn_attention (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp).
void cudnn_attention_last(TorchProfile& p, std::string_view value) {
  if (switched_on("TORCH_CUDNN_SDPA_DEPRIORITIZED", value)) p.attention.cudnn_first.clear();
}

constexpr std::array known_variables{
    EnvironmentVariable{"CUBLAS_WORKSPACE_CONFIG", ":KIB:COUNT", cublas_config},
    EnvironmentVariable{"CUBLASLT_WORKSPACE_SIZE", "KIB", cublas_lt_size},
    EnvironmentVariable{"TORCH_CUBLAS_WORKSPACE_CACHE", "0|1", cublas_cache},
    EnvironmentVariable{"TORCH_CUBLASLT_UNIFIED_WORKSPACE", "0|1", cublas_unified},
    EnvironmentVariable{"TORCH_CUDNN_SDPA_DEPRIORITIZED", "0|1", cudnn_attention_last},
    EnvironmentVariable{"PYTORCH_ALLOC_CONF", "KEY:VALUE", nullptr},
    EnvironmentVariable{"PYTORCH_CUDA_ALLOC_CONF", "KEY:VALUE", nullptr},
};

const EnvironmentVariable* variable_named(std::string_view name) {
  const auto it =
      std::find_if(known_variables.begin(), known_variables.end(), [&](const auto& v) { return v.name == name; });
  return it == known_variables.end() ? nullptr : &*it;
}

}  // namespace

std::span<const EnvironmentVariable> environment_variables() { return known_variables; }

bool sets_allocator(std::string_view name) {
  const EnvironmentVariable* variable = variable_named(name);
  return variable && !variable->apply;
}

void check_environment(std::string_view name, std::string_view value) {
  const EnvironmentVariable* variable = variable_named(name);
  if (!variable) {
    std::string names;
    for (const EnvironmentVariable& v : known_variables) names += (names.empty() ? "" : ", ") + std::string(v.name);
    fail(ErrorKind::usage, fmt::format("memplan does not know what the variable {} changes", name),
         setting(Field::environment), "known variables: " + names);
  }
  TorchProfile scratch;
  if (variable->apply) variable->apply(scratch, value);
}

const TorchProfile& in_environment(const TorchProfile& profile, const std::map<std::string, std::string>& variables) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, std::map<std::string, std::string>>, TorchProfile> made;
  const std::lock_guard lock(mutex);
  const std::pair key(profile.version, variables);
  if (const auto it = made.find(key); it != made.end()) return it->second;
  TorchProfile changed = profile;
  for (const auto& [name, value] : variables) {
    const EnvironmentVariable* variable = variable_named(name);
    if (variable && variable->apply && profile.reads.contains(name)) variable->apply(changed, value);
  }
  return made.emplace(key, std::move(changed)).first->second;
}

}  // namespace memplan
