#include "estimators/runtime/torch/aten/tensor.h"

#include <array>

#include "estimators/runtime/torch/aten/run.h"

namespace memplan {

void StorageRef::release(Storage* s) { s->run->free_storage(s); }

NodeRef::~NodeRef() {
  if (n_ && --n_->refs == 0) n_->run->release_node(n_);
}

Dims contiguous_strides(const Dims& sizes) {
  Dims strides = Dims::filled(sizes.size(), 1);
  for (int i = sizes.size() - 2; i >= 0; --i)
    strides[i] = checked_mul(strides[i + 1], std::max<std::int64_t>(sizes[i + 1], 1));
  return strides;
}

Dims channels_last_strides(const Dims& sizes) {
  const int n = sizes.size();
  Dims strides = Dims::filled(n, 1);
  std::int64_t step = sizes[1];
  for (int i = n - 1; i >= 2; --i) {
    strides[i] = step;
    step = checked_mul(step, std::max<std::int64_t>(sizes[i], 1));
  }
  strides[0] = step;
  return strides;
}

bool is_contiguous(const TensorBody& t) {
  std::int64_t expected = 1;
  if (t.numel() == 0) return true;
  for (int i = t.rank() - 1; i >= 0; --i) {
    if (t.sizes[i] != 1) {
      if (t.strides[i] != expected) return false;
      expected *= t.sizes[i];
    }
  }
  return true;
}

bool suggests_channels_last(const TensorBody& t) {
  if (t.rank() != 4 && t.rank() != 5) return false;
  if (t.strides[1] == 0) return false;
  Dims order{1};
  for (int d = t.rank() - 1; d >= 2; --d) order.push_back(d);
  order.push_back(0);
  std::int64_t least = 0;
  for (int i = 0; i < order.size(); ++i) {
    const auto d = static_cast<int>(order[i]);
    if (t.sizes[d] == 0 || t.strides[d] < least || (d == 0 && least == t.strides[1])) return false;
    least = t.strides[d] * std::max<std::int64_t>(t.sizes[d], 1);
  }
  return true;
}

bool is_channels_last(const TensorBody& t) {
  if (t.rank() != 4 && t.rank() != 5) return false;
  std::int64_t expected = 1;
  auto matches = [&](int d) {
    if (t.sizes[d] != 1) {
      if (t.strides[d] != expected) return false;
      expected *= t.sizes[d];
    }
    return true;
  };
  if (!matches(1)) return false;
  for (int d = t.rank() - 1; d >= 2; --d)
    if (!matches(d)) return false;
  return matches(0);
}

bool is_non_overlapping_and_dense(const TensorBody& t) {
  if (t.numel() == 0) return true;
  std::array<int, Dims::max> order{};
  int n = 0;
  for (int i = 0; i < t.rank(); ++i)
    if (t.sizes[i] != 1) order[n++] = i;
  std::sort(order.begin(), order.begin() + n, [&](int a, int b) { return t.strides[a] < t.strides[b]; });
  std::int64_t expected = 1;
  for (int i = 0; i < n; ++i) {
    if (t.strides[order[i]] != expected) return false;
    expected *= t.sizes[order[i]];
  }
  return true;
}

}  // namespace memplan
