// Inputs, parameters, buffers and constants of an exported program as values of the tape.
#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "estimators/frontends/torch_export/program.h"
#include "estimators/graph/dims.h"
#include "estimators/tape/tape.h"

namespace memplan::torch_export {

class SignatureValues {
 public:
  SignatureValues(const Program& program, const Symbols& symbols, Tape& tape)
      : program_(program), symbols_(symbols), tape_(tape) {}

  /// Makes the values. Parameters that the archive stores as one tensor are tied: one value, the first one's name.
  void make_inputs();
  /// Of Program::inputs[i]; None for inputs that are no tensors.
  Arg input(std::size_t i) const { return inputs_[i]; }

  /// A module at `scope` used `value`, a parameter of another module, while its own of that leaf name is used by
  /// nobody: the two are tied. For archives before 2.9, which store all weights in one pickle.
  void use_in_scope(ValueId value, std::string_view scope);

 private:
  ValueId add(ValueKind kind, const InputSpec& spec);

  const Program& program_;
  const Symbols& symbols_;
  Tape& tape_;
  std::vector<Arg> inputs_;
  std::unordered_map<std::string_view, ValueId> unread_;  ///< parameters that no node of the graph reads, by target
};

}  // namespace memplan::torch_export
