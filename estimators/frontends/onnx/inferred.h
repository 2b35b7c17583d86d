// What is known about each value of a graph once the open dimensions have numbers: element type, sizes, and the
// contents of the small tensors that graphs compute shapes with.
#pragma once

#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "estimators/base/whole_number.h"
#include "estimators/graph/dims.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

using Sizes = std::vector<std::int64_t>;

/// Contents of a small tensor, row-major.
struct Contents {
  bool floating = false;
  std::vector<std::int64_t> integers;  ///< also booleans
  std::vector<double> floats;
  std::size_t size() const { return floating ? floats.size() : integers.size(); }
  double number(std::size_t i) const { return floating ? floats[i] : static_cast<double>(integers[i]); }
};

/// Contents longer than this are not followed.
constexpr std::int64_t max_followed = 4096;

struct Inferred {
  std::optional<DType> dtype;
  std::optional<Sizes> sizes;
  std::optional<Contents> contents;

  std::size_t rank() const { return sizes ? sizes->size() : 0; }
  bool is_one_number() const { return contents && contents->size() == 1; }
};

class InferredValues {
 public:
  /// Follows all nodes in order. What no rule tells is taken from the file's own shapes.
  /// Failure(input) for sizes that contradict each other or overflow 64 bits.
  InferredValues(const Graph& graph, const Symbols& symbols, std::int64_t opset);

  const Inferred& operator[](GraphValueId id) const { return id < 0 ? none_ : inferred_[static_cast<std::size_t>(id)]; }
  Inferred& at(GraphValueId id) { return inferred_[static_cast<std::size_t>(id)]; }
  const Graph& graph() const { return graph_; }
  std::int64_t opset() const { return opset_; }

 private:
  const Graph& graph_;
  std::int64_t opset_;
  std::vector<Inferred> inferred_;
  Inferred none_;
};

/// A node with what is known about its inputs, for the rules of ops/.
struct At {
  const GraphNode& node;
  const InferredValues& inferred;
  std::int64_t opset;

  bool has(std::size_t i) const { return i < node.inputs.size() && node.inputs[i] >= 0; }
  GraphValueId id(std::size_t i) const { return i < node.inputs.size() ? node.inputs[i] : -1; }
  const Inferred& in(std::size_t i) const { return inferred[id(i)]; }
  const std::optional<Sizes>& sizes(std::size_t i) const { return in(i).sizes; }

  const Attribute* attribute(const char* name) const;
  std::int64_t integer(const char* name, std::int64_t fallback) const;
  double real(const char* name, double fallback) const;
  std::string text(const char* name, std::string_view fallback) const;
  std::optional<Sizes> list(const char* name) const;
  /// A list that moved from an attribute to an input in a later opset: the input when it is there and known.
  std::optional<Sizes> list(const char* name, std::size_t input) const;
  /// Contents of an input as integers; none when they are not known.
  std::optional<Sizes> integers(std::size_t input) const;
  std::optional<double> number(std::size_t input) const;
};

/// Elements of a tensor of these sizes. Failure(input) on overflow.
std::int64_t count_of(const Sizes& sizes);
/// Axis counted from the end where it is negative. Failure(input) when it is out of range.
std::size_t axis_of(std::int64_t axis, std::size_t rank, const GraphNode& node);
/// NumPy's broadcast. Failure(input) where two sizes do not fit.
Sizes broadcast(const Sizes& a, const Sizes& b, const GraphNode& node);

}  // namespace memplan::onnx_format
