// Ops that cut tensors into parts and join them: Slice, Split, Concat.
#include <algorithm>
#include <limits>
#include <numeric>

#include "estimators/frontends/onnx/ops/common.h"
#include "estimators/frontends/onnx/ops/contents.h"
#include "estimators/frontends/onnx/table.h"
#include "estimators/frontends/onnx/tensors.h"

namespace memplan::onnx_format {

namespace {

struct Cut {
  std::size_t axis = 0;
  std::int64_t start = 0, end = 0, step = 1, count = 0;
};

/// None where the bounds are not known numbers.
std::optional<std::vector<Cut>> cuts(const At& at) {
  if (!at.sizes(0)) return std::nullopt;
  const auto starts = at.list("starts", 1), ends = at.list("ends", 2);
  auto axes = at.list("axes", 3);
  const auto steps = at.integers(4);
  if (!starts || !ends || starts->size() != ends->size() || (at.has(3) && !axes) || (at.has(4) && !steps))
    return std::nullopt;
  if (!axes) {
    axes.emplace(starts->size());
    std::iota(axes->begin(), axes->end(), 0);
  }
  if (axes->size() != starts->size() || (steps && steps->size() != starts->size()))
    fail_input("a Slice has lists of different lengths", at.node.name, "the file is damaged");
  std::vector<Cut> out;
  for (std::size_t i = 0; i < starts->size(); ++i) {
    Cut c;
    c.axis = axis_of((*axes)[i], at.sizes(0)->size(), at.node);
    const std::int64_t size = (*at.sizes(0))[c.axis];
    c.step = steps ? (*steps)[i] : 1;
    if (c.step == 0 || c.step == std::numeric_limits<std::int64_t>::min())
      fail_input("a Slice has the step 0", at.node.name, "the file is damaged");
    auto clamp = [&](std::int64_t v, std::int64_t low, std::int64_t high) {
      return std::clamp(v < 0 ? (v < -size ? low : v + size) : v, low, high);
    };
    if (c.step > 0) {
      c.start = clamp((*starts)[i], 0, size);
      c.end = clamp((*ends)[i], 0, size);
      c.count = c.end > c.start ? (c.end - c.start - 1) / c.step + 1 : 0;
    } else {
      c.start = clamp((*starts)[i], -1, size - 1);
      c.end = (*ends)[i] < -size ? -1 : clamp((*ends)[i], -1, size - 1);
      c.count = c.start > c.end ? (c.start - c.end - 1) / -c.step + 1 : 0;
    }
    out.push_back(c);
  }
  return out;
}

void infer_slice(const At& at, std::vector<Inferred>& out) {
  const Inferred& x = at.in(0);
  out[0].dtype = x.dtype;
  const auto all = cuts(at);
  if (!all) return;
  Sizes sizes = *x.sizes;
  for (const Cut& c : *all) sizes[c.axis] = c.count;
  if (x.contents && x.rank() == 1 && all->size() == 1) {
    std::vector<std::size_t> index;
    const Cut& c = all->front();
    for (std::int64_t k = 0; k < c.count; ++k) index.push_back(static_cast<std::size_t>(c.start + k * c.step));
    out[0].contents = pick(*x.contents, index);
  }
  out[0].sizes = std::move(sizes);
}

bool lower_slice(const At& at, Emit& e) {
  const auto all = cuts(at);
  if (!all) return false;
  ValueId x = e.tensor(at.id(0));
  for (const Cut& c : *all) {
    const auto axis = static_cast<std::int64_t>(c.axis);
    if (c.step == 1 && c.count == (*at.sizes(0))[c.axis]) continue;  // x[:] is x
    if (c.step < 0) x = e.call("aten::flip", {{x}, list_of({axis})});
    if (c.step != -1 || c.count != (*at.sizes(0))[c.axis])
      x = e.call("aten::slice.Tensor",
                 {{x},
                  {axis},
                  {c.step > 0 ? c.start : (*at.sizes(0))[c.axis] - 1 - c.start},
                  {c.step > 0 ? c.end : (*at.sizes(0))[c.axis] - 1 - c.end},
                  {std::abs(c.step)}},
                 {}, e.name_of(at.node.outputs[0]));
  }
  e.bind(at.node.outputs[0], x);
  return true;
}

std::optional<Sizes> split_sizes(const At& at) {
  if (!at.sizes(0)) return std::nullopt;
  if (auto given = at.list("split", 1)) return given;
  if (at.has(1)) return std::nullopt;
  const std::int64_t size = (*at.sizes(0))[axis_of(at.integer("axis", 0), at.sizes(0)->size(), at.node)];
  const auto parts = static_cast<std::int64_t>(at.node.outputs.size());
  const std::int64_t each = (size + parts - 1) / parts;
  Sizes out(static_cast<std::size_t>(parts), each);
  out.back() = std::max<std::int64_t>(size - each * (parts - 1), 0);
  return out;
}

void infer_split(const At& at, std::vector<Inferred>& out) {
  const Inferred& x = at.in(0);
  for (Inferred& f : out) f.dtype = x.dtype;
  const auto sizes = split_sizes(at);
  if (!sizes || sizes->size() != out.size()) return;
  const std::size_t axis = axis_of(at.integer("axis", 0), x.rank(), at.node);
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if ((*sizes)[i] < 0) fail_input("a Split has a negative size", at.node.name, "the file is damaged");
    out[i].sizes = *x.sizes;
    (*out[i].sizes)[axis] = (*sizes)[i];
    if (x.contents && x.rank() == 1 && begin + (*sizes)[i] <= static_cast<std::int64_t>(x.contents->size())) {
      std::vector<std::size_t> index(static_cast<std::size_t>((*sizes)[i]));
      std::iota(index.begin(), index.end(), static_cast<std::size_t>(begin));
      out[i].contents = pick(*x.contents, index);
    }
    begin = checked_add(begin, (*sizes)[i]);
  }
}

bool lower_split(const At& at, Emit& e) {
  const auto sizes = split_sizes(at);
  if (!sizes || sizes->empty()) return false;
  const Arg x{e.tensor(at.id(0))}, axis{at.integer("axis", 0)};
  if (sizes->size() == 1) {
    e.bind(at.node.outputs[0], std::get<ValueId>(x.value));
    return true;
  }
  const bool equal =
      std::all_of(sizes->begin(), sizes->end() - 1, [&](std::int64_t s) { return s == sizes->front(); }) &&
      sizes->back() <= sizes->front();
  if (equal && sizes->front() > 0)
    e.call_for(at, "aten::split.Tensor", {x, {sizes->front()}, axis}, {}, at.node.outputs.size());
  else
    e.call_for(at, "aten::split_with_sizes", {x, list_of(*sizes), axis}, {}, at.node.outputs.size());
  return true;
}

void infer_concat(const At& at, std::vector<Inferred>& out) {
  if (!at.has(0)) return;
  out[0].dtype = at.in(0).dtype;
  if (!at.sizes(0)) return;
  Sizes sizes = *at.sizes(0);
  const std::size_t axis = axis_of(at.integer("axis", 1), sizes.size(), at.node);
  Contents all;
  bool known = sizes.size() == 1;
  for (std::size_t i = 0; i < at.node.inputs.size(); ++i) {
    const Inferred& f = at.in(i);
    if (!f.sizes || f.rank() != sizes.size()) return;
    if (i > 0) sizes[axis] = checked_add(sizes[axis], (*f.sizes)[axis]);
    known = known && f.contents && (i == 0 || f.contents->floating == all.floating) &&
            static_cast<std::int64_t>(all.size() + f.contents->size()) <= max_followed;
    if (!known) continue;
    all.floating = f.contents->floating;
    all.integers.insert(all.integers.end(), f.contents->integers.begin(), f.contents->integers.end());
    all.floats.insert(all.floats.end(), f.contents->floats.begin(), f.contents->floats.end());
  }
  out[0].sizes = std::move(sizes);
  if (known) out[0].contents = std::move(all);
}

bool lower_concat(const At& at, Emit& e) {
  Arg::List parts;
  for (GraphValueId id : at.node.inputs) parts.push_back({e.tensor(id)});
  if (parts.size() == 1)
    e.bind(at.node.outputs[0], std::get<ValueId>(parts[0].value));
  else
    e.call_for(at, "aten::cat", {{std::move(parts)}, {at.integer("axis", 1)}});
  return true;
}

constexpr OpRow rows[] = {
    {"Slice", infer_slice, lower_slice, 0, bits({1, 2, 3, 4})},
    {"Split", infer_split, lower_split, 0, bits({1})},
    {"Concat", infer_concat, lower_concat},
};

}  // namespace

Rows slice_rows() { return {rows, std::size(rows)}; }

}  // namespace memplan::onnx_format
