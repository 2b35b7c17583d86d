// Casts that convert nothing in the file, because it was exported in the precision that they ask for, and what they do
// in another precision.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "estimators/frontends/torch_export/program.h"
#include "estimators/frontends/torch_export/rewrites.h"
#include "estimators/tape/tape.h"

namespace memplan::torch_export {

/// `x.float()` of an fp32 tensor returns x itself, and the exporter then takes every later use of x, whoever makes it,
/// for a use of the cast's result. This keeps the casts and tells such uses apart.
class ArchiveCasts {
 public:
  explicit ArchiveCasts(Tape& tape) : tape_(tape) {}

  /// What becomes of a call that converts nothing in the file. `function`: the method of the program that made it
  /// ("float", "to", "type_as"), where the file says; else the line of Python decides.
  Fate rewrite(Call& call, DType type, std::string_view function);
  /// Whether `labels.to(x.dtype)` asks for the type that something else has, in the program if not in the file.
  static bool follows_named(const Call& call, std::string_view function);
  /// The call, kept by rewrite(), has its outputs now.
  void made(const Call& call);
  /// Of an op that is asked for a type by a name of the program's.
  void narrow_type(Call& call) const;
  /// The same of every call, before it goes onto the tape.
  void follow(const Call& call);

  /// `table.to(device)` of what was made of nothing but tensors that modules hold as plain attributes, which are on the
  /// CPU: the node asks for a device, and the call reads no other values.
  bool moves_constant(const Call& call, const Node& node) const;

  /// The value that a use in `scope` of `value`, by the line `source`, meant: outside of the module that cast it, the
  /// tensor itself, unless the module has no use of its own for the result and so returned it. Inside of it the tensor
  /// itself as well in other lines than `variance = x.float().pow(2).mean(-1)`, which gives the result no name, and
  /// after the first use in that one, `x * torch.rsqrt(x.float().pow(2).mean(-1))`.
  ValueId meant(ValueId value, std::int32_t scope, std::string_view source);
  /// Likewise of a result of the program. `logits = self.head(h).float()` leaves no other tensor to return.
  ValueId returned(ValueId value) const;

 private:
  struct Cast {
    ValueId from;
    std::int32_t scope = -1;
    bool widens = false;                   ///< to a given type; else back to that of another tensor
    bool used_here = false;                ///< by the module that made it
    std::string unnamed_in;                ///< the line that made it, where it gives it no name; else empty
    bool of_temporary = false;             ///< only that line has what it converts
    std::optional<std::size_t> read_by{};  ///< the call that takes the result which has no name
  };
  const Cast* cast_at(ValueId value) const;
  bool is_inside(std::int32_t scope, std::int32_t outer) const;
  ValueId source_of(ValueId value, bool widens) const;
  ValueId before_widening(ValueId value, std::int32_t scope) const;
  ValueId before_cast_of_line(ValueId value, const Call& asking) const;
  ValueId before(const std::set<std::string_view>& ops, ValueId value) const;
  ValueId query_of(ValueId value) const;
  bool is_of_parameter(ValueId value) const;
  ValueId argument_of_frame(ValueId value, std::int32_t scope) const;
  ValueId last_named(std::string_view name, const Call& asking) const;
  void take_type_of_operand(const Call& call);
  bool is_made_in_line(ValueId x, const Call& cast) const;

  Tape& tape_;
  bool unseen_ = false;                                    ///< the last rewritten: to fp32, for want of a better word
  bool of_parameter_ = false;                              ///< the last rewritten: a parameter, by a hidden line
  std::unordered_map<std::int32_t, std::size_t> waiting_;  ///< results of such casts -> call of the tape
  std::unordered_map<std::int32_t, Cast> casts_;           ///< by result
  std::unordered_map<std::int32_t, std::size_t> makers_;   ///< value -> call of the tape
};

}  // namespace memplan::torch_export
