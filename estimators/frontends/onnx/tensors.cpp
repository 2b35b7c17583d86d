#include "estimators/frontends/onnx/tensors.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "estimators/frontends/onnx/wire.h"
#include "onnx/onnx-ml.pb.h"

namespace memplan::onnx_format {

namespace {

using ::onnx::TensorProto;

/// PyTorch allows 64 dimensions; a file that asks for more is not a model.
constexpr int max_rank = 64;
/// Contents up to this many elements are kept, for shape arithmetic.
constexpr std::int64_t max_kept_elements = 4096;

double half_to_double(std::uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 1023;
  const double sign = h & 0x8000 ? -1.0 : 1.0;
  if (exponent == 31) return mantissa ? std::nan("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(mantissa + 1024, exponent - 25);
}

double bfloat16_to_double(std::uint16_t h) { return std::bit_cast<float>(static_cast<std::uint32_t>(h) << 16); }

template <class T, class F>
void each(const std::string& raw, F&& use) {
  for (std::size_t at = 0; at + sizeof(T) <= raw.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, raw.data() + at, sizeof(T));
    use(value);
  }
}

void read_raw(const TensorProto& p, StoredTensor& out) {
  auto integer = [&](auto v) { out.integers.push_back(static_cast<std::int64_t>(v)); };
  auto real = [&](auto v) { out.floats.push_back(static_cast<double>(v)); };
  const std::string& raw = p.raw_data();
  switch (out.dtype) {
    case DType::int64:
      each<std::int64_t>(raw, integer);
      break;
    case DType::uint64:
      each<std::uint64_t>(raw, integer);
      break;
    case DType::int32:
      each<std::int32_t>(raw, integer);
      break;
    case DType::uint32:
      each<std::uint32_t>(raw, integer);
      break;
    case DType::int16:
      each<std::int16_t>(raw, integer);
      break;
    case DType::uint16:
      each<std::uint16_t>(raw, integer);
      break;
    case DType::int8:
      each<std::int8_t>(raw, integer);
      break;
    case DType::uint8:
    case DType::boolean:
      each<std::uint8_t>(raw, integer);
      break;
    case DType::float32:
      each<float>(raw, real);
      break;
    case DType::float64:
      each<double>(raw, real);
      break;
    case DType::float16:
      each<std::uint16_t>(raw, [&](std::uint16_t v) { real(half_to_double(v)); });
      break;
    case DType::bfloat16:
      each<std::uint16_t>(raw, [&](std::uint16_t v) { real(bfloat16_to_double(v)); });
      break;
    default:
      break;
  }
}

void read_typed(const TensorProto& p, StoredTensor& out) {
  if (out.dtype == DType::float32) out.floats.assign(p.float_data().begin(), p.float_data().end());
  if (out.dtype == DType::float64) out.floats.assign(p.double_data().begin(), p.double_data().end());
  if (out.dtype == DType::float16)
    for (std::int32_t v : p.int32_data()) out.floats.push_back(half_to_double(static_cast<std::uint16_t>(v)));
  if (out.dtype == DType::bfloat16)
    for (std::int32_t v : p.int32_data()) out.floats.push_back(bfloat16_to_double(static_cast<std::uint16_t>(v)));
  if (!is_floating(out.dtype) && !is_complex(out.dtype)) {
    for (std::int64_t v : p.int64_data()) out.integers.push_back(v);
    for (std::int32_t v : p.int32_data()) out.integers.push_back(v);
    for (std::uint64_t v : p.uint64_data()) out.integers.push_back(static_cast<std::int64_t>(v));
  }
}

void check_location(const TensorProto& p, const std::string& location) {
  const bool absolute =
      !location.empty() && (location[0] == '/' || location[0] == '\\' || (location.size() > 1 && location[1] == ':'));
  bool leaves = false;
  for (std::size_t begin = 0; begin <= location.size();) {
    std::size_t end = location.find_first_of("/\\", begin);
    if (end == std::string::npos) end = location.size();
    leaves = leaves || location.substr(begin, end - begin) == "..";
    begin = end + 1;
  }
  if (absolute || leaves)
    fail_input(fmt::format("tensor '{}' keeps its data in '{}', outside the folder of the model", p.name(), location),
               p.name(), "such a file is not trusted; save the model again with its data beside it");
}

}  // namespace

std::optional<DType> dtype_of(int data_type) {
  switch (data_type) {
    case TensorProto::FLOAT:
      return DType::float32;
    case TensorProto::UINT8:
      return DType::uint8;
    case TensorProto::INT8:
      return DType::int8;
    case TensorProto::UINT16:
      return DType::uint16;
    case TensorProto::INT16:
      return DType::int16;
    case TensorProto::INT32:
      return DType::int32;
    case TensorProto::INT64:
      return DType::int64;
    case TensorProto::BOOL:
      return DType::boolean;
    case TensorProto::FLOAT16:
      return DType::float16;
    case TensorProto::DOUBLE:
      return DType::float64;
    case TensorProto::UINT32:
      return DType::uint32;
    case TensorProto::UINT64:
      return DType::uint64;
    case TensorProto::COMPLEX64:
      return DType::complex64;
    case TensorProto::COMPLEX128:
      return DType::complex128;
    case TensorProto::BFLOAT16:
      return DType::bfloat16;
    case 17:
    case 18:
      return DType::float8_e4m3fn;  // FLOAT8E4M3FN, FLOAT8E4M3FNUZ
    case 19:
    case 20:
      return DType::float8_e5m2;  // FLOAT8E5M2, FLOAT8E5M2FNUZ
    case 21:
      return DType::uint4;
    case 22:
      return DType::int4;
    case 23:
      return DType::float4;
    case 24:
      return DType::uint8;  // FLOAT8E8M0, a scale exponent
    case 25:
      return DType::uint2;
    case 26:
      return DType::int2;
    default:
      return std::nullopt;
  }
}

StoredTensor read_tensor(const TensorProto& p, std::vector<std::string>& warnings) {
  StoredTensor out;
  out.name = p.name();
  const auto dtype = dtype_of(p.data_type());
  if (!dtype && p.data_type() != TensorProto::STRING)
    fail_input(fmt::format("tensor '{}' has the unknown element type {}", p.name(), p.data_type()), p.name(),
               "the file may be newer than this memplan");
  if (!dtype) warnings.push_back(fmt::format("tensor '{}' holds strings; it is counted as no bytes", p.name()));
  out.dtype = dtype.value_or(DType::uint8);
  if (p.dims_size() > max_rank)
    fail_input(fmt::format("tensor '{}' has {} dimensions", p.name(), p.dims_size()), p.name());
  std::int64_t numel = 1;
  for (std::int64_t d : p.dims()) {
    if (d < 0) fail_input(fmt::format("tensor '{}' has the dimension {}", p.name(), d), p.name());
    numel = checked_mul(numel, d);
    out.sizes.push_back(d);
  }
  if (!dtype) out.sizes.assign(1, 0);
  const std::int64_t bytes = dtype ? bytes_of(*dtype, numel).count : 0;

  for (const auto& entry : p.metadata_props())
    if (entry.key() != dropped_key) out.metadata[entry.key()] = entry.value();

  out.external = p.data_location() == TensorProto::EXTERNAL;
  if (out.external) {
    for (const auto& entry : p.external_data()) {
      if (entry.key() == "location") check_location(p, entry.value());
      std::int64_t length = 0;
      const char* last = entry.value().data() + entry.value().size();
      if (entry.key() == "length" && std::from_chars(entry.value().data(), last, length).ec == std::errc() &&
          length != bytes)
        warnings.push_back(
            fmt::format("tensor '{}' has {} bytes of external data where its shape needs {}", p.name(), length, bytes));
    }
    return out;
  }
  if (!dtype) return out;

  std::int64_t raw = static_cast<std::int64_t>(p.raw_data().size());
  for (const auto& entry : p.metadata_props())
    if (entry.key() == dropped_key && !p.has_raw_data()) raw = std::atoll(entry.value().c_str());
  const std::int64_t typed =
      p.float_data_size() + p.int32_data_size() + p.int64_data_size() + p.double_data_size() + p.uint64_data_size();
  // Raw contents have an exact length. Of dropped contents it is not known whether they were raw; as varints they
  // take at least one byte for an element of eight.
  if (raw > 0 && typed == 0 && raw != bytes && (p.has_raw_data() || raw < bytes / 8))
    fail_input(fmt::format("tensor '{}' claims {} bytes and has {}", p.name(), bytes, raw), p.name(),
               "the file is damaged; export the model again");
  if (numel <= max_kept_elements) {
    p.has_raw_data() ? read_raw(p, out) : read_typed(p, out);
    const std::size_t kept = out.integers.size() + out.floats.size();
    if (kept != static_cast<std::size_t>(numel)) out.integers.clear(), out.floats.clear();
  }
  return out;
}

void read_value_info(const ::onnx::ValueInfoProto& p, GraphValue& value) {
  for (const auto& entry : p.metadata_props()) value.metadata[entry.key()] = entry.value();
  if (!p.has_type() || !p.type().has_tensor_type()) return;
  const auto& tensor = p.type().tensor_type();
  value.dtype = dtype_of(tensor.elem_type());
  if (!tensor.has_shape()) return;
  if (tensor.shape().dim_size() > max_rank)
    fail_input(fmt::format("value '{}' has {} dimensions", p.name(), tensor.shape().dim_size()), p.name());
  std::vector<Dim> shape;
  for (const auto& d : tensor.shape().dim()) {
    Dim dim;
    if (d.has_dim_value()) {
      // Some tools write -1 or 0 for "unknown"; a negative size has no other meaning.
      dim.size = d.dim_value() < 0 ? -1 : d.dim_value();
    } else if (d.has_dim_param()) {
      dim.symbol = d.dim_param();
    }
    shape.push_back(std::move(dim));
  }
  value.shape = std::move(shape);
}

}  // namespace memplan::onnx_format
