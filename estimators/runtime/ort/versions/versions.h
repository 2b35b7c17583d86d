// The versions of ONNX Runtime that memplan knows, and the rules that are not the same in all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "estimators/setup/onnxruntime.h"

namespace memplan::ort {

/// A row of ort_profiles(). What is not here is the same in all of them: order, buffers, memory pattern, arena.
struct OrtProfile {
  std::string_view version;        ///< "1.26"
  std::int64_t opset = 0;          ///< the newest of ONNX's own that it loads
  std::int64_t ir = 0;             ///< the newest version of the file format that it loads
  bool hard_swish = true;          ///< the CUDA provider has a kernel of HardSwish; else its function runs
  bool bias_by_ones = false;       ///< Gemm broadcasts a bias by a product with ones, which are kept for the session
  bool gather_nd_sizes = false;    ///< GatherND uploads the sizes of its slices
  std::size_t concat_in_call = 0;  ///< up to so many inputs of unequal size are described in the kernel's call
  std::size_t least_split_in_call = 0, most_split_in_call = 0;  ///< the same of a Split of the last axis: outputs
};

/// The oldest first.
std::span<const OrtProfile> ort_profiles();

/// Whether the CUDA provider of that version has a kernel of ONNX's op as this opset defines it; true for ops that have
/// none in any.
bool has_form(const OrtProfile& profile, std::string_view op, std::int64_t opset);

/// Of the version that the setup names; Failure(usage) with the known ones where there is none of it.
const OrtProfile& profile_of(const OrtSetup& setup);

}  // namespace memplan::ort

namespace memplan {

/// Failure(usage) for what is no version, and for versions older than all of ort::ort_profiles().
void check_ort_version(std::string_view text);

/// The profile for the version that is asked for, or else for the one that is installed, or else the newest: sets the
/// version of the setup and why it is that one. Either text may be empty.
void choose_ort_version(OrtSetup& setup, std::string_view asked, std::string_view installed);

}  // namespace memplan
