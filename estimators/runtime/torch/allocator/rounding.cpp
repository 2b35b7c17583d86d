#include "estimators/runtime/torch/allocator/rounding.h"

#include <algorithm>
#include <bit>

namespace memplan {
namespace {

std::int64_t round_up(std::int64_t bytes, std::int64_t step) { return (checked_add(bytes, step - 1) / step) * step; }

[[noreturn]] void refuse(const char* what, const char* option) {
  fail(ErrorKind::usage, what, option, "see PYTORCH_ALLOC_CONF in PyTorch's notes on CUDA semantics");
}

}  // namespace

AllocatorRules rules_of(const AllocatorSetup& setup, const AllocatorConstants& constants) {
  AllocatorRules rules{constants};
  if (setup.large_segment) rules.large_segment = setup.large_segment->count;
  if (rules.large_segment <= rules.own_segment_from) refuse("must be greater than 10 MiB", "large_segment_size_mb");
  // The rounding limit follows the large segment unless it is given.
  rules.max_non_split_rounding = rules.large_segment;
  if (setup.max_split_size) {
    if (setup.max_split_size->count < rules.large_segment)
      refuse("must not be below the large segment", "max_split_size_mb");
    rules.max_split = setup.max_split_size->count;
  }
  if (setup.max_non_split_rounding) {
    if (setup.max_non_split_rounding->count < rules.large_segment)
      refuse("must not be below the large segment", "max_non_split_rounding_mb");
    rules.max_non_split_rounding = setup.max_non_split_rounding->count;
  }
  if (!setup.roundup_power2_divisions.empty()) {
    if (setup.roundup_power2_divisions.size() != rules.divisions.size())
      refuse("needs 16 entries", "roundup_power2_divisions");
    for (std::size_t i = 0; i < rules.divisions.size(); ++i) {
      const std::int64_t d = setup.roundup_power2_divisions[i];
      if (d < 0 || (d > 0 && !std::has_single_bit(static_cast<std::uint64_t>(d))))
        refuse("must be powers of two", "roundup_power2_divisions");
      rules.divisions[i] = d;
      rules.any_divisions |= d > 1;
    }
  }
  rules.expandable = setup.expandable_segments;
  rules.gc_threshold = setup.garbage_collection_threshold;
  if (rules.gc_threshold < 0 || rules.gc_threshold >= 1)
    refuse("must be above 0 and below 1", "garbage_collection_threshold");
  rules.memory_fraction = setup.memory_fraction;
  if (!(rules.memory_fraction > 0 && rules.memory_fraction <= 1))
    refuse("must be above 0 and at most 1", "memory fraction");
  rules.limited = rules.memory_fraction < 1;
  return rules;
}

std::int64_t round_request(std::int64_t bytes, const AllocatorRules& rules) {
  if (bytes < rules.min_block) return rules.min_block;
  if (rules.any_divisions) {
    const int log2 = std::bit_width(static_cast<std::uint64_t>(bytes)) - 1;
    const std::int64_t divisions = rules.divisions[static_cast<std::size_t>(std::clamp(log2 - 20, 0, 15))];
    if (divisions > 1 && bytes > rules.min_block * divisions) {
      const std::int64_t power = std::int64_t{1} << log2;
      if (power == bytes) return bytes;
      const std::int64_t step = power / divisions;
      return step == 0 ? power * 2 : round_up(bytes, step);
    }
  }
  return round_up(bytes, rules.min_block);
}

std::int64_t segment_bytes(std::int64_t rounded, const AllocatorRules& rules) {
  if (rounded <= rules.small_limit) return rules.small_segment;
  if (rounded < rules.own_segment_from) return rules.large_segment;
  return round_up(rounded, rules.own_segment_step);
}

}  // namespace memplan
