// Inputs, parameters, buffers and constants of an exported program as values of the tape.
#pragma once

#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
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
  /// Members of the archive that hold tensors of several layouts: weights on the meta device are all written to one.
  std::set<std::string_view> members_of_several() const;
  Arg user_input(const InputSpec& spec);
  /// `told`: the member that it is stored in says whether it is tied.
  ValueId parameter(const InputSpec& spec, bool told);
  /// The buffer of a module that stands in several places, which module.to() moves once; invalid for all others.
  ValueId buffer_of_shared_module(const InputSpec& spec);
  bool hold_the_same(std::string_view here, std::string_view there);

  const Program& program_;
  const Symbols& symbols_;
  Tape& tape_;
  std::vector<Arg> inputs_;
  Bytes copies_;                                          ///< of buffers that are taken to be one
  std::unordered_map<std::string_view, ValueId> stored_;  ///< parameters by the member of the archive that holds them
  std::unordered_map<std::string_view, std::pair<const InputSpec*, ValueId>> buffers_;  ///< the same of buffers
  std::map<std::pair<std::string_view, std::string_view>, bool> same_modules_;
  std::map<std::string_view, std::string_view> by_target_;  ///< member of the archive by target; filled when asked for
  std::unordered_map<std::string_view, ValueId> unread_;    ///< parameters that no node of the graph reads, by target
};

}  // namespace memplan::torch_export
