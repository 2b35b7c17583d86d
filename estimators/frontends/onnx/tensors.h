// TensorProto and TypeProto -> StoredTensor and dimensions.
#pragma once

#include <optional>
#include <string>

#include "estimators/graph/graph.h"

namespace onnx {
class TensorProto;
class TypeProto;
class ValueInfoProto;
}  // namespace onnx

namespace memplan::onnx_format {

/// The element type of TensorProto.DataType; none for strings and undefined types. The four 8-bit floats that
/// PyTorch has no name for here take the type of the same width.
std::optional<DType> dtype_of(int data_type);

/// Sizes, dtype and, where they are small and in the file, contents. `where` names the tensor in errors.
/// Failure(input) for negative or overflowing dimensions, for contents of another length than the dimensions ask
/// for, and for external data outside the folder of the model. A mismatch with the length that external data
/// states is a warning, because such files are often stripped on purpose.
StoredTensor read_tensor(const ::onnx::TensorProto& proto, std::vector<std::string>& warnings);

/// Fills dtype, shape and metadata of a value. Negative dimensions count as unknown: some tools write -1 for it.
void read_value_info(const ::onnx::ValueInfoProto& proto, GraphValue& value);

}  // namespace memplan::onnx_format
