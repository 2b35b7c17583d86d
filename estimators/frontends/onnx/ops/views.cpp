// Ops that move elements around, most of them without a copy in PyTorch.
#include <algorithm>
#include <limits>
#include <numeric>

#include "estimators/frontends/onnx/ops/contents.h"
#include "estimators/frontends/onnx/table.h"

namespace memplan::onnx_format {

namespace {

bool sizes_known(const At& at, Emit& e) { return e.inferred[at.node.outputs[0]].sizes.has_value(); }
const Sizes& out_sizes(const At& at, Emit& e) { return *e.inferred[at.node.outputs[0]].sizes; }

// --- Reshape, Flatten ------------------------------------------------------------------------------------------------

void infer_reshape(const At& at, std::vector<Inferred>& out) {
  const Inferred& x = at.in(0);
  out[0].dtype = x.dtype;
  const auto asked = at.list("shape", 1);  // an attribute before opset 5
  if (!asked || !x.sizes) return;
  const bool zero_is_zero = at.integer("allowzero", 0) != 0;
  Sizes sizes = *asked;
  std::int64_t known = 1;
  std::size_t open = sizes.size();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0 && !zero_is_zero) {
      if (i >= x.sizes->size())
        fail_input("a Reshape copies a dimension that its input does not have", at.node.name, "the file is damaged");
      sizes[i] = (*x.sizes)[i];
    }
    if (sizes[i] == -1 && open == sizes.size())
      open = i;
    else if (sizes[i] < 0)
      fail_input("a Reshape has two open or negative dimensions", at.node.name, "the file is damaged");
    else
      known = checked_mul(known, sizes[i]);
  }
  const std::int64_t count = count_of(*x.sizes);
  if (open < sizes.size()) sizes[open] = known == 0 ? 0 : count / known;
  if (count_of(sizes) != count)
    fail_input("a Reshape changes the number of elements: node '" + at.node.name + "'", at.node.name,
               "the dimensions given do not fit sizes that the file fixes; export with dynamic dimensions, or leave "
               "them as exported");
  out[0].sizes = std::move(sizes);
  out[0].contents = x.contents;
}

bool lower_reshape(const At& at, Emit& e) {
  if (!sizes_known(at, e)) return false;
  e.call_for(at, "aten::reshape", {{e.tensor(at.id(0))}, list_of(out_sizes(at, e))});
  return true;
}

void infer_flatten(const At& at, std::vector<Inferred>& out) {
  const Inferred& x = at.in(0);
  out[0].dtype = x.dtype;
  if (!x.sizes) return;
  std::int64_t axis = at.integer("axis", 1);
  if (axis < 0) axis += static_cast<std::int64_t>(x.rank());
  if (axis < 0 || axis > static_cast<std::int64_t>(x.rank()))
    fail_input("the axis of a Flatten is out of range", at.node.name, "the file is damaged");
  std::int64_t a = 1, b = 1;
  for (std::size_t i = 0; i < x.rank(); ++i)
    (static_cast<std::int64_t>(i) < axis ? a : b) =
        checked_mul(static_cast<std::int64_t>(i) < axis ? a : b, (*x.sizes)[i]);
  out[0].sizes = Sizes{a, b};
}

// --- Squeeze, Unsqueeze ----------------------------------------------------------------------------------------------

std::optional<Sizes> squeezed_axes(const At& at) {
  if (auto axes = at.list("axes", 1)) return axes;
  if (at.has(1) || !at.sizes(0)) return std::nullopt;
  Sizes all;
  for (std::size_t i = 0; i < at.sizes(0)->size(); ++i)
    if ((*at.sizes(0))[i] == 1) all.push_back(static_cast<std::int64_t>(i));
  return all;
}

