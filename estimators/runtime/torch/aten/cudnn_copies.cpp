#include "estimators/runtime/torch/aten/cudnn_copies.h"

#include <algorithm>
#include <array>
#include <bit>

namespace memplan::cudnn_rules {

namespace {

/// How an engine treats the groups of a grouped convolution.
enum class Grouping : std::uint8_t {
  few_at_a_time,  ///< cuts out eight groups at a time
  widened,        ///< all at once, channels of a group widened to a power of two
  left,           ///< eight at a time, where they are
  in_place,       ///< the same, and nothing else is copied
};

/// What is copied even where the layout is right.
enum class Always : std::uint8_t {
  nothing,
  inputs,  ///< the pass's inputs: they are rounded to TF32
  weight,
};

struct CopyKind {
  bool channels_last;     ///< the layout that the engine works in
  std::int64_t multiple;  ///< channels are padded to multiples of it
  Grouping grouping;
  Always always;
};
using enum Grouping;
constexpr std::array<CopyKind, copy_kinds> kinds{{
    {true, 8, few_at_a_time, Always::nothing},
    {true, 4, few_at_a_time, Always::inputs},
    {false, 1, few_at_a_time, Always::inputs},
    {true, 8, widened, Always::nothing},
    {true, 4, widened, Always::inputs},
    {false, 4, few_at_a_time, Always::nothing},
    {true, 1, few_at_a_time, Always::inputs},
    {true, 4, few_at_a_time, Always::nothing},
    {false, 1, few_at_a_time, Always::nothing},
    {true, 4, widened, Always::nothing},
    {true, 1, few_at_a_time, Always::nothing},
    {false, 4, few_at_a_time, Always::inputs},
    {true, 8, few_at_a_time, Always::weight},
    {false, 1, left, Always::nothing},
    {true, 1, in_place, Always::nothing},
}};

constexpr std::int64_t alignment = 16;        ///< copies begin at multiples of it, so so much is added
constexpr std::int64_t groups_at_a_time = 8;  ///< unless Grouping::widened

struct Copied {
  bool in, weight, out;
};

/// Groups are cut out of the input and the result. Of a single image, or of single pixels with the channels last, a
/// group is in one piece; what becomes planes is copied for that, or not at all. A layout is changed where it makes a
/// difference: of planes, a group's channels of the result count, and all channels of what the pass reads.
Copied copied(const CopyKind& kind, const Copies& c, const Sizes& s) {
  if (kind.grouping == in_place) return {false, false, false};
  const bool other_layout = s.channels_last != kind.channels_last, planes = other_layout && s.channels_last;
  const auto cut_out = [&](std::int64_t positions) {
    return kind.grouping == few_at_a_time && s.groups > 1 && !planes &&
           (s.batch > 1 || (s.channels_last && positions > 1));
  };
  // `result`: the pass that makes the tensor, which the others read.
  const auto seen = [&](std::int64_t all, std::int64_t group, ConvPass result) {
    return planes && s.pass != result ? all : group;
  };
  const auto always = [&](ConvPass result) { return kind.always == Always::inputs && s.pass != result; };
  Copied out{};
  out.in = c.channels != s.group_channels || cut_out(s.in) ||
           (other_layout && s.in > 1 && seen(s.channels, s.group_channels, ConvPass::data_gradient) > 1) ||
           always(ConvPass::data_gradient);
  out.weight = c.channels != s.group_channels || c.outputs != s.group_outputs ||
               (other_layout && s.kernel > 1 && (planes ? s.channels : s.group_channels) > 1) ||
               always(ConvPass::weight_gradient) || kind.always == Always::weight;
  out.out = c.outputs != s.group_outputs || cut_out(s.out) ||
            (other_layout && s.out > 1 && seen(s.outputs, s.group_outputs, ConvPass::forward) > 1) ||
            always(ConvPass::forward);
  return out;
}

}  // namespace

std::int64_t product(std::initializer_list<std::int64_t> factors) {
  std::int64_t out = 1;
  for (const std::int64_t f : factors) out = checked_mul(out, f);
  return out;
}

Copies copies_of(int row, const Sizes& s) {
  const CopyKind& kind = kinds[static_cast<std::size_t>(row)];
  Copies c{};
  const bool few = kind.grouping != widened;
  c.channels = rounded_up(s.group_channels, kind.multiple);
  c.outputs = rounded_up(s.group_outputs, kind.multiple);
  c.groups = few ? std::min(s.groups, groups_at_a_time) : s.groups;
  c.tables = few ? c.groups : 1;
  if (!few && s.groups > 1) {
    const std::int64_t wide = std::max({s.group_channels, s.group_outputs, kind.multiple});
    c.channels = c.outputs = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(wide)));
  }
  const auto [in, weight, out] = copied(kind, c, s);
  const std::int64_t images = checked_mul(s.batch, c.groups);
  if (in) c.bytes = product({images, s.in, c.channels, s.element});
  if (weight) c.bytes = checked_add(c.bytes, product({c.outputs, c.channels, s.kernel, c.groups, s.element}));
  if (out) c.bytes = checked_add(c.bytes, product({images, s.out, c.outputs, s.element}));
  if (in || weight || out) c.aligned = (alignment - c.bytes / c.tables % alignment) * c.tables;
  return c;
}

}  // namespace memplan::cudnn_rules
