// Ops that read or write elements by index.
#include "estimators/frontends/onnx/ops/common.h"
#include "estimators/frontends/onnx/ops/contents.h"
#include "estimators/frontends/onnx/table.h"

namespace memplan::onnx_format {

namespace {

void infer_gather(const At& at, std::vector<Inferred>& out) {
  const Inferred &x = at.in(0), &index = at.in(1);
  out[0].dtype = x.dtype;
  if (!x.sizes || !index.sizes) return;
  const std::size_t axis = axis_of(at.integer("axis", 0), x.rank(), at.node);
  Sizes sizes(x.sizes->begin(), x.sizes->begin() + static_cast<std::ptrdiff_t>(axis));
  sizes.insert(sizes.end(), index.sizes->begin(), index.sizes->end());
  sizes.insert(sizes.end(), x.sizes->begin() + static_cast<std::ptrdiff_t>(axis) + 1, x.sizes->end());
  if (x.rank() == 1 && x.contents && index.contents && !index.contents->floating) {
    std::vector<std::size_t> from;
    const auto n = static_cast<std::int64_t>(x.contents->size());
    for (std::int64_t i : index.contents->integers) {
      if (i < -n || i >= n)
        fail_input("a Gather reads element " + std::to_string(i) + " of " + std::to_string(n), at.node.name,
                   "the file is damaged");
      from.push_back(static_cast<std::size_t>(i < 0 ? i + n : i));
    }
    out[0].contents = pick(*x.contents, from);
  }
  out[0].sizes = std::move(sizes);
}

bool lower_gather(const At& at, Emit& e) {
  if (!at.sizes(0)) return false;
  const std::size_t rank = at.sizes(0)->size();
  const std::size_t axis = axis_of(at.integer("axis", 0), rank, at.node);
  const Inferred& index = at.in(1);
  const ValueId x = e.tensor(at.id(0));
  if (index.is_one_number() && index.rank() == 0) {
    e.call_for(
        at, "aten::select.int",
        {{x}, {static_cast<std::int64_t>(axis)}, {index.contents->integers.empty() ? 0 : index.contents->integers[0]}});
    return true;
  }
  const Arg which{e.tensor(at.id(1))};
  const bool stored = e.tape.values[static_cast<std::size_t>(x.index)].kind == ValueKind::parameter;
  if (axis == 0 && rank == 2 && stored) {
    e.call_for(at, "aten::embedding", {{x}, which});
  } else if (index.rank() == 1) {
    e.call_for(at, "aten::index_select", {{x}, {static_cast<std::int64_t>(axis)}, which});
  } else {
    Arg::List indices(axis);
    indices.push_back(which);
    e.call_for(at, "aten::index.Tensor", {{x}, {std::move(indices)}});
  }
  return true;
}

void infer_gather_elements(const At& at, std::vector<Inferred>& out) {
  out[0].dtype = at.in(0).dtype;
  out[0].sizes = at.sizes(1);
}

bool lower_gather_elements(const At& at, Emit& e) {
  e.call_for(at, "aten::gather", {{e.tensor(at.id(0))}, {at.integer("axis", 0)}, {e.tensor(at.id(1))}});
  return true;
}

void infer_gather_nd(const At& at, std::vector<Inferred>& out) {
  out[0].dtype = at.in(0).dtype;
  if (!at.sizes(0) || !at.sizes(1) || at.sizes(1)->empty()) return;
  const Sizes &x = *at.sizes(0), &index = *at.sizes(1);
  const auto skip = static_cast<std::size_t>(std::max<std::int64_t>(at.integer("batch_dims", 0), 0)) +
                    static_cast<std::size_t>(std::max<std::int64_t>(index.back(), 0));
  if (skip > x.size()) fail_input("a GatherND has more indices than dimensions", at.node.name, "the file is damaged");
  Sizes sizes(index.begin(), index.end() - 1);
  sizes.insert(sizes.end(), x.begin() + static_cast<std::ptrdiff_t>(skip), x.end());
  out[0].sizes = std::move(sizes);
}

/// x[i, j, …] where the indices come stacked in the last dimension of one tensor.
Arg::List unstacked(const At& at, Emit& e) {
  Arg::List indices(static_cast<std::size_t>(std::max<std::int64_t>(at.integer("batch_dims", 0), 0)));
  const ValueId stacked = e.tensor(at.id(1));
  for (std::int64_t i = 0; i < at.sizes(1)->back(); ++i)
    indices.push_back({e.call("aten::select.int", {{stacked}, {std::int64_t{-1}}, {i}})});
  return indices;
}

bool few_indices(const At& at) {
  return at.sizes(0) && at.sizes(1) && !at.sizes(1)->empty() && at.sizes(1)->back() > 0 &&
         at.sizes(1)->back() <= static_cast<std::int64_t>(at.sizes(0)->size());
}

bool lower_gather_nd(const At& at, Emit& e) {
  if (!few_indices(at) || at.integer("batch_dims", 0) != 0) return false;
  e.call_for(at, "aten::index.Tensor", {{e.tensor(at.id(0))}, {unstacked(at, e)}});
  return true;
}

void infer_scatter_nd(const At& at, std::vector<Inferred>& out) {
  infer_same(at, out);
  const Inferred &x = at.in(0), &index = at.in(1), &update = at.in(2);
  if (x.rank() != 1 || !x.contents || !index.contents || !update.contents || x.contents->floating ||
      update.contents->floating || index.contents->size() != update.contents->size())
    return;
  Contents c = *x.contents;
  for (std::size_t i = 0; i < update.contents->size(); ++i) {
    const std::int64_t at_index = index.contents->integers[i], n = static_cast<std::int64_t>(c.size());
    if (at_index < -n || at_index >= n) return;
    c.integers[static_cast<std::size_t>(at_index < 0 ? at_index + n : at_index)] = update.contents->integers[i];
  }
  out[0].contents = std::move(c);
}

bool lower_scatter_nd(const At& at, Emit& e) {
  if (!few_indices(at)) return false;
  e.call_for(at, "aten::index_put",
             {{e.tensor(at.id(0))}, {unstacked(at, e)}, {e.tensor(at.id(2))}, {at.text("reduction", "none") == "add"}});
  return true;
}

bool lower_scatter(const At& at, Emit& e) {
  const std::string reduction = at.text("reduction", "none");
  const Arg x{e.tensor(at.id(0))}, axis{at.integer("axis", 0)}, index{e.tensor(at.id(1))};
  if (reduction == "none" && is_python_number(e.inferred, at.id(2)))
    e.call_for(at, "aten::scatter.value", {x, axis, index, e.operand(at.id(2))});
  else
    e.call_for(at,
               reduction == "none"  ? "aten::scatter.src"
               : reduction == "add" ? "aten::scatter_add"
                                    : "aten::scatter_reduce.two",
               {x, axis, index, {e.tensor(at.id(2))}});
  return true;
}

void infer_one_hot(const At& at, std::vector<Inferred>& out) {
  out[0].dtype = at.in(2).dtype;
  const auto depth = at.number(1);
  if (!depth || !at.sizes(0)) return;
  Sizes sizes = *at.sizes(0);
  const std::size_t axis = axis_of(at.integer("axis", -1), sizes.size() + 1, at.node);
  sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(axis), whole_number(*depth, "a OneHot"));
  out[0].sizes = std::move(sizes);
}

bool lower_one_hot(const At& at, Emit& e) {
  const auto depth = at.number(1);
  if (!depth || !at.sizes(0)) return false;
  Arg y{e.call("aten::one_hot", {{e.tensor(at.id(0))}, {whole_number(*depth, "a OneHot")}})};
  const std::size_t rank = at.sizes(0)->size() + 1, axis = axis_of(at.integer("axis", -1), rank, at.node);
  if (axis + 1 != rank) y = {e.call("aten::movedim.int", {y, {std::int64_t{-1}}, {static_cast<std::int64_t>(axis)}})};
  e.call_for(at, "aten::to.dtype", {y, {at.in(2).dtype.value_or(DType::float32)}});
  return true;
}

void infer_trilu(const At& at, std::vector<Inferred>& out) {
  infer_same(at, out);
  const Inferred& x = at.in(0);
  if (!x.contents || x.rank() != 2 || (at.has(1) && !at.number(1))) return;
  const auto k = whole_number(at.number(1).value_or(0), "a Trilu");
  const bool upper = at.integer("upper", 1) != 0;
  Contents c = *x.contents;
  const std::int64_t n = (*x.sizes)[1];
  for (std::size_t i = 0; i < c.size(); ++i) {
    const std::int64_t row = static_cast<std::int64_t>(i) / n, column = static_cast<std::int64_t>(i) % n;
    if (upper ? column - row >= k : column - row <= k) continue;
    c.floating ? c.floats[i] = 0 : c.integers[i] = 0;
  }
  out[0].contents = std::move(c);
}

bool lower_trilu(const At& at, Emit& e) {
  e.call_for(at, at.integer("upper", 1) ? "aten::triu" : "aten::tril",
             {{e.tensor(at.id(0))}, {whole_number(at.number(1).value_or(0), "a Trilu")}});
  return true;
}

constexpr OpRow rows[] = {
    {"Gather", infer_gather, lower_gather, 0, bits({1})},
    {"GatherElements", infer_gather_elements, lower_gather_elements},
    {"GatherND", infer_gather_nd, lower_gather_nd},
    {"ScatterND", infer_scatter_nd, lower_scatter_nd},
    {"ScatterElements", infer_same, lower_scatter, bits({2})},
    {"Scatter", infer_same, lower_scatter, bits({2})},
    {"OneHot", infer_one_hot, lower_one_hot, 0, bits({1, 2})},
    {"Trilu", infer_trilu, lower_trilu, 0, bits({1})},
};

}  // namespace

Rows indexing_rows() { return {rows, std::size(rows)}; }

}  // namespace memplan::onnx_format