void infer_squeeze(const At& at, std::vector<Inferred>& out) {
  const Inferred& x = at.in(0);
  out[0].dtype = x.dtype;
  const auto axes = squeezed_axes(at);
  if (!axes || !x.sizes) return;
  std::vector<bool> drop(x.rank(), false);
  for (std::int64_t a : *axes)
    if (x.rank() > 0) drop[axis_of(a, x.rank(), at.node)] = true;
  Sizes sizes;
  for (std::size_t i = 0; i < x.rank(); ++i)
    if (!drop[i] || (*x.sizes)[i] != 1) sizes.push_back((*x.sizes)[i]);
  out[0].sizes = std::move(sizes);
  out[0].contents = x.contents;
}

bool lower_squeeze(const At& at, Emit& e) {
  const auto axes = squeezed_axes(at);
  if (!axes) return false;
  if (axes->size() == 1)
    e.call_for(at, "aten::squeeze.dim", {{e.tensor(at.id(0))}, {(*axes)[0]}});
  else
    e.call_for(at, "aten::squeeze.dims", {{e.tensor(at.id(0))}, list_of(*axes)});
  return true;
}

/// Axes of an Unsqueeze in the result's numbering, ascending.
std::optional<Sizes> unsqueezed_axes(const At& at) {
  auto axes = at.list("axes", 1);
  if (!axes || !at.sizes(0)) return std::nullopt;
  const std::size_t rank = at.sizes(0)->size() + axes->size();
  for (std::int64_t& a : *axes) a = static_cast<std::int64_t>(axis_of(a, rank, at.node));
  std::sort(axes->begin(), axes->end());
  if (std::adjacent_find(axes->begin(), axes->end()) != axes->end())
    fail_input("an Unsqueeze names an axis twice", at.node.name, "the file is damaged");
  return axes;
}

void infer_unsqueeze(const At& at, std::vector<Inferred>& out) {
  const Inferred& x = at.in(0);
  out[0].dtype = x.dtype;
  const auto axes = unsqueezed_axes(at);
  if (!axes) return;
  Sizes sizes = *x.sizes;
  for (std::int64_t a : *axes) sizes.insert(sizes.begin() + a, 1);
  out[0].sizes = std::move(sizes);
  out[0].contents = x.contents;
}

bool lower_unsqueeze(const At& at, Emit& e) {
  const auto axes = unsqueezed_axes(at);
  if (!axes) return false;
  Arg x{e.tensor(at.id(0))};
  for (std::size_t i = 0; i + 1 < axes->size(); ++i) x = {e.call("aten::unsqueeze", {x, {(*axes)[i]}})};
  if (axes->empty())
    e.bind(at.node.outputs[0], std::get<ValueId>(x.value));
  else
    e.call_for(at, "aten::unsqueeze", {x, {axes->back()}});
  return true;
}

// --- Transpose, Expand, Tile -----------------------------------------------------------------------------------------

Sizes permutation(const At& at, std::size_t rank) {
  if (auto perm = at.list("perm"); perm && perm->size() == rank) {
    std::vector<bool> seen(rank, false);
    for (std::int64_t& p : *perm) {
      const std::size_t a = axis_of(p, rank, at.node);
      if (seen[a]) fail_input("a Transpose names an axis twice", at.node.name, "the file is damaged");
      seen[a] = true;
      p = static_cast<std::int64_t>(a);
    }
    return *perm;
  }
  Sizes reversed(rank);
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return reversed;
}

void infer_transpose(const At& at, std::vector<Inferred>& out) {
  const Inferred& x = at.in(0);
  out[0].dtype = x.dtype;
  if (!x.sizes) return;
  const Sizes perm = permutation(at, x.rank());
  Sizes sizes;
  for (std::int64_t p : perm) sizes.push_back((*x.sizes)[static_cast<std::size_t>(p)]);
  if (x.contents) {
    const Sizes from = strides_of(*x.sizes), to = strides_of(sizes);
    std::vector<std::size_t> index(x.contents->size());
    for (std::size_t k = 0; k < index.size(); ++k) {
      std::size_t rest = k, source = 0;
      for (std::size_t d = 0; d < perm.size(); ++d) {
        source +=
            rest / static_cast<std::size_t>(to[d]) * static_cast<std::size_t>(from[static_cast<std::size_t>(perm[d])]);
        rest %= static_cast<std::size_t>(to[d]);
      }
      index[k] = source;
    }
    out[0].contents = pick(*x.contents, index);
  }
  out[0].sizes = std::move(sizes);
}

