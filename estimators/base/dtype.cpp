#include "estimators/base/dtype.h"

#include <array>

namespace memplan {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int bits;
  int category;  // 0 bool, 1 integral, 2 floating, 3 complex
  int rank;      // order inside the category, for promotion
};

constexpr std::array<Row, 22> rows{{
    {DType::float32, "float32", 32, 2, 5},
    {DType::float64, "float64", 64, 2, 6},
    {DType::float16, "float16", 16, 2, 4},
    {DType::bfloat16, "bfloat16", 16, 2, 4},
    {DType::float8_e4m3fn, "float8_e4m3fn", 8, 2, 2},
    {DType::float8_e5m2, "float8_e5m2", 8, 2, 2},
    {DType::float4, "float4_e2m1fn_x2", 4, 2, 1},
    {DType::int64, "int64", 64, 1, 8},
    {DType::int32, "int32", 32, 1, 7},
    {DType::int16, "int16", 16, 1, 6},
    {DType::int8, "int8", 8, 1, 5},
    {DType::uint8, "uint8", 8, 1, 5},
    {DType::uint16, "uint16", 16, 1, 6},
    {DType::uint32, "uint32", 32, 1, 7},
    {DType::uint64, "uint64", 64, 1, 8},
    {DType::boolean, "bool", 8, 0, 0},
    {DType::complex64, "complex64", 64, 3, 1},
    {DType::complex128, "complex128", 128, 3, 2},
    {DType::int4, "int4", 4, 1, 1},
    {DType::uint4, "uint4", 4, 1, 1},
    {DType::int2, "int2", 2, 1, 0},
    {DType::uint2, "uint2", 2, 1, 0},
}};

const Row& row(DType dtype) { return rows[static_cast<std::size_t>(dtype)]; }

}  // namespace

int bits_of(DType dtype) { return row(dtype).bits; }

Bytes bytes_of(DType dtype, std::int64_t numel) {
  return Bytes(checked_add(checked_mul(numel, bits_of(dtype)), 7) / 8);
}

Bytes bytes_of(DType dtype, const std::vector<std::int64_t>& sizes) {
  std::int64_t numel = 1;
  for (const std::int64_t n : sizes) numel = checked_mul(numel, n);
  return bytes_of(dtype, numel);
}

std::string_view name_of(DType dtype) { return row(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& r : rows)
    if (r.name == name) return r.dtype;
  if (name == "float") return DType::float32;
  if (name == "double") return DType::float64;
  if (name == "half") return DType::float16;
  if (name == "long") return DType::int64;
  if (name == "int") return DType::int32;
  return std::nullopt;
}

bool is_floating(DType dtype) { return row(dtype).category == 2; }
bool is_complex(DType dtype) { return row(dtype).category == 3; }
bool is_integral(DType dtype) { return row(dtype).category == 1; }

DType promote(DType a, DType b) {
  if (a == b) return a;
  const Row &x = row(a), &y = row(b);
  if (x.category != y.category) return x.category > y.category ? a : b;
  if (x.category == 2 && x.rank == y.rank) return DType::float32;  // float16 with bfloat16
  if (x.rank != y.rank) return x.rank > y.rank ? a : b;
  return x.rank == 5 ? DType::int16 : a;  // int8 with uint8
}

}  // namespace memplan
