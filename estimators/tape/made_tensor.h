// Calls that make a tensor of a size, whatever is in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan {

/// The call becomes `op(sizes, dtype=dtype)`: "aten::empty.memory_format", or another that takes the same.
inline void make_of_size(Call& call, std::string op, DType dtype, const std::vector<std::int64_t>& sizes) {
  Arg::List list;
  for (const std::int64_t n : sizes) list.push_back({n});
  call.op = std::move(op);
  call.args = {{std::move(list)}};
  call.kwargs = {{"dtype", {dtype}}};
}

/// `x.to(device)` of a tensor that may be on the CPU, until leave_constants_on_host() has decided.
inline constexpr std::string_view move_op = "memplan::to_device";

inline void make_move(Call& call) {
  call.op = std::string(move_op);
  call.args.resize(1);
  call.kwargs.clear();
}

}  // namespace memplan
