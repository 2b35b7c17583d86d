// Shapes of ops that move, join, cut or reduce.
#include <algorithm>
#include <array>

#include "estimators/runtime/ort/shape_rules.h"

namespace memplan::ort {

namespace {

using DimList = std::vector<Dim>;
using Numbers = std::vector<std::int64_t>;
using Outputs = std::vector<KnownShape>;

void transpose(const RuleInput& in, Outputs& out) {
  if (!in.in(0)) return;
  const std::size_t rank = in.in(0)->size();
  const auto perm = in.list("perm");
  DimList dims(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    const auto from = perm && i < perm->size() ? axis_in((*perm)[i], rank) : std::optional(rank - 1 - i);
    if (!from) return;
    dims[i] = (*in.in(0))[*from];
  }
  out[0] = dims;
}

void reshape(const RuleInput& in, Outputs& out) {
  const auto asked = in.list("shape", 1);
  if (!asked) return;
  DimList dims;
  std::int64_t inputs = 1, outputs = 1;
  std::optional<std::size_t> open;
  std::vector<bool> copied(in.in(0) ? in.in(0)->size() : 0, false);
  bool told = in.in(0).has_value();
  for (std::size_t i = 0; i < asked->size(); ++i) {
    Dim d;
    if ((*asked)[i] == -1) {
      open = i;
    } else if ((*asked)[i] == 0 && !in.integer("allowzero", 0)) {
      if (i < copied.size()) d = (*in.in(0))[i];
      if (!d.open())
        outputs *= d.size;
      else if (i < copied.size())
        copied[i] = true;
      else
        told = false;
    } else {
      d.size = (*asked)[i];
      outputs *= d.size;
    }
    dims.push_back(d);
  }
  if (open && told) {
    for (std::size_t i = 0; i < in.in(0)->size(); ++i) {
      if (!(*in.in(0))[i].open())
        inputs *= (*in.in(0))[i].size;
      else if (!copied[i])
        told = false;
    }
    if (told && outputs > 0) dims[*open].size = inputs / outputs;
  }
  out[0] = dims;
}

void flatten(const RuleInput& in, Outputs& out) {
  if (!in.in(0)) return;
  const auto rank = static_cast<std::int64_t>(in.in(0)->size());
  std::int64_t axis = in.integer("axis", 1);
  if (axis < 0) axis += rank;
  const auto product = [&](std::int64_t from, std::int64_t to) {
    Dim all{1, {}};
    for (std::int64_t i = from; i < to; ++i) {
      const Dim& d = (*in.in(0))[static_cast<std::size_t>(i)];
      if (to - from == 1) return d;
      if (d.open()) return Dim{};
      all.size *= d.size;
    }
    return all;
  };
  out[0] = DimList{product(0, axis), product(axis, rank)};
}

void squeeze(const RuleInput& in, Outputs& out) {
  const auto axes = in.list("axes", 1);
  if (!in.in(0) || !axes) return;
  DimList dims;
  std::vector<bool> drop(in.in(0)->size(), false);
  for (const std::int64_t a : *axes)
    if (const auto i = axis_in(a, drop.size())) drop[*i] = true;
  for (std::size_t i = 0; i < drop.size(); ++i)
    if (!drop[i]) dims.push_back((*in.in(0))[i]);
  out[0] = dims;
}

void unsqueeze(const RuleInput& in, Outputs& out) {
  const auto axes = in.list("axes", 1);
  if (!in.in(0) || !axes) return;
  const std::size_t rank = in.in(0)->size() + axes->size();
  std::vector<bool> added(rank, false);
  for (const std::int64_t a : *axes)
    if (const auto i = axis_in(a, rank)) added[*i] = true;
  DimList dims;
  std::size_t from = 0;
  for (std::size_t i = 0; i < rank; ++i) {
    if (!added[i] && from >= in.in(0)->size()) return;
    dims.push_back(added[i] ? Dim{1, {}} : (*in.in(0))[from++]);
  }
  out[0] = dims;
}

void concat(const RuleInput& in, Outputs& out) {
  if (!in.in(0)) return;
  DimList dims = *in.in(0);
  const auto axis = axis_in(in.integer("axis", 0), dims.size());
  if (!axis) return;
  std::int64_t total = 0;
  bool told = true;
  for (std::size_t k = 0; k < in.node.inputs.size(); ++k) {
    if (!in.in(k) || in.in(k)->size() != dims.size()) return;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const Dim& d = (*in.in(k))[i];
      if (i == *axis) {
        told = told && !d.open();
        total += d.size;
      } else if (!d.open() || (dims[i].open() && dims[i].symbol.empty())) {
        dims[i] = d;
      }
    }
  }
  dims[*axis] = in.node.inputs.size() == 1 ? (*in.in(0))[*axis] : told ? Dim{total, {}} : Dim{};
  out[0] = dims;
}

void split(const RuleInput& in, Outputs& out) {
  if (!in.in(0)) return;
  const auto axis = axis_in(in.integer("axis", 0), in.in(0)->size());
  if (!axis) return;
  const auto parts = in.list("split", 1);
  const Dim whole = (*in.in(0))[*axis];
  const auto n = static_cast<std::int64_t>(out.size());
  for (std::size_t k = 0; k < out.size(); ++k) {
    DimList dims = *in.in(0);
    dims[*axis] = {};
    if (parts && k < parts->size())
      dims[*axis].size = (*parts)[k];
    else if (!in.has(1) && !whole.open()) {
      const std::int64_t piece = (whole.size + n - 1) / n;
      dims[*axis].size = static_cast<std::int64_t>(k) + 1 < n ? piece : whole.size - piece * (n - 1);
    }
    out[k] = dims;
  }
}

void slice(const RuleInput& in, Outputs& out) {
  if (!in.in(0)) return;
  const auto starts = in.list("starts", 1), ends = in.list("ends", 2);
  if (!starts || !ends) {
    out[0] = DimList(in.in(0)->size());
    return;
  }
  const auto axes = in.list("axes", 3), steps = in.stored(4);
  DimList dims = *in.in(0);
  for (std::size_t k = 0; k < starts->size() && k < ends->size(); ++k) {
    const auto axis = axis_in(axes && k < axes->size() ? (*axes)[k] : static_cast<std::int64_t>(k), dims.size());
    if (!axis) return;
    const std::int64_t step = steps && k < steps->size() ? (*steps)[k] : 1;
    Dim& d = dims[*axis];
    if (d.open() || step == 0) {
      d = {};
      continue;
    }
    const auto clamp = [&](std::int64_t v, std::int64_t low, std::int64_t high) {
      return std::clamp(v < 0 ? v + d.size : v, low, high);
    };
    const std::int64_t down = step < 0 ? 1 : 0;
    const std::int64_t first = clamp((*starts)[k], 0, d.size - down), last = clamp((*ends)[k], -down, d.size);
    d.size = std::max<std::int64_t>(0, (last - first + step + (step < 0 ? 1 : -1)) / step);
  }
  out[0] = dims;
}

void gather(const RuleInput& in, Outputs& out) {
  if (!in.in(0) || !in.in(1)) return;
  const auto axis = axis_in(in.integer("axis", 0), in.in(0)->size());
  if (!axis) return;
  DimList dims(in.in(0)->begin(), in.in(0)->begin() + static_cast<std::ptrdiff_t>(*axis));
  dims.insert(dims.end(), in.in(1)->begin(), in.in(1)->end());
  dims.insert(dims.end(), in.in(0)->begin() + static_cast<std::ptrdiff_t>(*axis) + 1, in.in(0)->end());
  out[0] = dims;
}

void reduce(const RuleInput& in, Outputs& out) {
  if (!in.in(0) || (in.has(1) && !in.stored(1))) return;
  const auto axes = in.list("axes", 1);
  const bool keep = in.integer("keepdims", 1) != 0;
  std::vector<bool> gone(in.in(0)->size(), !axes || axes->empty());
  for (const std::int64_t a : axes.value_or(Numbers{}))
    if (const auto i = axis_in(a, gone.size())) gone[*i] = true;
  DimList dims;
  for (std::size_t i = 0; i < gone.size(); ++i) {
    if (!gone[i])
      dims.push_back((*in.in(0))[i]);
    else if (keep)
      dims.push_back({1, {}});
  }
  out[0] = dims;
}

void expand(const RuleInput& in, Outputs& out) {
  const auto asked = in.stored(1);
  if (!asked) return;
  DimList dims;
  for (const std::int64_t n : *asked) dims.push_back({n, {}});
  out[0] = broadcast({in.in(0), dims});
}

void of_shape(const RuleInput& in, Outputs& out) {
  if (const auto asked = in.stored(0)) {
    DimList dims;
    for (const std::int64_t n : *asked) dims.push_back({n, {}});
    out[0] = dims;
  }
}

void shape_of(const RuleInput& in, Outputs& out) {
  if (!in.in(0)) return;
  const auto rank = static_cast<std::int64_t>(in.in(0)->size());
  const auto bound = [&](const char* name, std::int64_t fallback) {
    const std::int64_t v = in.integer(name, fallback);
    return std::clamp<std::int64_t>(v < 0 ? v + rank : v, 0, rank);
  };
  out[0] = DimList{{std::max<std::int64_t>(bound("end", rank) - bound("start", 0), 0), {}}};
}

void pad(const RuleInput& in, Outputs& out) {
  const auto pads = in.list("pads", 1);
  if (!in.in(0) || !pads || in.has(3)) return;
  DimList dims = *in.in(0);
  for (std::size_t i = 0; i < dims.size() && i + dims.size() < pads->size(); ++i) {
    const std::int64_t added = (*pads)[i] + (*pads)[i + dims.size()];
    if (!dims[i].open())
      dims[i].size += added;
    else if (added != 0)
      dims[i] = {};
  }
  out[0] = dims;
}

constexpr std::array moving{
    ShapeRule{"Transpose", transpose},
    ShapeRule{"Reshape", reshape},
    ShapeRule{"Flatten", flatten},
    ShapeRule{"Squeeze", squeeze},
    ShapeRule{"Unsqueeze", unsqueeze},
    ShapeRule{"Concat", concat},
    ShapeRule{"Split", split},
    ShapeRule{"Slice", slice},
    ShapeRule{"Gather", gather},
    ShapeRule{"ReduceMean", reduce},
    ShapeRule{"ReduceSum", reduce},
    ShapeRule{"ReduceMax", reduce},
    ShapeRule{"ReduceMin", reduce},
    ShapeRule{"ReduceProd", reduce},
    ShapeRule{"ReduceL2", reduce},
    ShapeRule{"Expand", expand},
    ShapeRule{"ConstantOfShape", of_shape},
    ShapeRule{"Shape", shape_of},
    ShapeRule{"Pad", pad},
};

}  // namespace

std::span<const ShapeRule> view_rules() { return moving; }

}  // namespace memplan::ort
