// Tensors without data: sizes, strides, dtype and a counted storage, so that ops on paper share, keep and release
// memory exactly as PyTorch's tensors do. Handles are counted because the autograd engine itself decides by
// reference counts (accumulate in place or not, steal a gradient or clone it).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "estimators/base/dtype.h"
#include "estimators/base/pooled.h"

namespace memplan {

/// Sizes or strides of a tensor. Up to six lie inline, since millions are made and hundreds of thousands are kept;
/// models with more than `max` dimensions are refused by name.
class Dims {
 public:
  static constexpr int max = 12;
  Dims() = default;
  Dims(const Dims& o) : n_(o.n_) {
    if (o.many_) many_ = std::make_unique<Many>();
    std::copy_n(o.begin(), n_, begin());
  }
  Dims(Dims&& o) noexcept : many_(std::move(o.many_)), n_(std::exchange(o.n_, 0)) {
    if (!many_) std::copy_n(o.few_, n_, few_);
  }
  Dims& operator=(const Dims& o) {
    if (this == &o) return *this;
    if (o.many_ && !many_) many_ = std::make_unique<Many>();
    n_ = o.n_;
    std::copy_n(o.begin(), n_, begin());
    return *this;
  }
  Dims& operator=(Dims&& o) noexcept {
    if (this == &o) return *this;
    if (o.many_)
      many_ = std::move(o.many_);
    else
      std::copy_n(o.few_, o.n_, begin());
    n_ = std::exchange(o.n_, 0);
    return *this;
  }
  ~Dims() = default;
  Dims(std::initializer_list<std::int64_t> v) {
    for (auto x : v) push_back(x);
  }
  explicit Dims(const std::vector<std::int64_t>& v) {
    for (auto x : v) push_back(x);
  }
  static Dims filled(int n, std::int64_t value) {
    Dims d;
    for (int i = 0; i < n; ++i) d.push_back(value);
    return d;
  }
  void push_back(std::int64_t x) {
    if (n_ == max) fail_input("a tensor has more than 12 dimensions", {}, "reshape it to fewer dimensions");
    if (n_ == few && !many_) {
      many_ = std::make_unique<Many>();
      std::copy_n(few_, few, many_->begin());
    }
    begin()[n_++] = x;
  }
  void insert(int at, std::int64_t x) {
    push_back(x);
    std::rotate(begin() + at, end() - 1, end());
  }
  void erase(int at) {
    std::copy(begin() + at + 1, end(), begin() + at);
    --n_;
  }
  int size() const { return n_; }
  bool empty() const { return n_ == 0; }
  std::int64_t& operator[](int i) { return begin()[i]; }
  std::int64_t operator[](int i) const { return begin()[i]; }
  std::int64_t back() const { return begin()[n_ - 1]; }
  std::int64_t* begin() { return many_ ? many_->data() : few_; }
  std::int64_t* end() { return begin() + n_; }
  const std::int64_t* begin() const { return many_ ? many_->data() : few_; }
  const std::int64_t* end() const { return begin() + n_; }
  /// Checked product of all entries (1 for rank 0).
  std::int64_t product() const {
    std::int64_t p = 1;
    for (const std::int64_t n : *this) p = checked_mul(p, n);
    return p;
  }
  friend bool operator==(const Dims& a, const Dims& b) {
    return a.n_ == b.n_ && std::equal(a.begin(), a.end(), b.begin());
  }
  std::vector<std::int64_t> vector() const { return {begin(), end()}; }

 private:
  static constexpr int few = 6;
  using Many = std::array<std::int64_t, max>;
  std::int64_t few_[few];
  std::unique_ptr<Many> many_;  ///< all of them where there are more than `few`
  int n_ = 0;
};

/// Strides of a contiguous tensor (row-major); a size of 0 or 1 counts as 1, as in PyTorch.
Dims contiguous_strides(const Dims& sizes);
/// Strides of a 4-D (NHWC) or 5-D (NDHWC) tensor in channels_last order.
Dims channels_last_strides(const Dims& sizes);

class Run;
struct Node;
struct TensorBody;

/// Bytes on the device (or host), freed when the last tensor that refers to it goes.
struct Storage {
  Run* run = nullptr;
  std::int64_t bytes = 0;
  std::int32_t refs = 0;
  std::int32_t allocation = -1;  ///< index into Schedule::allocations; -1: host memory or empty
};

class StorageRef {
 public:
  StorageRef() = default;
  explicit StorageRef(Storage* s) : s_(s) {
    if (s_) ++s_->refs;
  }
  StorageRef(const StorageRef& o) : s_(o.s_) {
    if (s_) ++s_->refs;
  }
  StorageRef(StorageRef&& o) noexcept : s_(std::exchange(o.s_, nullptr)) {}
  StorageRef& operator=(StorageRef o) noexcept {
    std::swap(s_, o.s_);
    return *this;
  }
  ~StorageRef() {
    if (s_ && --s_->refs == 0) release(s_);
  }
  Storage* operator->() const { return s_; }
  Storage* get() const { return s_; }
  explicit operator bool() const { return s_ != nullptr; }

