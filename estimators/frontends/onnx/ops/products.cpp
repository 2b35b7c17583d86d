// Matrix products.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "estimators/frontends/onnx/table.h"

namespace memplan::onnx_format {

namespace {

void infer_matmul(const At& at, std::vector<Inferred>& out) {
  out[0].dtype = at.in(0).dtype;
  if (!at.sizes(0) || !at.sizes(1)) return;
  Sizes a = *at.sizes(0), b = *at.sizes(1);
  if (a.empty() || b.empty()) fail_input("a MatMul of a scalar", at.node.name, "the file is damaged");
  const bool row = a.size() == 1, column = b.size() == 1;
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  if (a.back() != b[b.size() - 2])
    fail_input("a MatMul of matrices that do not fit: node '" + at.node.name + "'", at.node.name,
               "the dimensions given do not fit this model, or the file is damaged");
  const std::int64_t m = a[a.size() - 2], n = b.back();
  a.resize(a.size() - 2), b.resize(b.size() - 2);
  Sizes sizes = broadcast(a, b, at.node);
  if (!row) sizes.push_back(m);
  if (!column) sizes.push_back(n);
  out[0].sizes = std::move(sizes);
}

/// A stored matrix that a tool transposed when it wrote the file: the second operand of nn.Linear's product.
bool is_linear_weight(const At& at, Emit& e, std::size_t input) {
  const auto* sizes = at.has(input) && at.sizes(input) ? &*at.sizes(input) : nullptr;
  if (!sizes || sizes->size() != 2) return false;
  const ValueId v = e.tensor(at.id(input));
  const TapeValue& t = e.tape.values[static_cast<std::size_t>(v.index)];
  return t.kind == ValueKind::parameter && e.values.is_transposed(at.id(input));
}

bool lower_matmul(const At& at, Emit& e) {
  if (is_linear_weight(at, e, 1))
    e.call_for(at, "aten::linear", {{e.tensor(at.id(0))}, {e.tensor(at.id(1))}});
  else
    e.call_for(at, "aten::matmul", {{e.tensor(at.id(0))}, {e.tensor(at.id(1))}});
  return true;
}

void infer_gemm(const At& at, std::vector<Inferred>& out) {
  out[0].dtype = at.in(0).dtype;
  if (!at.sizes(0) || !at.sizes(1)) return;
  const Sizes &a = *at.sizes(0), &b = *at.sizes(1);
  if (a.size() != 2 || b.size() != 2)
    fail_input("a Gemm of tensors that are no matrices", at.node.name, "the file is damaged");
  const bool ta = at.integer("transA", 0) != 0, tb = at.integer("transB", 0) != 0;
  if (a[ta ? 0 : 1] != b[tb ? 1 : 0])
    fail_input("a Gemm of matrices that do not fit: node '" + at.node.name + "'", at.node.name,
               "the dimensions given do not fit this model, or the file is damaged");
  out[0].sizes = Sizes{a[ta ? 1 : 0], b[tb ? 0 : 1]};
}

bool lower_gemm(const At& at, Emit& e) {
  Arg a{e.tensor(at.id(0))}, b{e.tensor(at.id(1))};
  const bool stored = e.inferred.graph().initializers.count(at.id(1)) > 0;
  const bool bias = at.has(2) && at.real("beta", 1) != 0;
  const bool plain = at.real("alpha", 1) == 1 && (!bias || at.real("beta", 1) == 1);
  if (at.integer("transA", 0)) a = {e.call("aten::t", {a})};
  const bool swapped = e.values.is_transposed(at.id(1));
  if (stored && plain && (at.integer("transB", 0) != 0) != swapped) {
    if (bias)
      e.call_for(at, "aten::linear", {a, b, {e.tensor(at.id(2))}});
    else
      e.call_for(at, "aten::linear", {a, b});
    return true;
  }
  if ((at.integer("transB", 0) != 0) != swapped) b = {e.call("aten::t", {b})};
  if (bias)
    e.call_for(at, "aten::addmm", {{e.tensor(at.id(2))}, a, b});
  else
    e.call_for(at, "aten::mm", {a, b});
  return true;
}

/// "bij,bjk->bik" -> operands and result without spaces; none for forms with an ellipsis.
struct Equation {
  std::vector<std::string> operands;
  std::string result;
};

std::optional<Equation> equation_of(const At& at) {
  std::string text = at.text("equation", "");
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  if (text.empty() || text.find('.') != std::string::npos) return std::nullopt;
  Equation out;
  const std::size_t arrow = text.find("->");
  std::string left = text.substr(0, arrow);
  for (std::size_t at_comma = left.find(','); at_comma != std::string::npos; at_comma = left.find(',')) {
    out.operands.push_back(left.substr(0, at_comma));
    left = left.substr(at_comma + 1);
  }
  out.operands.push_back(left);
  if (arrow != std::string::npos) {
    out.result = text.substr(arrow + 2);
    return out;
  }
  std::map<char, int> seen;
  for (const std::string& o : out.operands)
    for (char c : o) ++seen[c];
  for (const auto& [c, n] : seen)
    if (n == 1) out.result += c;
  return out;
}

void infer_einsum(const At& at, std::vector<Inferred>& out) {
  out[0].dtype = at.in(0).dtype;
  const auto equation = equation_of(at);
  if (!equation || equation->operands.size() != at.node.inputs.size()) return;
  std::map<char, std::int64_t> size;
  for (std::size_t i = 0; i < equation->operands.size(); ++i) {
    if (!at.sizes(i) || at.sizes(i)->size() != equation->operands[i].size()) return;
    for (std::size_t d = 0; d < equation->operands[i].size(); ++d) size[equation->operands[i][d]] = (*at.sizes(i))[d];
  }
  Sizes sizes;
  for (char c : equation->result) {
    if (!size.count(c)) return;
    sizes.push_back(size[c]);
  }
  out[0].sizes = std::move(sizes);
}

/// Repeated labels within one operand are not known.
bool lower_einsum(const At& at, Emit& e) {
  const auto equation = equation_of(at);
  if (!equation || !e.inferred[at.node.outputs[0]].sizes) return false;
  Arg::List operands;
  for (std::size_t i = 0; i < equation->operands.size(); ++i) {
    const std::string& labels = equation->operands[i];
    if (std::set<char>(labels.begin(), labels.end()).size() != labels.size()) return false;
    operands.push_back({e.tensor(at.id(i))});
  }
  std::string text = fmt::format("{}->{}", fmt::join(equation->operands, ","), equation->result);
  e.call_for(at, "aten::einsum", {{std::move(text)}, {std::move(operands)}});
  return true;
}

/// com.microsoft::FusedMatMul: a MatMul whose operands may be transposed, scaled by alpha.
void infer_fused_matmul(const At& at, std::vector<Inferred>& out) {
  out[0].dtype = at.in(0).dtype;
  if (!at.sizes(0) || !at.sizes(1) || at.sizes(0)->size() < 2 || at.sizes(1)->size() < 2) return;
  Sizes a = *at.sizes(0), b = *at.sizes(1);
  if (at.integer("transA", 0) != 0) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (at.integer("transB", 0) != 0) std::swap(b[b.size() - 1], b[b.size() - 2]);
  if (a.back() != b[b.size() - 2])
    fail_input("a FusedMatMul of matrices that do not fit: node '" + at.node.name + "'", at.node.name,
               "the dimensions given do not fit this model, or the file is damaged");
  const std::int64_t m = a[a.size() - 2], n = b.back();
  a.resize(a.size() - 2), b.resize(b.size() - 2);
  Sizes sizes = broadcast(a, b, at.node);
  sizes.push_back(m);
  sizes.push_back(n);
  out[0].sizes = std::move(sizes);
}

constexpr OpRow rows[] = {
    {"MatMul", infer_matmul, lower_matmul},
    {"com.microsoft::FusedMatMul", infer_fused_matmul},
    {"Gemm", infer_gemm, lower_gemm},
    {"Einsum", infer_einsum, lower_einsum},
};

}  // namespace

Rows product_rows() { return {rows, std::size(rows)}; }

}  // namespace memplan::onnx_format
