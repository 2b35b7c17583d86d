// Element types. Names are PyTorch's; sub-byte types are packed, so sizes are counted in bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "estimators/base/bytes.h"

namespace memplan {

enum class DType : std::uint8_t {
  float32,
  float64,
  float16,
  bfloat16,
  float8_e4m3fn,
  float8_e5m2,
  float4,
  int64,
  int32,
  int16,
  int8,
  uint8,
  uint16,
  uint32,
  uint64,
  boolean,
  complex64,
  complex128,
  int4,
  uint4,
  int2,
  uint2,
};

int bits_of(DType dtype);
/// Bytes of `numel` elements, packed and rounded up to whole bytes.
Bytes bytes_of(DType dtype, std::int64_t numel);
/// The same of a dense tensor of these sizes; none is a scalar.
Bytes bytes_of(DType dtype, const std::vector<std::int64_t>& sizes);
/// "float32", "bfloat16", "bool" …: the name PyTorch prints without "torch.".
std::string_view name_of(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);
bool is_floating(DType dtype);
bool is_complex(DType dtype);
bool is_integral(DType dtype);  ///< integers without bool
/// PyTorch's type promotion of two tensors of rank >= 1 (c10/core/ScalarType.cpp, promoteTypes).
DType promote(DType a, DType b);

}  // namespace memplan
