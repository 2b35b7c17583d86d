// ONNX messages on their way to ONNX Runtime and back.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace onnx {
class ModelProto;
}

namespace memplan {

/// Gives every tensor that lost its contents (frontends/onnx/wire.h) zeros: weights lie in a file "weights" beside the
/// model, each from its beginning. Returns how long that file has to be; negative where the weights take more than
/// `most` bytes together. Failure(input) for impossible sizes.
std::int64_t give_zeros(::onnx::ModelProto& model, std::int64_t most);

/// Notes the indices, by the first output of a node, in the nodes' metadata.
void note_indices(::onnx::ModelProto& rewritten, const std::map<std::string, std::int64_t>& indices);

/// The CPU provider has no kernel of some ops that the CUDA provider has one of, and runs the bodies of their functions
/// instead: such an op of `plain` takes the place of its body again.
void put_back_functions(const ::onnx::ModelProto& plain, ::onnx::ModelProto& rewritten);

}  // namespace memplan
