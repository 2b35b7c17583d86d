// Headers of safetensors files: which tensors a file holds. No tensor is read.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace memplan::frontends {

/// Tensors of one or several files.
struct WeightsInventory {
  std::int64_t tensors = 0;
  double elements = 0, bytes = 0;
  void add(const WeightsInventory& o) { tensors += o.tensors, elements += o.elements, bytes += o.bytes; }
};

/// Of u64 length, then JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {…}}.
/// Failure(input) where the header is damaged, or names an element type that memplan does not know.
WeightsInventory read_safetensors(const std::string& path);
WeightsInventory read_safetensors(std::istream& in, std::uint64_t bytes, const std::string& path);

}  // namespace memplan::frontends
