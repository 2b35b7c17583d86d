#include "estimators/frontends/onnx/same_type_casts.h"

#include <algorithm>

#include "estimators/frontends/onnx/name_scopes.h"

namespace memplan::onnx_format {

namespace {

bool wants_fp32(std::string_view op) {
  return op == "Pow" || op == "ReduceMean" || op == "Softmax" || op == "LogSoftmax" || op == "Cos" || op == "Sin";
}

class Follow {
 public:
  Follow(const InferredValues& inferred, const std::vector<bool>& needed,
         const std::vector<std::vector<GraphValueId>>& reads)
      : inferred_(inferred), g_(inferred.graph()), reads_(reads), seen_(g_.values.size()) {
    out_.of.assign(g_.values.size(), SameTypeCast::none);
    for (std::size_t i = 0; i < g_.nodes.size(); ++i) {
      if (!needed[i]) continue;
      const std::string_view op = g_.nodes[i].op_type;
      for (GraphValueId id : reads[i]) {
        Seen& s = at(id);
        s.read_by_norm = s.read_by_norm || wants_fp32(op);
        s.read_by_cast = s.read_by_cast || op == "Cast";
      }
    }
    for (std::size_t i = 0; i < g_.nodes.size(); ++i)
      if (needed[i] && !g_.nodes[i].outputs.empty() && g_.nodes[i].outputs[0] >= 0) node(static_cast<std::int32_t>(i));
  }

  SameTypeCasts take() { return std::move(out_); }

 private:
  struct Seen {
    bool read_by_norm = false, read_by_cast = false;
    bool wide = false;  ///< fp32 in any precision of the model
    bool of_softmax = false;
    bool scaled = false;     ///< x * rsqrt(mean(...))
    std::int32_t cast = -1;  ///< the upward cast that made it
  };
  Seen& at(GraphValueId id) { return seen_[static_cast<std::size_t>(id)]; }

  void node(std::int32_t i) {
    const GraphNode& n = g_.nodes[static_cast<std::size_t>(i)];
    const GraphValueId y = n.outputs[0];
    if (n.op_type == "Cast" && !n.inputs.empty() && n.inputs[0] >= 0) return cast(i, n, y);
    find_early_reads(i, n);
    if (inferred_[y].dtype != DType::float32) return;
    if (n.op_type == "Range") at(y).wide = true;
    at(y).of_softmax = n.op_type == "Softmax";
    if (n.op_type == "Mul" && n.inputs.size() == 2 && is_weighted_norm(i, n, y)) return;
    // A tensor of dimensions promotes the result; a 0-dim one does not. Products run in one precision.
    for (GraphValueId id : reads_[static_cast<std::size_t>(i)]) {
      const GraphValueId real = source(i, id);
      if (inferred_[real].dtype == DType::float32 && inferred_[real].rank() > 0 && at(real).wide) at(y).wide = true;
    }
  }

  void cast(std::int32_t i, const GraphNode& n, GraphValueId y) {
    if (inferred_[y].dtype != DType::float32) return;
    const GraphValueId x = n.inputs[0];
    if (inferred_[x].dtype != DType::float32) {
      // position_ids.float(), whereas a boolean mask goes to the dtype of what it is added to.
      at(y).wide = inferred_[x].dtype && is_integral(*inferred_[x].dtype);
    } else if (at(x).wide) {
      out_.of[static_cast<std::size_t>(y)] = SameTypeCast::down;
    } else if (at(y).read_by_norm || (at(x).of_softmax && at(y).read_by_cast)) {
      out_.of[static_cast<std::size_t>(y)] = SameTypeCast::up;
      at(y).wide = true;
      at(y).cast = i;
    }
  }

  /// Readers of an upward cast that in the program read what it was made of: those outside of its module, and products
  /// whose result is not cast back (T5LayerNorm multiplies the input itself, LlamaRMSNorm the cast one).
  void find_early_reads(std::int32_t i, const GraphNode& n) {
    for (GraphValueId id : reads_[static_cast<std::size_t>(i)]) {
      const std::int32_t c = at(id).cast;
      if (c < 0 || wants_fp32(n.op_type)) continue;
      const GraphNode& by = g_.nodes[static_cast<std::size_t>(c)];
      const bool product = n.op_type == "Mul" && !at(n.outputs[0]).read_by_cast;
      if (product || module_of(n.name) != module_of(by.name)) out_.before_cast[i] = {id, by.inputs[0]};
    }
  }

  GraphValueId source(std::int32_t i, GraphValueId id) const {
    const auto it = out_.before_cast.find(i);
    return it != out_.before_cast.end() && it->second.first == id ? it->second.second : id;
  }

  /// Notes x * statistics; true for weight * (x * statistics) without a cast between.
  bool is_weighted_norm(std::int32_t i, const GraphNode& n, GraphValueId y) {
    for (std::size_t k = 0; k < 2; ++k) {
      const GraphValueId a = n.inputs[k], b = n.inputs[1 - k];
      if (a < 0 || b < 0) continue;
      const Inferred &fa = inferred_[a], &fb = inferred_[b];
      const bool statistics = fa.sizes && !fa.sizes->empty() && fa.sizes->back() == 1 && fb.sizes &&
                              !fb.sizes->empty() && fb.sizes->back() > 1;
      at(y).scaled = at(y).scaled || (statistics && at(a).wide);
      if (g_.initializers.count(a) && fa.rank() == 1 && at(b).scaled) {
        out_.narrowed[i] = b;
        return true;
      }
    }
    return false;
  }

  const InferredValues& inferred_;
  const Graph& g_;
  const std::vector<std::vector<GraphValueId>>& reads_;
  std::vector<Seen> seen_;
  SameTypeCasts out_;
};

}  // namespace

SameTypeCasts same_type_casts(const InferredValues& inferred, const std::vector<bool>& needed,
                              const std::vector<std::vector<GraphValueId>>& reads) {
  return Follow(inferred, needed, reads).take();
}

}  // namespace memplan::onnx_format