bool lower_transpose(const At& at, Emit& e) {
  if (!at.sizes(0) && !at.list("perm")) return false;
  const std::size_t rank = at.sizes(0) ? at.sizes(0)->size() : at.list("perm")->size();
  const Sizes perm = permutation(at, rank);
  Sizes moved;
  for (std::size_t i = 0; i < rank; ++i)
    if (perm[i] != static_cast<std::int64_t>(i)) moved.push_back(static_cast<std::int64_t>(i));
  if (moved.size() == 2)
    e.call_for(at, "aten::transpose.int", {{e.tensor(at.id(0))}, {moved[0]}, {moved[1]}});
  else
    e.call_for(at, "aten::permute", {{e.tensor(at.id(0))}, list_of(perm)});
  return true;
}

void infer_expand(const At& at, std::vector<Inferred>& out) {
  const Inferred& x = at.in(0);
  out[0].dtype = x.dtype;
  const auto asked = at.integers(1);
  if (!asked || !x.sizes) return;
  count_of(*asked);
  out[0].sizes = broadcast(*x.sizes, *asked, at.node);
  if (x.contents && count_of(*out[0].sizes) <= max_followed)
    out[0].contents = pick(*x.contents, broadcast_index(*x.sizes, *out[0].sizes));
}

bool lower_expand(const At& at, Emit& e) {
  if (!sizes_known(at, e)) return false;
  // torch.full((n, m), 1.0) comes as a constant that is expanded; equal ones of the whole file are one initializer.
  const auto& stored = e.inferred.graph().initializers;
  const auto it = stored.find(at.id(0));
  const bool number = it == stored.end() || it->second.sizes.empty();
  if (number && is_python_number(e.inferred, at.id(0))) {
    e.call_for(at, "aten::full", {list_of(out_sizes(at, e)), e.operand(at.id(0))},
               {{"dtype", {at.in(0).dtype.value_or(DType::float32)}}});
    return true;
  }
  e.call_for(at, "aten::expand", {{e.tensor(at.id(0))}, list_of(out_sizes(at, e))});
  return true;
}

void infer_tile(const At& at, std::vector<Inferred>& out) {
  const Inferred& x = at.in(0);
  out[0].dtype = x.dtype;
  const auto repeats = at.integers(1);
  if (!repeats || !x.sizes || repeats->size() != x.rank()) return;
  Sizes sizes = *x.sizes;
  for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = checked_mul(sizes[i], (*repeats)[i]);
  out[0].sizes = std::move(sizes);
}

bool lower_tile(const At& at, Emit& e) {
  const auto repeats = at.integers(1);
  if (!repeats) return false;
  e.call_for(at, "aten::repeat", {{e.tensor(at.id(0))}, list_of(*repeats)});
  return true;
}

constexpr OpRow rows[] = {
    {"Reshape", infer_reshape, lower_reshape, 0, bits({1})},
    {"Flatten", infer_flatten, lower_reshape},
    {"Squeeze", infer_squeeze, lower_squeeze, 0, bits({1})},
    {"Unsqueeze", infer_unsqueeze, lower_unsqueeze, 0, bits({1})},
    {"Transpose", infer_transpose, lower_transpose},
    {"Expand", infer_expand, lower_expand, bits({0}), bits({1})},
    {"Tile", infer_tile, lower_tile, 0, bits({1})},
};

}  // namespace

Rows view_rows() { return {rows, std::size(rows)}; }

}  // namespace memplan::onnx_format
