#include "estimators/frontends/onnx/ops/contents.h"

namespace memplan::onnx_format {

Sizes strides_of(const Sizes& sizes) {
  Sizes out(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    out[i] = stride;
    stride = checked_mul(stride, sizes[i]);
  }
  return out;
}

std::vector<std::size_t> broadcast_index(const Sizes& in, const Sizes& out) {
  const std::size_t count = static_cast<std::size_t>(count_of(out));
  std::vector<std::size_t> index(count);
  const Sizes strides = strides_of(in), out_strides = strides_of(out);
  const std::size_t skip = out.size() - in.size();
  for (std::size_t k = 0; k < count; ++k) {
    std::size_t at = 0, rest = k;
    for (std::size_t d = 0; d < out.size(); ++d) {
      const std::size_t i = rest / static_cast<std::size_t>(out_strides[d]);
      rest %= static_cast<std::size_t>(out_strides[d]);
      if (d >= skip && in[d - skip] != 1) at += i * static_cast<std::size_t>(strides[d - skip]);
    }
    index[k] = at;
  }
  return index;
}

Contents pick(const Contents& from, const std::vector<std::size_t>& index) {
  Contents out;
  out.floating = from.floating;
  if (from.floating) {
    out.floats.reserve(index.size());
    for (std::size_t i : index) out.floats.push_back(from.floats[i]);
  } else {
    out.integers.reserve(index.size());
    for (std::size_t i : index) out.integers.push_back(from.integers[i]);
  }
  return out;
}

Contents converted(const Contents& from, DType to) {
  Contents out;
  out.floating = is_floating(to);
  if (from.floating == out.floating) {
    out = from;
  } else if (out.floating) {
    out.floats.assign(from.integers.begin(), from.integers.end());
  } else {
    // What x86 makes of a number beyond 64 bits, and of nan: T5 casts the logarithm of zero, and picks another number
    // in its place.
    for (const double v : from.floats)
      out.integers.push_back(to == DType::boolean   ? v != 0
                             : fits_whole_number(v) ? static_cast<std::int64_t>(v)
                                                    : std::numeric_limits<std::int64_t>::min());
  }
  if (to == DType::boolean)
    for (std::int64_t& v : out.integers) v = v != 0;
  if (to == DType::int32)
    for (std::int64_t& v : out.integers) v = static_cast<std::int32_t>(v);
  return out;
}

}  // namespace memplan::onnx_format
