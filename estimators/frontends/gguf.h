// Headers of GGUF files (llama.cpp): which tensors a file holds and in what format. No tensor is read.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

namespace memplan::frontends {

/// A format of weights: `block` weights take `bytes` bytes, scales included (the block structures of ggml's
/// ggml-common.h).
struct GgufType {
  std::uint32_t id;
  const char* name;
  std::int64_t block, bytes;
  double bits() const { return 8.0 * static_cast<double>(bytes) / static_cast<double>(block); }
};

/// By the number that files have for it; none for one that memplan does not know.
const GgufType* gguf_type(std::uint32_t id);
const GgufType* gguf_type(const std::string& name);

struct GgufInventory {
  std::int64_t tensors = 0;
  double elements = 0, bytes = 0;
  std::map<std::string, double> by_type;  ///< bytes
};

/// Failure(input) where the header is damaged, or a tensor's format is unknown: its bytes are never taken for zero.
GgufInventory read_gguf(const std::string& path);
GgufInventory read_gguf(std::istream& in, std::uint64_t bytes, const std::string& path);

}  // namespace memplan::frontends
