// The versions of PyTorch that memplan knows, the oldest first.
#include "estimators/runtime/torch/aten/autocast.h"
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

namespace {

template <TorchProfile (*make)()>
const TorchProfile& made_once() {
  static const TorchProfile profile = [] {
    TorchProfile p = make();
    apply_autocast_lists(p.ops, p.autocast);
    return p;
  }();
  return profile;
}

}  // namespace

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
