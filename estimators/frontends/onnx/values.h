// Inputs, parameters, buffers and constants of a graph as values of the tape.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "estimators/frontends/onnx/inferred.h"
#include "estimators/frontends/onnx/signature.h"
#include "estimators/frontends/onnx/unread_sizes.h"
#include "estimators/graph/dims.h"
#include "estimators/graph/graph.h"
#include "estimators/tape/tape.h"

namespace memplan::onnx_format {

/// Which tape value each value of the graph and each name of the exporter stands for.
class Values {
 public:
  /// Makes the values of user inputs, and of parameters and buffers as the exporter's metadata tells them.
  Values(const Graph& graph, const Symbols& symbols, Tape& tape, std::int64_t opset = 20);

  /// The tape value of a graph value; for an initializer without metadata it is made on first use, as a constant
  /// or, when `as_parameter`, as a parameter. Invalid when nothing has produced it yet.
  ValueId of(GraphValueId id, bool as_parameter = false);
  void set(GraphValueId id, ValueId value) { of_graph_[static_cast<std::size_t>(id)] = value; }

  /// The value of an FX name ("p_conv1_weight"); invalid when unknown.
  ValueId of_name(std::string_view name) const;
  void set_name(std::string_view name, ValueId value) { of_name_[name] = value; }

  /// A parameter or buffer that the signature names and that has no tensor in the file.
  const SignatureLine* missing(std::string_view fx_name) const;
  /// Makes it, now that its sizes are known; the value that it has, where it is there.
  ValueId make_missing(std::string_view fx_name, DType dtype, std::vector<std::int64_t> sizes);

  /// A module at `scope` used `value`, a parameter with another module's name: when the signature has one of that
  /// leaf name for this module and no tensor for it, the two are tied.
  void use_in_scope(ValueId value, std::string_view scope);
  /// The same for a parameter that the file may hold once for several modules (may_be_merged): the module's own.
  ValueId of_module(ValueId value, std::string_view scope);

  /// The first parameter of the module that the file has no tensor for and no other call had, as large as the
  /// initializer `like`; invalid where there is none.
  ValueId lost_of_module(GraphValueId like, std::string_view scope);

  /// Makes the value of an initializer whose role the caller knows. `transposed`: a tool stored the matrix transposed,
  /// the module has it with its dimensions swapped.
  ValueId store(GraphValueId id, ValueKind kind, std::string name, bool transposed);
  bool is_transposed(GraphValueId id) const { return transposed_.count(id) > 0; }
  /// A parameter or buffer of the module that the file has no tensor for.
  ValueId make(ValueKind kind, std::string name, DType dtype, std::vector<std::int64_t> sizes) {
    return add(kind, std::move(name), dtype, std::move(sizes));
  }

  /// Orders the tape's lists as the signature does, adds buffers that no node reads, and notes what is missing.
  void finish();

  /// Whether an initializer has its value already, by the exporter's metadata.
  bool has(GraphValueId id) const { return of_graph_[static_cast<std::size_t>(id)].valid(); }
  /// A tensor that an optimizer worked out ahead of the run, from no parameter: the program makes it in every forward
  /// pass.
  bool is_folded_result(GraphValueId id) const { return folded_results_.count(id) > 0; }
  /// The name in the signature of the parameter that an optimizer turned into this tensor element by element, or into
  /// a view of it, and whose own tensor is gone; empty for all others.
  std::string_view folded_parameter(GraphValueId id) const {
    const auto it = folded_parameters_.find(id);
    return it == folded_parameters_.end() ? std::string_view() : it->second;
  }
  /// What an optimizer joined to this tensor, or the table and the positions that it looked up in it, in the order of
  /// the signature; their own tensors are gone. Empty for all others.
  std::vector<const SignatureLine*> folded_lines(GraphValueId id) const;
  /// The buffer that an optimizer took a part of ahead of the run, self.position_ids[:, :n]: the program makes no
  /// tensor of its own there. Invalid for all other initializers.
  ValueId viewed_buffer(GraphValueId id);
  /// What is known of the graph's values, worked out on first use.
  const InferredValues& inferred();

  const Signature& signature() const { return signature_; }
  const Graph& graph() const { return graph_; }
  const Symbols& symbols() const { return symbols_; }

 private:
  void add_inputs(const std::vector<std::string_view>& user_inputs);
  /// Initializers whose role the metadata tells. Returns their lines of the signature.
  std::unordered_set<std::size_t> add_described_initializers();
  /// A list in an attribute, `self.regularized = list(self.embedding.parameters())`, is no module, so its tensors are
  /// constants of the exported program beside the parameters that they are: model.to() moves no others. They have no
  /// contents here, so the only parameter of their sizes counts.
  void add_lifted(GraphValueId id);
  ValueId parameter_like(const StoredTensor& t) const;
  /// What an optimizer worked out of others, `present` being the lines that have a tensor of their own.
  void find_folded(const std::unordered_set<std::size_t>& present);
  ValueId add(ValueKind kind, std::string name, DType dtype, std::vector<std::int64_t> sizes);
  std::string missing_in(ValueId value, std::string_view scope) const;
  std::optional<std::vector<std::int64_t>> sizes_of_frequencies(std::string_view target) const;
  std::optional<std::vector<std::int64_t>> sizes_of_positions(std::string_view target) const;
  std::unordered_map<std::string, std::int32_t> small_buffers() const;
  std::optional<std::vector<std::int64_t>> sizes_of_stored(std::string_view name) const;
  bool runs(const std::string& stage) const;
  void add_like_named(const std::vector<std::size_t>& lines, std::vector<std::string>& lost);
  Bytes add_unread(std::size_t line, DType dtype, const std::vector<std::int64_t>& sizes);
  void add_guessed(const std::vector<std::size_t>& lines, DType dtype, const KnownSizes& known,
                   std::vector<std::string>& lost);
  Effect bound_of(const std::vector<std::string>& lost) const;
  void note_resized();
  ValueId add_initializer(GraphValueId id, const StoredTensor& tensor, ValueKind kind, std::string name);

  const Graph& graph_;
  const Symbols& symbols_;
  Tape& tape_;
  Signature signature_;
  std::int64_t opset_;
  std::unique_ptr<InferredValues> inferred_;
  std::vector<ValueId> of_graph_;
  std::unordered_set<GraphValueId> transposed_, folded_results_;
  std::unordered_map<GraphValueId, std::string_view> folded_parameters_;
  std::unordered_map<GraphValueId, std::vector<std::size_t>> folded_lines_;
  std::unordered_map<std::string_view, ValueId> of_name_;
  std::unordered_map<std::string_view, std::size_t> line_of_;          ///< FX name -> index into signature_.inputs
  std::unordered_map<std::string_view, std::size_t> line_of_target_;   ///< "wte.weight" -> the same
  std::unordered_map<std::string_view, std::size_t> missing_targets_;  ///< "wte.weight" -> the same
  /// By module: parameters, last ones first, that lost_of_module has not looked at; filled when it is asked first.
  std::unordered_map<std::string_view, std::vector<std::size_t>> lost_of_;
  std::unordered_map<std::int32_t, std::size_t> position_;  ///< tape value -> index into signature_.inputs
};

/// Equal tensors of at most 1024 elements are stored once, whosever they are (onnx_ir 1.1.0,
/// passes/common/initializer_deduplication.py:83); a larger one with two names is a tied parameter.
bool may_be_merged(const std::vector<std::int64_t>& sizes);

/// The kind of an initializer that no metadata explains: by its name, dtype and the ops that read it.
ValueKind guess_kind(const StoredTensor& tensor);

}  // namespace memplan::onnx_format
