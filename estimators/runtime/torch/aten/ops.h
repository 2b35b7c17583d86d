// ATen ops that other ops are made of, as plain functions. Each does what the CUDA op does to memory and, where grad
// mode is on and an input wants a gradient, leaves an autograd node. In a backward pass grad mode is off, so the
// same functions serve there as bare kernels.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "estimators/runtime/torch/aten/run.h"
#include "estimators/runtime/torch/aten/value.h"

namespace memplan::op {

/// The first result of the op of that name in the run's version of PyTorch, which must have it.
Tensor call(Run&, std::string_view name, std::vector<Value> args);
/// The list of tensors that is the call's first argument. Failure(input) where it is empty or one is missing.
TensorList some_tensors(const Args&);

enum class Format { preserve, contiguous, channels_last };

// --- creation (rows/creation.cpp) -----------------------------------------------------------------------------------
Tensor zeros_like(Run&, const Tensor&);
Tensor clone(Run&, const Tensor&, Format = Format::preserve);
/// at::contiguous: the tensor itself where it is contiguous already.
Tensor contiguous(Run&, const Tensor&, Format = Format::contiguous);
/// What a kernel reads that wants one format: the tensor, or a copy of it that autograd does not see.
Tensor read_as(Run&, const Tensor&, Format = Format::contiguous);
/// Tensor::suggest_memory_format of images: channels_last, or contiguous.
Format format_of(const TensorBody&);
Tensor empty_as(Run&, Format, const Dims& sizes, DType);
/// at::to(dtype): the tensor itself where nothing changes, else a copy (ToCopyBackward casts the gradient back).
Tensor to(Run&, const Tensor&, DType, Format = Format::preserve);

// --- views (rows/views.cpp): share the storage ----------------------------------------------------------------------
Tensor view(Run&, const Tensor&, Dims sizes);         ///< one size may be -1; Failure where the strides do not allow it
Tensor unsafe_view(Run&, const Tensor&, Dims sizes);  ///< of a tensor that nobody else has: no view to autograd
Tensor reshape(Run&, const Tensor&, Dims sizes);      ///< view, or clone + view where the strides do not allow a view
Tensor permute(Run&, const Tensor&, const Dims& order);
Tensor transpose(Run&, const Tensor&, int a, int b);
Tensor t(Run&, const Tensor&);
Tensor expand(Run&, const Tensor&, Dims sizes);
Tensor unsqueeze(Run&, const Tensor&, int dim);
Tensor squeeze(Run&, const Tensor&, int dim);
Tensor select(Run&, const Tensor&, int dim, std::int64_t index);
Tensor slice(Run&, const Tensor&, int dim, std::int64_t start, std::int64_t end, std::int64_t step = 1);
/// Failure(input) where there are too many to make a tensor of each.
void expect_pieces(std::int64_t pieces);
TensorList split(Run&, const Tensor&, const std::vector<std::int64_t>& sizes, int dim);
Tensor flatten(Run&, const Tensor&, int start, int end);
/// Strides for viewing as `sizes` (at::detail::computeStride), or nothing where a copy is needed.
std::optional<Dims> view_strides(const TensorBody&, const Dims& sizes);
/// Replaces the one -1 of `sizes` so that the product is `numel`.
Dims infer_size(Dims sizes, std::int64_t numel);

// --- element-wise (rows/iterator.cpp, rows/arithmetic.cpp)
// ------------------------------------------------------------------------------
Dims broadcast(const Dims&, const Dims&);
/// Output of a TensorIterator over `inputs`: broadcast sizes, strides in the order that TensorIterator chooses.
Tensor pointwise(Run&, std::initializer_list<Tensor> inputs, DType);
Tensor pointwise(Run&, const TensorList& inputs, DType);
DType result_type(std::initializer_list<Tensor> inputs);
DType result_type(const TensorList& inputs);
/// A Python number as the 0-dim CPU tensor that PyTorch wraps it in.
Tensor number(Run&, bool floating);
Tensor add(Run&, const Tensor&, const Tensor&);
Tensor add_(Run&, const Tensor& self, const Tensor& other);
Tensor sub(Run&, const Tensor&, const Tensor&);
Tensor mul(Run&, const Tensor&, const Tensor&);
Tensor div(Run&, const Tensor&, const Tensor&);
Tensor neg(Run&, const Tensor&);
/// at::conj of a complex tensor, a view.
Tensor conj(Run&, const Tensor&);
/// The real parts of a complex tensor, in its memory (at::real, a view).
Tensor real_part(Run&, const Tensor&);
Tensor mul_number(Run&, const Tensor&);  ///< times a Python number
Tensor add_number(Run&, const Tensor&);
Tensor div_number(Run&, const Tensor&);

// --- reductions (rows/reductions.cpp) -------------------------------------------------------------------------------
Tensor sum(Run&, const Tensor&, const Dims& dims, bool keepdim, std::optional<DType> dtype = {});
/// at::sum_to: reduces a broadcast gradient to the shape of the input.
Tensor sum_to(Run&, const Tensor&, const Dims& sizes);
Tensor mean(Run&, const Tensor&, const Dims& dims, bool keepdim, std::optional<DType> dtype = {});
/// Allocates (and gives back at once) the scratch of a CUDA reduction of `in` over `dims` into `out`
/// (setReduceConfig in aten/src/ATen/native/cuda/Reduce.cuh). `acc_bytes`: size of the accumulator, 4 for sums.
void reduction_scratch(Run&, const Tensor& in, const Tensor& out, const Dims& dims, int acc_bytes, int vt0 = 4);

// --- matrix products (rows/matmul.cpp) ------------------------------------------------------------------------------
Tensor mm(Run&, const Tensor&, const Tensor&);
Tensor bmm(Run&, const Tensor&, const Tensor&);
Tensor addmm(Run&, const Tensor& bias, const Tensor&, const Tensor&);
/// `weight`: one operand is a weight that wants a gradient, which at::matmul asks for even under no_grad.
Tensor matmul(Run&, const Tensor&, const Tensor&);
Tensor dot(Run&, const Tensor&, const Tensor&);
Tensor einsum(Run&, const std::string& equation, TensorList operands);
Tensor linear(Run&, const Tensor& input, const Tensor& weight, const Tensor& bias);
Tensor plain_linear(Run&, const Tensor& input, const Tensor& weight, const Tensor& bias);  ///< never Run::linear

// --- others ---------------------------------------------------------------------------------------------------------
Tensor cat(Run&, const TensorList&, int dim);                                 ///< rows/indexing.cpp
Tensor softmax(Run&, const Tensor&, int dim, std::optional<DType> = {});      ///< rows/softmax.cpp
Tensor log_softmax(Run&, const Tensor&, int dim, std::optional<DType> = {});  ///< rows/softmax.cpp
/// `mask` takes native_dropout's second output (rows/softmax.cpp).
Tensor dropout(Run&, const Tensor&, double p, bool train, Tensor* mask = nullptr);
Tensor embedding(Run&, const Tensor& weight, const Tensor& indices);  ///< rows/indexing.cpp
Tensor copy_(Run&, const Tensor& self, const Tensor& src);            ///< rows/scatter.cpp
/// index_put's sort of `n` positions made of that many indices below `limit` (rows/scatter.cpp).
void sort_linear_indices(Run&, std::int64_t n, int indices, std::int64_t limit);

/// A one-input op whose output has the input's shape. `save_input`/`save_result` say what autograd keeps;
/// `backward` computes the gradient from (grad, saved).
Tensor unary(Run&, const Tensor&, DType out, bool save_input, bool save_result,
             std::function<Tensor(Run&, const Tensor& grad, const Tensor& saved)> backward);

inline int wrap_dim(std::int64_t dim, int rank) {
  const int n = rank == 0 ? 1 : rank;
  if (dim < -n || dim >= n) fail_input("a dimension is out of range", {}, "the model file does not fit these shapes");
  return static_cast<int>(dim < 0 ? dim + n : dim);
}

}  // namespace memplan::op
