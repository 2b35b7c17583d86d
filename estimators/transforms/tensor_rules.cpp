#include "estimators/transforms/tensor_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "estimators/base/error.h"
#include "estimators/setup/field.h"
#include "estimators/tape/uses.h"

namespace memplan {

const Dims& CutCall::shape(ValueId id) const {
  static const Dims none{};
  const auto& s = shapes[static_cast<std::size_t>(id.index)];
  return s ? *s : none;
}

bool CutCall::is_parameter(ValueId id) const {
  return id.valid() && values[static_cast<std::size_t>(id.index)].kind == ValueKind::parameter;
}

ValueId CutCall::argument(std::size_t i) const {
  if (i >= call.args.size()) return {};
  const auto* id = std::get_if<ValueId>(&call.args[i].value);
  return id ? *id : ValueId{};
}

std::int64_t CutCall::number(std::size_t i, std::int64_t otherwise) const {
  if (i >= call.args.size()) return otherwise;
  const auto* n = std::get_if<std::int64_t>(&call.args[i].value);
  return n ? *n : otherwise;
}

Layout CutCall::merged() const {
  Layout all;
  for_each_value(call, [&](ValueId id) {
    const Layout& l = layout(id);
    if (l.whole()) return;
    all.dim = std::max(all.dim, l.dim);
    all.sequence = all.sequence || l.sequence;
    all.origins.insert(l.origins.begin(), l.origins.end());
  });
  return all;
}

namespace {

using CutRule = CutOutcome (*)(CutCall&);

int normal(std::int64_t dim, int rank) { return static_cast<int>(dim < 0 ? dim + rank : dim); }

/// A call that cannot work on its share of what lies as `l`.
CutOutcome refused(const Layout& l) {
  if (l.sequence) return NeedsWhole{};
  return Conflict{l.origins};
}

/// The result is a number: the size of a dimension of the whole value.
CutOutcome size_rule(CutCall&) { return Shared{}; }

CutOutcome attention_rule(CutCall& c) {
  for (std::size_t i = 0; i < 3; ++i) {
    const Layout& l = c.layout(c.argument(i));
    if (l.sequence) return NeedsWhole{};
    if (l.whole() || l.dim != 1) return Conflict{c.merged().origins};
  }
  Layout all = c.merged();
  if (const ValueId mask = c.argument(3); mask.valid()) {
    const Dims& m = c.shape(mask);
    if (m.size() == 4 && m[1] > 1 && c.layout(mask).whole()) return Conflict{all.origins};
  }
  all.dim = 1;
  return Shared{std::move(all), {}};
}

/// Arguments line up at the last dimension; parameters and whole tensors of full size along the cut are cut as well.
CutOutcome elementwise_rule(CutCall& c) {
  const int rank = c.shape(c.call.outputs[0]).size();
  Shared out{c.merged(), {}};
  int dim = -1;
  bool ok = true;
  for_each_value(c.call, [&](ValueId id) {
    const Layout& l = c.layout(id);
    if (l.whole()) return;
    const int here = l.dim + rank - c.shape(id).size();
    if (dim >= 0 && dim != here) ok = false;
    dim = here;
  });
  for_each_value(c.call, [&](ValueId id) {
    if (!c.layout(id).whole()) return;
    const Dims& s = c.shape(id);
    const int d = dim - (rank - s.size());
    if (d < 0 || s.size() == 0 || s[d] == 1) return;
    if (c.is_parameter(id) && !out.results.sequence)
      out.parameters.emplace_back(id, d);
    else
      ok = false;
  });
  if (!ok) return refused(out.results);
  out.results.dim = dim;
  return out;
}

/// The dimension of `out` that holds the cut dimension of `in`, as its outermost factor; -1 where none does.
int mapped(const Dims& in, const Dims& out, int dim, std::int64_t ranks) {
  std::int64_t before = 1;
  for (int i = 0; i < dim; ++i) before *= in[i];
  std::int64_t prefix = 1;
  for (int j = 0; j < out.size(); ++j) {
    if (prefix == before && out[j] > 1) {
      if (out[j] % ranks == 0) return j;
      // Queries, keys and values in one layer: the ranks share the heads of each of the three.
      if (j + 1 < out.size() && out[j] < in[dim] && out[j] <= 4 && out[j + 1] % ranks == 0) return j + 1;
      return -1;
    }
    prefix *= out[j];
  }
  return -1;
}

/// TensorStyle::sequence_first: tokens stay apart where batch and sequence become one dimension, or two again.
int mapped_tokens(const CutCall& c, const Dims& in, const Dims& out, const Layout& l) {
  if (!c.style.sequence_first || !l.sequence) return -1;
  if (l.dim == 1 && in.size() == 3 && out.size() == 2 && out[0] == in[0] * in[1]) return 0;
  if (l.dim == 0 && in.size() == 2 && out.size() == 3 && in[0] == out[0] * out[1] && out[1] % c.ranks == 0) return 1;
  return -1;
}

/// One of the sizes that a view is asked for.
void divide(const CutCall& c, Arg& size, std::int64_t full) {
  if (auto* n = std::get_if<std::int64_t>(&size.value); n && *n == full) *n /= c.ranks;
  // The length of the whole sequence, asked of the ids.
  if (c.style.sequence_first && std::holds_alternative<ValueId>(size.value)) size = {full / c.ranks};
}

CutOutcome view_rule(CutCall& c) {
  const ValueId x = c.argument(0), out = c.call.outputs[0];
  const Layout& l = c.layout(x);
  int to = mapped_tokens(c, c.shape(x), c.shape(out), l);
  if (to < 0) to = mapped(c.shape(x), c.shape(out), l.dim, c.ranks);
  if (to < 0) {
    const Dims& o = c.shape(out);
    if (!l.sequence && o.size() > c.shape(x).size())
      require_divisible(o[o.size() - 2], "attention heads", c.ranks, c.place);
    return refused(l);
  }
  if (c.call.args.size() > 1)
    if (auto* sizes = std::get_if<Arg::List>(&c.call.args[1].value))
      divide(c, (*sizes)[static_cast<std::size_t>(to)], c.shape(out)[to]);
  return Shared{{to, l.sequence, l.origins}, {}};
}

CutOutcome transpose_rule(CutCall& c) {
  Layout l = c.layout(c.argument(0));
  const int rank = c.shape(c.argument(0)).size(), a = normal(c.number(1, 0), rank), b = normal(c.number(2, 1), rank);
  l.dim = l.dim == a ? b : l.dim == b ? a : l.dim;
  return Shared{std::move(l), {}};
}

CutOutcome permute_rule(CutCall& c) {
  const Layout& in = c.layout(c.argument(0));
  Layout l = in;
  const int rank = c.shape(c.argument(0)).size();
  const auto& order = std::get<Arg::List>(c.call.args[1].value);
  for (std::size_t i = 0; i < order.size(); ++i)
    if (normal(std::get<std::int64_t>(order[i].value), rank) == in.dim) l.dim = static_cast<int>(i);
  return Shared{std::move(l), {}};
}

CutOutcome unsqueeze_rule(CutCall& c) {
  Layout l = c.layout(c.argument(0));
  if (normal(c.number(1, 0), c.shape(c.argument(0)).size() + 1) <= l.dim) ++l.dim;
  return Shared{std::move(l), {}};
}

/// squeeze and select: one dimension less.
CutOutcome drop_rule(CutCall& c) {
  Layout l = c.layout(c.argument(0));
  const int d = normal(c.number(1, 0), c.shape(c.argument(0)).size());
  if (d == l.dim) return refused(l);
  if (d < l.dim) --l.dim;
  return Shared{std::move(l), {}};
}

CutOutcome expand_rule(CutCall& c) {
  Layout l = c.layout(c.argument(0));
  const Dims& out = c.shape(c.call.outputs[0]);
  l.dim += out.size() - c.shape(c.argument(0)).size();
  if (auto* sizes = std::get_if<Arg::List>(&c.call.args[1].value))
    divide(c, (*sizes)[static_cast<std::size_t>(l.dim)], out[l.dim]);
  return Shared{std::move(l), {}};
}

/// All pieces are cut alike, along another dimension than the one at which they are joined.
CutOutcome cat_rule(CutCall& c) {
  Layout all = c.merged();
  const auto* list = std::get_if<Arg::List>(&c.call.args[0].value);
  bool ok = list != nullptr;
  if (list)
    for (const Arg& a : *list) {
      const auto* id = std::get_if<ValueId>(&a.value);
      ok = ok && id && c.layout(*id).dim == all.dim;
    }
  if (!ok || normal(c.number(1, 0), c.shape(c.call.outputs[0]).size()) == all.dim) return refused(all);
  return Shared{std::move(all), {}};
}

CutOutcome stack_rule(CutCall& c) { return refused(c.merged()); }

CutOutcome unbind_rule(CutCall& c) {
  Layout l = c.layout(c.argument(0));
  const int dim = normal(c.number(1, 0), c.shape(c.argument(0)).size());
  if (dim == l.dim) return Conflict{l.origins};
  if (dim < l.dim) --l.dim;
  return Shared{std::move(l), {}};
}

/// False where the ranks do not divide the size, or it is no number.
bool divide_exactly(const CutCall& c, Arg& size) {
  auto* n = std::get_if<std::int64_t>(&size.value);
  if (!n) return false;
  if (*n == INT64_MAX) return true;
  if (*n % c.ranks != 0) return false;
  *n /= c.ranks;
  return true;
}

/// A part of the cut dimension: queries, keys and values of one layer, of which each rank holds its heads of all three.
/// `bounds` divides the arguments that say which part.
template <class Bounds>
CutOutcome part_of(CutCall& c, std::size_t dim_argument, bool everything, Bounds bounds) {
  const Layout& l = c.layout(c.argument(0));
  if (normal(c.number(dim_argument, 0), c.shape(c.argument(0)).size()) == l.dim) {
    if (l.sequence && !everything) return NeedsWhole{};
    if (!bounds()) return Conflict{l.origins};
  }
  return Shared{l, {}};
}

CutOutcome split_rule(CutCall& c) {
  return part_of(c, 2, false, [&] {
    auto* list = std::get_if<Arg::List>(&c.call.args[1].value);
    if (!list) return divide_exactly(c, c.call.args[1]);
    return std::all_of(list->begin(), list->end(), [&](Arg& a) { return divide_exactly(c, a); });
  });
}

CutOutcome chunk_rule(CutCall& c) {
  return part_of(c, 2, false, [] { return true; });
}

CutOutcome slice_rule(CutCall& c) {
  const bool everything =
      base_name(c.call.op) == "slice" && c.shape(c.call.outputs[0]) == c.shape(c.argument(0));  // x[:, 0:]
  return part_of(c, 1, everything, [&] {
    return divide_exactly(c, c.call.args[2]) && (c.call.args.size() <= 3 || divide_exactly(c, c.call.args[3]));
  });
}

/// Ops that work along some dimensions leave the others alone: `untouched` says whether the cut one is of these.
CutOutcome beside(CutCall& c, Layout all, bool untouched) {
  const Dims &in = c.shape(c.argument(0)), &out = c.shape(c.call.outputs[0]);
  if (!untouched || all.dim >= out.size() || out[all.dim] != in[all.dim]) return refused(all);
  return Shared{std::move(all), {}};
}

CutOutcome product_rule(CutCall& c) {
  const ValueId x = c.argument(0), y = c.argument(1);
  const Layout all = c.merged();
  const int rank = c.shape(x).size();
  return beside(c, all,
                y.valid() && c.layout(x).dim == c.layout(y).dim && all.dim < rank - 2 && c.shape(y).size() == rank);
}

CutOutcome norm_rule(CutCall& c) {
  const Layout all = c.merged();
  const auto* normalized = std::get_if<Arg::List>(&c.call.args[1].value);
  return beside(c, all,
                all.dim < c.shape(c.argument(0)).size() - static_cast<int>(normalized ? normalized->size() : 1));
}

CutOutcome reduction_rule(CutCall& c) {
  const Layout all = c.merged();
  const int rank = c.shape(c.argument(0)).size();
  const auto touches = [&](const Arg& a) {
    const auto* n = std::get_if<std::int64_t>(&a.value);
    return n && normal(*n, rank) == all.dim;
  };
  bool untouched = c.call.args.size() > 1;
  if (untouched) {
    const auto* list = std::get_if<Arg::List>(&c.call.args[1].value);
    untouched = list ? std::none_of(list->begin(), list->end(), touches) : !touches(c.call.args[1]);
  }
  return beside(c, all, untouched);
}

struct RuleRow {
  CutRule rule;
  std::string_view ops;  ///< base names, apart by spaces
};

const RuleRow rows[] = {
    {size_rule, "sym_size"},
    {attention_rule, "scaled_dot_product_attention"},
    // The result has the shape that the operands have together, element by element.
    {elementwise_rule,
     "contiguous clone to _to_copy detach dropout relu relu_ gelu silu silu_ tanh sigmoid neg exp pow "
     "rsqrt sqrt abs add sub mul div add_ mul_ where masked_fill type_as to_default_dtype maximum minimum "
     "hardswish leaky_relu elu softplus lt gt le ge eq ne zeros_like ones_like empty_like full_like cos "
     "sin reciprocal square rsub alias native_dropout mish log clamp"},
    {view_rule, "view reshape _unsafe_view flatten unflatten view_as"},
    {transpose_rule, "transpose"},
    {permute_rule, "permute"},
    {unsqueeze_rule, "unsqueeze"},
    {drop_rule, "squeeze select"},
    {expand_rule, "expand"},
    {cat_rule, "cat"},
    {stack_rule, "stack"},
    {unbind_rule, "unbind"},
    {split_rule, "split split_with_sizes"},
    {chunk_rule, "chunk"},
    {slice_rule, "slice index_slice narrow"},
    {product_rule, "matmul bmm"},
    {norm_rule, "layer_norm rms_norm _fused_rms_norm"},
    {reduction_rule, "softmax _softmax _safe_softmax mean sum var repeat_interleave"},
};

}  // namespace

CutOutcome cut_outcome(CutCall& call) {
  static const std::unordered_map<std::string_view, CutRule> table = [] {
    std::unordered_map<std::string_view, CutRule> all;
    for (const RuleRow& row : rows)
      for (std::string_view rest = row.ops; !rest.empty();) {
        const std::size_t end = std::min(rest.find(' '), rest.size());
        all.emplace(rest.substr(0, end), row.rule);
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
    return all;
  }();
  const auto it = table.find(base_name(call.call.op));
  return it == table.end() ? NeedsWhole{} : it->second(call);
}

std::string_view base_name(std::string_view op) {
  op = op.substr(op.find("::") + 2);
  return op.substr(0, op.find('.'));
}

void require_divisible(std::int64_t size, const char* what, std::int64_t ranks, const std::string& place) {
  if (size % ranks != 0)
    fail(ErrorKind::usage,
         fmt::format("{} tensor-parallel ranks do not divide the {} {} of {}", ranks, size, what, place),
         setting(Field::tensor_parallel), fmt::format("use a divisor of {}", size));
}

void check_heads(const Tape& tape, const std::vector<std::optional<Dims>>& shapes, std::int64_t ranks) {
  for (const Call& call : tape.calls) {
    if (base_name(call.op) != "scaled_dot_product_attention") continue;
    const char* names[] = {"attention heads", "key/value heads"};
    for (std::size_t i = 0; i < 2 && i < call.args.size(); ++i) {
      const auto* id = std::get_if<ValueId>(&call.args[i].value);
      if (!id || !shapes[static_cast<std::size_t>(id->index)]) continue;
      const Dims& s = *shapes[static_cast<std::size_t>(id->index)];
      if (s.size() == 4 && s[1] % ranks != 0)
        fail(ErrorKind::usage,
             fmt::format(
                 "{} tensor-parallel ranks do not divide the {} {} of {}", ranks, s[1], names[i],
                 call.scope < 0 ? std::string("the model") : tape.scopes[static_cast<std::size_t>(call.scope)].path),
             setting(Field::tensor_parallel), fmt::format("use a divisor of {}", s[1]));
    }
  }
}

}  // namespace memplan
