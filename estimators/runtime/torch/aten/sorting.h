// Scratch memory of CUB's sorts and scans, as CUDA's sorting, indexing and embedding kernels take it.
#pragma once

#include "estimators/runtime/torch/aten/run.h"

namespace memplan {

/// cub::DeviceRadixSort of `n` pairs of a key of `key_bytes` and an 8-byte value, by `bits` bits of the key. Up to 2304
/// pairs one block sorts without scratch memory (one byte is asked for). Else 511 bytes of alignment, per pass of 8
/// bits a histogram of 256 8-byte bins, per tile a look-back row of 256 counters, and, with more than one pass, a
/// second buffer of keys and values. Measured on compute capabilities 7.5, 8.0, 8.9 and 9.0.
Bytes radix_sort_temp(const Run& r, std::int64_t n, int key_bytes, std::int64_t bits);
/// The same for 8-byte keys alone in one pass, as the second sort of a segmented sort.
Bytes radix_sort_keys_temp(const Run& r, std::int64_t n);
/// cub::DeviceScan over `n` items by tiles of `tile`: 32 + tiles descriptors.
Bytes scan_temp(std::int64_t n, std::int64_t tile, std::int64_t descriptor_bytes = 16);
/// Items per tile of the scan that counts an embedding's segments.
std::int64_t embedding_scan_tile(const Run& r);

namespace op {

/// index_put_with_sort_kernel: what index_put with accumulate=True allocates, the values made contiguous among it.
void sort_linear_indices(Run& r, std::int64_t n, int indices, std::int64_t limit, const Tensor& values);

}  // namespace op

}  // namespace memplan
