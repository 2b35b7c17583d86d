// Variables of the environment that change how many bytes PyTorch takes. memplan does not read its own environment for
// them: a setup says what the environment of the job has (RuntimeSetup::environment), and the profile of its version is
// changed accordingly.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

struct EnvironmentVariable {
  std::string_view name;
  std::string_view value;  ///< as a help text writes it, "0|1"
  /// Failure(usage) where PyTorch would take no notice of the value. Null: settings of the allocator, which are the
  /// setup's (AllocatorSetup).
  void (*apply)(TorchProfile& profile, std::string_view value);
};

/// All that are known, whether or not a version reads them (TorchProfile::reads).
std::span<const EnvironmentVariable> environment_variables();

/// Its value is settings of the allocator.
bool sets_allocator(std::string_view name);

/// Failure(usage) with the known names, or for a value that PyTorch would not understand.
void check_environment(std::string_view name, std::string_view value);

/// The profile as it is with these variables; the same object for the same version and variables.
const TorchProfile& in_environment(const TorchProfile& profile, const std::map<std::string, std::string>& variables);

}  // namespace memplan
