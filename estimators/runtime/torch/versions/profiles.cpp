// The versions of PyTorch that memplan knows, the oldest first.
#include "estimators/runtime/torch/aten/autocast.h"
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

// A profile without its table of ops, of a file of this folder.
TorchProfile torch_2_11();

namespace {

template <TorchProfile (*make)()>
const TorchProfile& made_once() {
  static const TorchProfile profile = finished(make());
  return profile;
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
      {"2.11", made_once<torch_2_11>},
  };
  return rows;
}

const TorchProfile& profile_named(std::string_view version) {
  std::string known;
  for (const ProfileRow& row : profiles()) {
    if (row.version == version) return row.profile();
    known += (known.empty() ? "" : ", ") + std::string(row.version);
  }
  fail(ErrorKind::usage, "no figures for PyTorch " + std::string(version), {}, "known versions: " + known);
}

const TorchProfile& profile_of(const TrainingSetup& setup) {
  return setup.runtime.profile ? *setup.runtime.profile : profile_named(setup.runtime.version);
}

}  // namespace memplan
