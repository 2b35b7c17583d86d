// Ordered allocations and frees of a run of training (or inference) steps on one rank, before any allocator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "estimators/base/bytes.h"
#include "estimators/base/evidence.h"

namespace memplan {

enum class Category : std::uint8_t {
  parameter,
  buffer,
  gradient,
  optimizer_state,
  activation,
  temporary,
  workspace,
  input,
  output
};
inline constexpr int category_count = 9;
inline constexpr std::array category_names{
    Named<Category>{"parameters", Category::parameter},   Named<Category>{"buffers", Category::buffer},
    Named<Category>{"gradients", Category::gradient},     Named<Category>{"optimizer state", Category::optimizer_state},
    Named<Category>{"activations", Category::activation}, Named<Category>{"temporaries", Category::temporary},
    Named<Category>{"workspaces", Category::workspace},   Named<Category>{"batch", Category::input},
    Named<Category>{"outputs", Category::output},
};
constexpr const char* name_of(Category category) { return name_in(category_names, category); }

enum class Phase : std::uint8_t { setup, data, forward, loss, backward, clip, optimizer };
const char* name_of(Phase phase);

/// One allocation: what asked for it and when it lives. Sizes are what PyTorch requests, before rounding.
struct Allocation {
  Bytes size;
  std::int32_t born = -1;  ///< index into Schedule::events
  std::int32_t died = -1;  ///< likewise; -1: alive at the end
  std::int32_t op = -1;    ///< index into Schedule::ops, the op that allocated it
  std::int32_t stream = 0;
  Category category = Category::temporary;
  std::int32_t label = -1;  ///< index into Schedule::names ("layer1.0.conv1.weight", "relu_3"); -1 none
  std::int32_t reason =
      -1;  ///< index into Schedule::names: why it was kept longest ("saved for backward by aten::mul")
  std::int32_t shape_at = -1;  ///< index into Schedule::shapes; -1 none
};

struct Event {
  enum class Kind : std::uint8_t { alloc, free, empty_cache } kind = Kind::alloc;
  std::int32_t allocation = -1;  ///< index into Schedule::allocations
};

/// One executed op (a kernel-level ATen call, or a step of the engine or the optimizer).
struct OpRecord {
  std::int32_t name = -1;   ///< index into Schedule::names
  std::int32_t scope = -1;  ///< index into the tape's scopes
  std::int32_t call = -1;   ///< index into the tape's calls; -1 for ops outside the model
  Phase phase = Phase::setup;
  std::int32_t step = 0;         ///< 0 = set-up, then 1, 2, 3
  std::int32_t first_event = 0;  ///< its events start here and end where the next op's begin
};

struct TensorShape {
  std::uint8_t dtype = 0;
  std::vector<std::int64_t> sizes;
};

struct Schedule {
  std::vector<Allocation> allocations;
  std::vector<Event> events;
  std::vector<OpRecord> ops;
  std::vector<TensorShape> shapes;
  std::vector<std::string> names;
  Notes notes;  ///< where memory of libraries and ops without a row come from, and how far off they may be
  std::vector<std::int32_t> step_begins;  ///< index of the first event of step 1, 2, …
};

}  // namespace memplan
