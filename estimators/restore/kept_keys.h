// Keys and values that a cache of attention holds.
#pragma once

#include <cstdint>
#include <vector>

#include "estimators/restore/frames.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// A cache begins with an empty tensor in the dtype of its first keys (DynamicLayer.lazy_initialization); a graph that
/// was exported in another precision has it in the dtype of the export.
void begin_caches_like_keys(Tape& tape);

/// By value: the call until which a cache holds it, -1: none does. "k, v = cache.update(k, v, self.layer_id)" joins the
/// keys and values that came with those of before (transformers' DynamicLayer.update, a `cat` each), and the cache
/// holds what it hands back. It belongs to a frame that sees all modules with such lines, so the one that is nearest to
/// them stands for it. A cache that the program returns is among its outputs, which live on anyway.
std::vector<std::int32_t> held_by_cache(const Tape& tape, const Frames& frames);

}  // namespace memplan
