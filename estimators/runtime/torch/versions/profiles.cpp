// The versions of PyTorch that memplan knows, the oldest first.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "estimators/base/release.h"
#include "estimators/runtime/torch/aten/autocast.h"
#include "estimators/runtime/torch/profile/environment.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/setup/field.h"

namespace memplan {

// Profiles without their tables of ops, of the files of this folder.
TorchProfile torch_2_6();
TorchProfile torch_2_7();
TorchProfile torch_2_8();
TorchProfile torch_2_9();
TorchProfile torch_2_10();
TorchProfile torch_2_11();
TorchProfile torch_2_12();
TorchProfile torch_2_13();
TorchProfile torch_2_14();
TorchProfile torch_2_15();

namespace {

template <TorchProfile (*make)()>
const TorchProfile& made_once() {
  static const TorchProfile profile = finished(make());
  return profile;
}

std::string names_of_versions() {
  std::string names;
  for (const ProfileRow& row : profiles()) names += (names.empty() ? "" : ", ") + std::string(row.version);
  return names;
}

[[noreturn]] void refuse(std::string_view version) {
  fail(ErrorKind::usage, fmt::format("no figures for PyTorch {}", version), setting(Field::torch),
       "known versions: " + names_of_versions());
}

}  // namespace

TorchProfile finished(TorchProfile profile) {
  OpTable ops = base_ops();
  for (const auto change : profile.op_changes) change(ops);
  apply_autocast_lists(ops, profile.autocast);
  profile.ops = std::make_shared<const OpTable>(std::move(ops));
  return profile;
}

const std::vector<ProfileRow>& profiles() {
  static const std::vector<ProfileRow> rows{
      {"2.6", made_once<torch_2_6>},   {"2.7", made_once<torch_2_7>},   {"2.8", made_once<torch_2_8>},
      {"2.9", made_once<torch_2_9>},   {"2.10", made_once<torch_2_10>}, {"2.11", made_once<torch_2_11>},
      {"2.12", made_once<torch_2_12>}, {"2.13", made_once<torch_2_13>}, {"2.14", made_once<torch_2_14>},
      {"2.15", made_once<torch_2_15>},
  };
  return rows;
}

const TorchProfile& profile_named(std::string_view version) {
  for (const ProfileRow& row : profiles())
    if (row.version == version) return row.profile();
  refuse(version);
}

void check_version(std::string_view text) {
  const std::optional<Release> v = release_of(text);
  const std::optional<Release> oldest = release_of(profiles().front().version);
  if (!v || v->major != oldest->major || *v < *oldest) refuse(text);
}

RuntimeSetup choose_version(std::string_view asked, std::string_view written_by) {
  RuntimeSetup runtime;
  const std::optional<Release> wanted = release_of(asked.empty() ? written_by : asked);
  const std::string_view newest = profiles().back().version;
  if (!wanted) {
    runtime.version = newest;
    runtime.why = "the newest that memplan knows; the file does not say which version wrote it";
    return runtime;
  }
  const auto row = std::find_if(profiles().begin(), profiles().end(),
                                [&](const ProfileRow& r) { return *release_of(r.version) >= *wanted; });
  runtime.version = row == profiles().end() ? newest : row->version;
  const std::string origin = asked.empty() ? fmt::format("PyTorch {}, which wrote the file", written_by)
                                           : fmt::format("PyTorch {}, which is asked for", asked);
  if (row != profiles().end() && *release_of(row->version) == *wanted) {
    runtime.why = asked.empty() ? "which wrote the file" : "as asked for";
    return runtime;
  }
  runtime.evidence = Evidence::assumed;
  runtime.why = fmt::format("the {} version that memplan knows, in the place of {}",
                            row == profiles().end() ? "newest" : "nearest", origin);
  return runtime;
}

const TorchProfile& profile_of(const TrainingSetup& setup) {
  const RuntimeSetup& runtime = setup.runtime;
  if (runtime.profile) return *runtime.profile;
  const TorchProfile& profile = profile_named(runtime.version);
  return runtime.environment.empty() ? profile : in_environment(profile, runtime.environment);
}

}  // namespace memplan
