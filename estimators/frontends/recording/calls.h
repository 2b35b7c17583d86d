// The calls of one recorded forward pass, as the file has them: every integer may depend on the batch.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "estimators/base/dtype.h"
#include "estimators/tape/tape.h"

namespace memplan::recording {

/// A number that is on a line in the batch.
struct OfBatch {
  std::int64_t at_zero = 0, per_sample = 0;
};

using Shape = std::vector<OfBatch>;

struct StoredArg {
  using List = std::vector<StoredArg>;
  struct Value {
    std::int32_t number = -1;
  };
  std::variant<Arg::None, Value, OfBatch, double, bool, std::string, DType, List> value = Arg::None{};
};

enum class Role : std::uint8_t { made, input, parameter, buffer, constant };

struct StoredTensorValue {
  DType dtype = DType::float32;
  Shape sizes;
  Role role = Role::made;
  std::string name;  ///< of a parameter or a buffer; of an input its number
  bool on_host = false;
};

/// What autograd kept of a call: an argument (from 0 on), a result (-1, -2, …), or a tensor that the op made inside.
struct StoredKept {
  std::int32_t at = 0;
  bool inside = false;
  DType dtype = DType::float32;
  Shape sizes;
};

struct StoredCall {
  std::string op;
  std::vector<StoredArg> args;
  std::vector<std::pair<std::string, StoredArg>> kwargs;
  std::vector<std::int32_t> outputs;  ///< -1: an argument that was written to
  std::vector<std::int32_t> released;
  std::vector<StoredKept> kept;
  std::int32_t scope = -1, checkpoint = -1, function = -1;
  bool without_autocast = false;
  std::string source;
};

struct StoredFunction {
  std::string name;
  std::vector<std::int32_t> inputs, outputs, saved, grads, results;  ///< of the last two -1: none
  std::vector<StoredCall> forward, backward;
};

struct Calls {
  std::vector<std::int64_t> batches;  ///< that ran these calls; {0} where the batch is not open
  std::vector<StoredTensorValue> values;
  std::vector<StoredCall> calls;
  std::vector<StoredFunction> functions;
  std::vector<std::int32_t> outputs;
  std::vector<Scope> scopes;
};

}  // namespace memplan::recording
