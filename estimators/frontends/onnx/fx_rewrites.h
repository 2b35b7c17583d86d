// What torch.export changed on the way from the Python program to its graph, undone call by call.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan {
struct TrainingSetup;
}

namespace memplan::onnx_format {

/// Checks that export inserts and that no eager program runs on the device.
bool has_no_effect(std::string_view target);

/// Number of tensors that an op returns, by its schema in native_functions.yaml; 1 for most.
int outputs_of(std::string_view op);

/// Whether it is a dropout or a batch norm as in training: the module was exported in that mode.
bool trains(const Call& call);

/// Functional and decomposed forms back to what the Python program calls:
///   _native_batch_norm_legit_functional -> batch_norm, native_dropout -> dropout,
///   prims::convert_element_type -> to.dtype.
/// Inference turns dropout and batch statistics off, as model.eval() does.
void rewrite(Call& call, const TrainingSetup& setup);

using SizesOf = std::function<const std::vector<std::int64_t>*(std::size_t argument)>;

/// Sizes of the parameter at argument `at`, as the op's other parameters imply them; none when they do not.
std::optional<std::vector<std::int64_t>> sizes_of_parameter(const Call& call, std::size_t at, const SizesOf& sizes_of);

}  // namespace memplan::onnx_format