 private:
  static void release(Storage* s);
  Storage* s_ = nullptr;
};

/// A counted handle to a node of the autograd graph.
class NodeRef {
 public:
  NodeRef() = default;
  explicit NodeRef(Node* n);
  NodeRef(const NodeRef& o) : NodeRef(o.n_) {}
  NodeRef(NodeRef&& o) noexcept : n_(std::exchange(o.n_, nullptr)) {}
  NodeRef& operator=(NodeRef o) noexcept {
    std::swap(n_, o.n_);
    return *this;
  }
  ~NodeRef();
  Node* operator->() const { return n_; }
  Node* get() const { return n_; }
  explicit operator bool() const { return n_ != nullptr; }

 private:
  Node* n_ = nullptr;
};

/// A counted handle to a tensor; null means "undefined", as in PyTorch.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(TensorBody* b);
  Tensor(const Tensor& o) : Tensor(o.b_) {}
  Tensor(Tensor&& o) noexcept : b_(std::exchange(o.b_, nullptr)) {}
  Tensor& operator=(Tensor o) noexcept {
    std::swap(b_, o.b_);
    return *this;
  }
  ~Tensor();
  TensorBody* operator->() const { return b_; }
  TensorBody* get() const { return b_; }
  TensorBody& operator*() const { return *b_; }
  explicit operator bool() const { return b_ != nullptr; }
  void reset() { *this = Tensor(); }
  /// Tensor handles to this body: PyTorch's Tensor::use_count().
  int use_count() const;

 private:
  TensorBody* b_ = nullptr;
};

struct TensorBody : Pooled<TensorBody> {
  Dims sizes, strides;
  std::int64_t offset = 0;  ///< in elements
  DType dtype = DType::float32;
  bool requires_grad_leaf = false;  ///< a leaf that wants a gradient
  bool on_host = false;             ///< CPU tensor: no device memory; 0-dim ones mix with device tensors
  bool is_view = false;
  bool holds_base = true;  ///< of a view: not of one made with set_(), which only shares the storage
  /// A view made without gradients of what wants one: PyTorch's requires_grad() asks its base
  /// (DifferentiableViewMeta, torch/csrc/autograd/variable.h).
  bool shows_trained = false;
  /// What a complex tensor shows is the conjugate of its memory (PyTorch's conjugate bit).
  bool conjugated = false;
  bool wrapped_number = false;  ///< a Python number turned into a tensor: does not take part in promotion
  std::int32_t refs = 0;
  StorageRef storage;
  NodeRef grad_fn;
  std::int32_t output_nr = 0;
  Tensor grad;             ///< .grad of a leaf
  NodeRef accumulator;     ///< AccumulateGrad node of a leaf, made when first needed
  std::int32_t name = -1;  ///< index into Schedule::names
  /// Of a view made while gradients are recorded: the tensor whose memory it shows. A write through any view of the
  /// base gives the base a new history, and with it every view that is looked at later.
  Tensor base;
  std::int32_t writes = 0;       ///< of a base: in-place ops that took part in its history
  std::int32_t seen_writes = 0;  ///< of a view: those that its own history knows of

  bool is_outdated() const { return base && base->writes != seen_writes; }
  bool requires_grad() const {
    return requires_grad_leaf || static_cast<bool>(is_outdated() ? base->grad_fn : grad_fn);
  }
  int rank() const { return sizes.size(); }
  std::int64_t numel() const { return sizes.product(); }
  std::int64_t size(int dim) const { return sizes[dim < 0 ? dim + sizes.size() : dim]; }
  Bytes bytes() const { return bytes_of(dtype, numel()); }
};

inline Tensor::Tensor(TensorBody* b) : b_(b) {
  if (b_) ++b_->refs;
}
inline Tensor::~Tensor() {
  if (b_ && --b_->refs == 0) delete b_;
}
inline int Tensor::use_count() const { return b_ ? b_->refs : 0; }

bool is_contiguous(const TensorBody& t);
bool is_channels_last(const TensorBody& t);
/// Whether PyTorch takes the strides for channels_last (c10/core/MemoryFormat.h: is_channels_last_strides_2d). Tensors
/// with dimensions of one can be dense in both formats: then the strides of those dimensions tell what was meant.
bool suggests_channels_last(const TensorBody& t);
/// The strides cover the elements without gaps or overlaps, in some order of the dimensions.
bool is_non_overlapping_and_dense(const TensorBody& t);

using TensorList = std::vector<Tensor>;

}  // namespace memplan
