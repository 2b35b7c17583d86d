#include "estimators/runtime/torch/aten/cost.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace memplan {

namespace {

bool begins(std::string_view op, std::string_view prefix) { return op.substr(0, prefix.size()) == prefix; }

/// Gradients of a product: one more product of the same size for every operand that wants one.
Flops product(const OpCall& c, double forward, std::initializer_list<std::size_t> factors) {
  Flops f{forward, 0};
  for (std::size_t i : factors)
    if (i < c.inputs.size() && c.inputs[i].wants_grad) f.backward += forward;
  return f;
}

double last(const Operand& t) { return t.sizes.empty() ? 1.0 : static_cast<double>(t.sizes.back()); }

/// The contracted length of a product of two tensors (the last dimension of the first one).
Flops matrix_product(const OpCall& c, std::size_t a, std::size_t b) {
  if (c.outputs.empty() || c.inputs.size() <= b) return {};
  return product(c, 2.0 * static_cast<double>(c.outputs[0].elements()) * last(c.inputs[a]), {a, b});
}

Flops linear(const OpCall& c) {
  if (c.inputs.size() < 2 || c.inputs[1].sizes.empty()) return {};
  return product(c, 2.0 * static_cast<double>(c.inputs[0].elements()) * static_cast<double>(c.inputs[1].sizes[0]),
                 {0, 1});
}

Flops convolution(const OpCall& c, bool transposed) {
  if (c.inputs.size() < 2 || c.inputs[1].sizes.empty() || c.outputs.empty()) return {};
  // Every element of the output (of the input, where transposed) meets the weights of one output (input) channel.
  const double per_element = static_cast<double>(c.inputs[1].elements()) /
                             static_cast<double>(std::max<std::int64_t>(1, c.inputs[1].sizes[0]));
  const double elements = static_cast<double>((transposed ? c.inputs[0] : c.outputs[0]).elements());
  return product(c, 2.0 * elements * per_element, {0, 1});
}

double size_at(const Operand& t, std::size_t from_end) {
  return t.sizes.size() < from_end ? 1.0 : static_cast<double>(t.sizes[t.sizes.size() - from_end]);
}

/// query [.., heads, s, d], key and value [.., kv heads, n, d]: two products forward; backward four, and the scores
/// once more where they were not kept.
Flops attention(const OpCall& c) {
  if (c.inputs.size() < 3) return {};
  const Operand &q = c.inputs[0], &v = c.inputs[2];
  const double scores = static_cast<double>(q.elements()) / std::max(1.0, size_at(q, 1)) * size_at(c.inputs[1], 2);
  const double first = 2.0 * scores * size_at(q, 1), second = 2.0 * scores * size_at(v, 1);
  Flops f{first + second, 0};
  const bool wanted = q.wants_grad || c.inputs[1].wants_grad || v.wants_grad;
  if (wanted) f.backward = 2 * (first + second) + (c.scores_in_memory ? 0 : first);
  return f;
}

/// Product of the sizes of all different letters of the equation.
Flops einsum(const OpCall& c) {
  std::map<char, double> size;
  std::size_t operand = 0, dim = 0;
  for (char letter : c.equation) {
    if (letter == '-') break;
    if (letter == ' ') continue;
    if (letter == ',') {
      ++operand;
      dim = 0;
      continue;
    }
    // An ellipsis stands for dimensions that the letters do not name; they multiply as well.
    if (letter == '.') continue;
    if (operand < c.inputs.size() && dim < c.inputs[operand].sizes.size())
      size[letter] = static_cast<double>(c.inputs[operand].sizes[dim]);
    ++dim;
  }
  if (c.inputs.size() < 2 || size.empty()) return {};
  double all = 2.0;
  for (const auto& [letter, n] : size) all *= n;
  return product(c, all, {0, 1});
}

/// cuDNN's recurrent layers: every weight meets every position of the sequence once.
Flops recurrent(const OpCall& c) {
  if (c.inputs.empty() || c.inputs[0].sizes.size() < 2) return {};
  const double positions = static_cast<double>(c.inputs[0].elements()) / std::max(1.0, last(c.inputs[0]));
  double weights = 0;
  bool wanted = false;
  for (std::size_t i = 1; i < c.inputs.size(); ++i)
    if (c.inputs[i].sizes.size() == 2) {
      weights += static_cast<double>(c.inputs[i].elements());
      wanted = wanted || c.inputs[i].wants_grad;
    }
  const double forward = 2.0 * positions * weights;
  return {forward, wanted ? 2 * forward : 0};
}

Flops tensordot(const OpCall& c) {
  if (c.inputs.size() < 2 || c.outputs.empty()) return {};
  const double in = static_cast<double>(c.inputs[0].elements()) * static_cast<double>(c.inputs[1].elements());
  const double out = static_cast<double>(std::max<std::int64_t>(1, c.outputs[0].elements()));
  // a [i, k] and b [k, j] have |a||b| / |out| = k^2.
  return product(c, 2.0 * out * std::sqrt(in / out), {0, 1});
}

/// Of a layer whose operands are not all there: results times the length of the first operand's rows.
Flops column_linear(const OpCall& c) {
  if (c.outputs.empty() || c.inputs.size() < 2) return {};
  return product(c, 2.0 * static_cast<double>(c.outputs[0].elements()) * last(c.inputs[0]), {0, 1});
}

Flops addbmm(const OpCall& c) {
  if (c.inputs.size() != 3) return {};
  return product(c, 2.0 * static_cast<double>(c.inputs[1].elements()) * last(c.inputs[2]), {1, 2});
}

Flops first_product(const OpCall& c) { return matrix_product(c, 0, 1); }
Flops added_product(const OpCall& c) { return matrix_product(c, 1, 2); }
Flops plain_convolution(const OpCall& c) { return convolution(c, false); }
Flops transposed_convolution(const OpCall& c) { return convolution(c, true); }
Flops told_convolution(const OpCall& c) { return convolution(c, c.transposed); }

struct CostRow {
  std::string_view op;
  Flops (*formula)(const OpCall&);
  bool prefix = false;  ///< also ops whose names go on
};

/// The first row that applies counts.
const CostRow cost_rows[] = {
    {"aten::linear", linear},
    {"transformer_engine::linear", linear},
    {"memplan::column_linear", column_linear},
    {"transformer_engine::column_linear", column_linear},
    {"bitsandbytes::linear_4bit", column_linear, true},
    {"aten::mm", first_product},
    {"aten::bmm", first_product},
    {"aten::matmul", first_product},
    {"aten::mv", first_product},
    {"aten::dot", first_product},
    {"aten::addmm", added_product},
    {"aten::baddbmm", added_product},
    {"aten::addmv", added_product},
    {"aten::addbmm", addbmm},
    {"aten::conv1d", plain_convolution, true},
    {"aten::conv2d", plain_convolution, true},
    {"aten::conv3d", plain_convolution, true},
    {"aten::conv_transpose", transposed_convolution, true},
    {"aten::convolution", told_convolution},
    {"aten::_convolution", told_convolution},
    {"aten::cudnn_convolution", told_convolution},
    {"aten::scaled_dot_product_attention", attention},
    {"aten::einsum", einsum},
    {"aten::tensordot", tensordot},
    {"aten::lstm", recurrent, true},
    {"aten::gru", recurrent, true},
    {"aten::rnn_", recurrent, true},
};

/// Reads only what it returns.
bool is_gather(std::string_view op) {
  return begins(op, "aten::embedding") || begins(op, "aten::index_select") || begins(op, "aten::gather") ||
         begins(op, "aten::index.") || begins(op, "memplan::index");
}

}  // namespace

