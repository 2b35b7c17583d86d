#include "estimators/runtime/torch/step/adafactor.h"

#include <map>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/step/looped_optimizer.h"

namespace memplan {

namespace {

Tensor norm(Run& r, const Tensor& x, std::initializer_list<std::int64_t> dims) {
  ValueList list;
  for (std::int64_t d : dims) list.emplace_back(d);
  return call_op(r, "aten::linalg_vector_norm",
                 {Value(x), Value(2.0), list.empty() ? Value() : Value(list), Value(!list.empty())})[0]
      .tensor();
}

Tensor mean(Run& r, const Tensor& x, std::int64_t dim, bool keep) {
  return call_op(r, "aten::mean.dim", {Value(x), Value(ValueList{Value(dim)}), Value(keep)})[0].tensor();
}

/// torch.optim.Adafactor: one tensor at a time unless foreach is asked for. Rows and columns instead of a full second
/// moment; the estimate and the update are temporaries of the parameter's size.
struct Adafactor : LoopedOptimizer {
  using LoopedOptimizer::LoopedOptimizer;
  struct State {
    Tensor row, column, variance;
  };
  std::map<std::size_t, State> states;
  Tensor row_mean, column_mean, estimate, squared;

  void init(Run& r, std::size_t i) override {
    if (states.count(i)) return;
    const Tensor& p = parameters[i];
    State& s = states[i];
    if (p->rank() > 1) {
      Dims row = p->grad->sizes, column = p->grad->sizes;
      row[row.size() - 1] = 1;
      column[column.size() - 2] = 1;
      s.row = mark(r, r.empty(row, p->dtype), p, "row_var");
      s.column = mark(r, r.empty(column, p->dtype), p, "col_var");
    } else {
      s.variance = state_like(r, p, "variance");
    }
  }
  void single(Run& r, std::size_t i) override {
    const Tensor& p = parameters[i];
    const State& s = states[i];
    norm(r, p, {});
    if (p->rank() > 1) {
      row_mean = norm(r, p->grad, {-1});
      column_mean = norm(r, p->grad, {-2});
      estimate = op::matmul(r, s.row, s.column);
      { Tensor of_rows = mean(r, s.row, -2, true); }
    } else {
      squared = r.empty_like(p);
      estimate = r.empty_like(p);
    }
    norm(r, estimate, {});
  }
  void end_loop() override { row_mean.reset(), column_mean.reset(), estimate.reset(), squared.reset(); }
  void foreach (Run& r, const std::vector<std::size_t>& group) override { PyList estimates = list_like(r, group); }
};

/// One tensor at a time. Its squares and its update are copies of the parameter's size, two of them at once, and the
/// last update lives until the next one has its name; half-precision gradients and weights are copied to float32.
struct TransformersAdafactor : LoopedOptimizer {
  using LoopedOptimizer::LoopedOptimizer;
  struct State {
    Tensor row, column, squares, rms;
  };
  std::map<std::size_t, State> states;
  Tensor grad, weight, update;  // names of the loop

  static Tensor in_float32(Run& r, const Tensor& x) {
    return x->dtype == DType::float16 || x->dtype == DType::bfloat16 ? r.empty(x->sizes, DType::float32) : x;
  }
  /// tensor.norm(2) / tensor.numel() ** 0.5
  static Tensor root_mean_square(Run& r, const Tensor& x) {
    const Tensor length = norm(r, x, {});  // goes behind the quotient
    return r.empty({}, DType::float32);
  }

  void make_state(Run& r, const Tensor& p, State& s) {
    const Dims& sizes = grad->sizes;
    if (sizes.size() < 2) {
      s.squares = mark(r, r.empty(sizes, grad->dtype), p, "exp_avg_sq");
      return;
    }
    Dims row = sizes, column = sizes;
    row.erase(row.size() - 1), column.erase(column.size() - 2);
    s.row = mark(r, r.empty(row, grad->dtype), p, "exp_avg_sq_row");
    s.column = mark(r, r.empty(column, grad->dtype), p, "exp_avg_sq_col");
  }

  void single(Run& r, std::size_t i) override {
    const Tensor& p = parameters[i];
    grad = p->grad;
    grad = in_float32(r, grad);
    const auto [at, first] = states.try_emplace(i);
    State& s = at->second;
    if (first) make_state(r, p, s);
    weight = p;
    weight = in_float32(r, weight);
    s.rms = mark(r, root_mean_square(r, weight), p, "RMS");
    Tensor power = r.empty_like(grad), shifted = r.empty_like(grad);
    power.reset();
    update = std::move(shifted);
    if (s.row)
      update = factored(r, s);
    else
      update = r.empty_like(s.squares);
    Tensor length = root_mean_square(r, update), limit = r.empty({}, DType::float32);
    length.reset(), limit.reset();
    const Tensor negative = r.empty_like(update);
  }
  /// Both moments take in a mean of `update`; then _approx_sq_grad of them.
  Tensor factored(Run& r, const State& s) const {
    mean(r, update, -1, false);
    mean(r, update, -2, false);
    Tensor of_rows = mean(r, s.row, -1, true), rows = r.empty_like(s.row);
    of_rows.reset();
    const Tensor columns = r.empty_like(s.column);
    return r.empty(update->sizes, update->dtype);
  }
  void end_loop() override { grad.reset(), weight.reset(), update.reset(); }
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(Run& r, const OptimizerSetup& setup, const TensorList& parameters) {
  return std::make_unique<Adafactor>(r, setup, parameters);
}

std::unique_ptr<Optimizer> make_transformers_adafactor(Run& r, const OptimizerSetup& setup,
                                                       const TensorList& parameters) {
  return std::make_unique<TransformersAdafactor>(r, setup, parameters);
}

}  // namespace memplan
