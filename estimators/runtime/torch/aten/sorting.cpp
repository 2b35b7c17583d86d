#include "estimators/runtime/torch/aten/sorting.h"

#include <algorithm>

namespace memplan {

namespace {

std::int64_t align256(std::int64_t n) { return (n + 255) / 256 * 256; }
std::int64_t blocks_of(std::int64_t n, std::int64_t tile) { return (n + tile - 1) / tile; }

/// Tuning of the images that PyTorch is built for: sm_90, sm_80 and sm_86 (which 8.9 runs), sm_75.
std::int64_t pairs_tile(int sm, int key_bytes) {
  if (sm >= 90) return key_bytes >= 8 ? 4608 : key_bytes == 4 ? 5376 : key_bytes == 2 ? 5632 : 3456;
  if (sm >= 80) return key_bytes >= 8 ? 3840 : 3072;
  return 2816;
}

}  // namespace

Bytes radix_sort_temp(const Run& r, std::int64_t n, int key_bytes, std::int64_t bits) {
  if (n <= 2304) return Bytes(1);
  const std::int64_t passes = (bits + 7) / 8;
  std::int64_t bytes = 511 + 2048 * passes + 1024 * blocks_of(n, pairs_tile(r.device.sm(), key_bytes));
  if (passes > 1) bytes += align256(checked_mul(key_bytes, n)) + align256(checked_mul(8, n));
  return Bytes(bytes);
}

Bytes radix_sort_keys_temp(const Run& r, std::int64_t n) {
  const int sm = r.device.sm();
  const std::int64_t tile = sm >= 90 ? 5760 : sm >= 80 ? 3840 : 2816;
  return n <= 2304 ? Bytes(1) : Bytes(511 + 2048 + 1024 * blocks_of(n, tile));
}

Bytes scan_temp(std::int64_t n, std::int64_t tile, std::int64_t descriptor_bytes) {
  return Bytes(511 + align256(descriptor_bytes * (32 + blocks_of(n, tile))));
}

std::int64_t embedding_scan_tile(const Run& r) {
  const int sm = r.device.sm();
  return sm >= 90 ? 4480 : sm == 80 ? 1792 : 320;
}

}  // namespace memplan
