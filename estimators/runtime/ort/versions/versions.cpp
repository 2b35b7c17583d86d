#include "estimators/runtime/ort/versions/versions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "estimators/base/release.h"
#include "estimators/setup/field.h"

namespace memplan::ort {

namespace {

/// Opsets and formats: what a session of each release says that it loads ("Current official support for domain ai.onnx
/// is till opset 26", "max supported IR version: 13"). The rules were seen in sessions of every row (data/measured/ort,
/// model kernels), and are stated here:
///  hard_swish       in 1.22 and 1.23 the function is inlined to HardSigmoid and Mul
///  bias_by_ones     cuda/math/gemm.cc, GetConstOnes
///  gather_nd_sizes  cuda/tensor/gather_nd.cc, sizes_from_slice_dims_buffer
///  concat_in_call   cuda/tensor/concat.cc; pull request 32119, which is in 1.31
///  split_in_call    cuda/tensor/split.cc: three outputs of the last axis; two to four by pull request 32706, in 1.31
constexpr std::array known_versions{
    OrtProfile{"1.22", 22, 10, false, true, true, 0, 3, 3}, OrtProfile{"1.23", 23, 11, false, true, true, 0, 3, 3},
    OrtProfile{"1.24", 25, 13, true, true, true, 0, 3, 3},  OrtProfile{"1.25", 26, 13, true, true, true, 0, 3, 3},
    OrtProfile{"1.26", 26, 13, true, true, true, 0, 3, 3},  OrtProfile{"1.27", 26, 13, true, true, true, 0, 3, 3},
    OrtProfile{"1.28", 26, 13, true, true, true, 0, 3, 3},  OrtProfile{"1.29", 26, 13, true, true, true, 0, 3, 3},
    OrtProfile{"1.30", 26, 13, true, true, true, 0, 3, 3},  OrtProfile{"1.31", 26, 13, true, false, false, 32, 2, 4},
};
static_assert(known_versions.back().version == OrtSetup::newest);

struct LateForm {
  std::string_view op;
  std::int64_t opset;       ///< from this one on the op has a form
  std::string_view kernel;  ///< that the CUDA provider runs from this version on; empty: in none of these
};

/// Each version was given each op in each opset, with session.disable_cpu_ep_fallback.
constexpr std::array late_forms{
    LateForm{"Cast", 21, "1.24"},
    LateForm{"Cast", 24, "1.27"},
    LateForm{"Reshape", 21, "1.24"},
    LateForm{"Reshape", 24, "1.27"},
    LateForm{"Transpose", 21, "1.24"},
    LateForm{"Transpose", 24, "1.26"},
    LateForm{"Squeeze", 21, "1.24"},
    LateForm{"Squeeze", 24, "1.25"},
    LateForm{"Unsqueeze", 21, "1.24"},
    LateForm{"Unsqueeze", 24, "1.25"},
    LateForm{"Shape", 21, "1.24"},
    LateForm{"Shape", 24, "1.25"},
    LateForm{"Size", 19, "1.25"},
    LateForm{"Identity", 21, "1.25"},
    LateForm{"Flatten", 21, "1.25"},
    LateForm{"ConstantOfShape", 20, "1.25"},
    LateForm{"Pad", 19, "1.25"},
    LateForm{"Resize", 19, "1.25"},
    LateForm{"TopK", 24, "1.25"},
    LateForm{"AveragePool", 19, "1.24"},
    LateForm{"GlobalAveragePool", 22, "1.25"},
    LateForm{"GlobalMaxPool", 22, "1.25"},
    LateForm{"MaxPool", 22, ""},
    LateForm{"Conv", 22, "1.24"},
    LateForm{"ConvTranspose", 22, "1.27"},
    LateForm{"InstanceNormalization", 22, ""},
    LateForm{"Dropout", 22, ""},
    LateForm{"HardSigmoid", 22, "1.24"},
    LateForm{"Softplus", 22, "1.28"},
    LateForm{"Softsign", 22, "1.28"},
    LateForm{"Elu", 22, ""},
    LateForm{"Selu", 22, ""},
    LateForm{"ThresholdedRelu", 22, ""},
    LateForm{"Cos", 22, "1.27"},
    LateForm{"Sin", 22, "1.27"},
    LateForm{"Round", 22, "1.27"},
    LateForm{"LSTM", 22, "1.27"},
    LateForm{"RNN", 22, "1.27"},
    LateForm{"GRU", 22, "1.27"},
    LateForm{"Equal", 19, "1.27"},
    LateForm{"ReduceMax", 20, "1.27"},
    LateForm{"ReduceMin", 20, "1.27"},
    LateForm{"QuantizeLinear", 23, "1.26"},
    LateForm{"DequantizeLinear", 23, "1.26"},
};

[[noreturn]] void refuse_version(std::string_view version) {
  std::string names;
  for (const OrtProfile& row : known_versions) names += (names.empty() ? "" : ", ") + std::string(row.version);
  fail(ErrorKind::usage, fmt::format("no figures for ONNX Runtime {}", version), setting(Field::ort_version),
       "known versions: " + names);
}

}  // namespace

std::span<const OrtProfile> ort_profiles() { return known_versions; }

bool has_form(const OrtProfile& profile, std::string_view op, std::int64_t opset) {
  return std::none_of(late_forms.begin(), late_forms.end(), [&](const LateForm& f) {
    return f.op == op && opset >= f.opset && (f.kernel.empty() || *release_of(profile.version) < *release_of(f.kernel));
  });
}

const OrtProfile& profile_of(const OrtSetup& setup) {
  for (const OrtProfile& row : known_versions)
    if (row.version == setup.version) return row;
  refuse_version(setup.version);
}

}  // namespace memplan::ort

namespace memplan {

void check_ort_version(std::string_view text) {
  const std::optional<Release> v = release_of(text), oldest = release_of(ort::known_versions.front().version);
  if (!v || v->major != oldest->major || *v < *oldest) ort::refuse_version(text);
}

void choose_ort_version(OrtSetup& setup, std::string_view asked, std::string_view installed) {
  const std::optional<Release> wanted = release_of(asked.empty() ? installed : asked);
  const ort::OrtProfile& newest = ort::known_versions.back();
  setup.version = newest.version;
  setup.version_evidence = Evidence::chosen;
  setup.version_why = "the newest that memplan knows";
  if (!wanted) return;
  const auto row = std::find_if(ort::known_versions.begin(), ort::known_versions.end(),
                                [&](const ort::OrtProfile& r) { return *release_of(r.version) >= *wanted; });
  const ort::OrtProfile& chosen = row == ort::known_versions.end() ? newest : *row;
  setup.version = chosen.version;
  const char* const origin = asked.empty() ? "which is installed" : "which is asked for";
  setup.version_why = asked.empty() ? "which is installed" : "as asked for";
  if (*release_of(chosen.version) == *wanted) return;
  setup.version_evidence = Evidence::assumed;
  setup.version_why =
      fmt::format("the {} version that memplan knows, in the place of ONNX Runtime {}, {}",
                  row == ort::known_versions.end() ? "newest" : "nearest", asked.empty() ? installed : asked, origin);
}

}  // namespace memplan