std::int64_t Operand::elements() const {
  std::int64_t n = 1;
  for (std::int64_t s : sizes) n *= s;
  return n;
}

double Operand::bytes() const { return static_cast<double>(bytes_of(dtype, elements()).count); }

Flops flops_of(const OpCall& c) {
  for (const CostRow& row : cost_rows)
    if (row.prefix ? begins(c.op, row.op) : c.op == row.op) return row.formula(c);
  return {};
}

double bytes_touched(const OpCall& c) {
  double bytes = 0;
  for (const Operand& t : c.inputs) bytes += t.bytes();
  for (const Operand& t : c.outputs) bytes += t.bytes();
  return bytes;
}

bool is_in_place(std::string_view op) {
  const std::string_view name = op.substr(0, op.find('.'));
  return !name.empty() && name.back() == '_' && (name.size() < 2 || name[name.size() - 2] != '_');
}

Traffic traffic_of(const OpCall& c) {
  double in = 0, out = 0, wanted = 0;
  for (const Operand& t : c.inputs) {
    in += t.bytes();
    if (t.wants_grad) wanted += t.bytes();
  }
  for (const Operand& t : c.outputs) out += t.bytes();
  Traffic t;
  if (is_gather(c.op)) {
    t.forward = 2 * out;
    // The gradient of the table is filled with zeros and then added to.
    t.backward = wanted > 0 ? wanted + 2 * out : 0;
    return t;
  }
  t.forward = in + out;
  if (c.op == "aten::scaled_dot_product_attention" && c.scores_in_memory && c.inputs.size() >= 3) {
    const Operand &q = c.inputs[0], &k = c.inputs[1];
    const double scores = static_cast<double>(q.elements()) / std::max(1.0, size_at(q, 1)) * size_at(k, 2) * q.bytes() /
                          static_cast<double>(std::max<std::int64_t>(1, q.elements()));
    t.forward += 4 * scores;  // written by the product, read and written by the softmax, read by the second product
    t.backward += wanted > 0 ? 8 * scores : 0;
  }
  // The gradient comes in, the saved operands are read again, gradients go out.
  if (wanted > 0) t.backward += out + in + wanted;
  return t;
}

}  // namespace memplan
