#include "estimators/frontends/onnx/undo_folding.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "estimators/base/bytes.h"
#include "estimators/frontends/onnx/copied_calls.h"
#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/frontends/onnx/fx_recurrent.h"
#include "estimators/frontends/onnx/fx_rewrites.h"
#include "estimators/frontends/onnx/insert_nodes.h"
#include "estimators/frontends/onnx/metadata.h"
#include "estimators/frontends/onnx/signature.h"
#include "estimators/frontends/onnx/stored_layouts.h"
#include "estimators/frontends/onnx/values.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

namespace {

std::int64_t number_of(const GraphNode& node, const char* name, std::int64_t otherwise) {
  const auto it = node.attributes.find(name);
  const auto* n = it != node.attributes.end() ? std::get_if<std::int64_t>(&it->second) : nullptr;
  return n ? *n : otherwise;
}

bool is_stored_kind(std::string_view kind) { return kind == "PARAMETER" || kind == "BUFFER"; }

class Restorer {
 public:
  Restorer(const Graph& g, const FxProgram& program) : old_(g), signature_(signature_of(g)), program_(program) {
    for (std::size_t i = 0; i < signature_.inputs.size(); ++i) lines_.emplace(signature_.inputs[i].name, i);
    std::unordered_map<std::string_view, std::size_t> by_target;
    for (std::size_t i = 0; i < signature_.inputs.size(); ++i)
      if (const SignatureLine& line = signature_.inputs[i]; is_stored_kind(line.kind)) {
        by_target.emplace(line.target, i);
        of_module_[parent_of(line.target)].push_back(i);
      }
    for (const FxGroup& group : program.groups)
      if (group.name >= 0) made_.insert(group.text.name);
    for (const GraphValue& v : g.values) made_.insert(v.name);
    for (const auto& [id, t] : g.initializers) {
      std::string_view fx = note_at(t.metadata, original_name_key);
      if (fx.empty()) fx = note_at(g.values[static_cast<std::size_t>(id)].metadata, original_name_key);
      if (auto l = lines_.find(fx); l != lines_.end())
        present_[l->second] = id;
      else if (auto t2 = by_target.find(t.name); t2 != by_target.end())
        present_[t2->second] = id;
    }
  }

  bool anything_to_do() const {
    bool missing = false;
    for (std::size_t i = 0; i < signature_.inputs.size(); ++i)
      missing = missing || (is_stored_kind(signature_.inputs[i].kind) && !present_.count(i));
    return missing && (!unread(old_).empty() ||
                       std::any_of(program_.groups.begin(), program_.groups.end(), [&](const FxGroup& group) {
                         return group.name >= 0 && !not_read(group, old_).open.empty();
                       }));
  }

  Graph run() {
    g_ = old_;
    for (const FxGroup& group : program_.groups)
      if (group.name >= 0) restore(group);
    for (auto& [i, node] : after_) {
      auto& next = before_[i + 1];
      next.insert(next.begin(), std::move(node));
    }
    insert_nodes(g_.nodes, before_);
    for (GraphValueId id : unread(g_)) g_.initializers.erase(id);
    return std::move(g_);
  }

 private:
  struct Read {
    std::size_t node = 0, input = 0;
    GraphValueId id = -1;
  };

  /// What a call's text and its nodes do not agree on.
  struct NotRead {
    std::vector<std::size_t> named,
        open;                 ///< lines of the signature: all that the text names, those that no node reads
    std::vector<Read> reads;  ///< of tensors that the text does not name
  };

  NotRead not_read(const FxGroup& group, const Graph& g) const {
    NotRead out;
    std::unordered_set<std::string_view> told;  // "%view_2" of an optimizer's making is no parameter of the call
    auto use = [&](ValueId name) {
      const std::string_view called = program_.names[static_cast<std::size_t>(name.index)];
      told.insert(called);
      const auto it = lines_.find(called);
      if (it != lines_.end() && is_stored_kind(signature_.inputs[it->second].kind)) out.named.push_back(it->second);
      if (const auto viewed = it == lines_.end() ? viewed_line(group, called) : std::nullopt)
        out.named.push_back(*viewed);
    };
    for (const Arg& a : group.text.args) for_each_value(a, use);
    for (const auto& [key, a] : group.text.kwargs) for_each_value(a, use);
    if (out.named.empty()) return out;
    std::vector<Read> of_groups;  // a group norm's own ones and zeros, unless they are its weights
    const bool grouped = group.text.target.find("group_norm") != std::string_view::npos;
    for (std::int32_t n : group.nodes) {
      const GraphNode& node = g.nodes[static_cast<std::size_t>(n)];
      if (is_recurrent(node)) continue;  // its tensors are several joined to one
      std::vector<Read>& reads = grouped && node.op_type == "InstanceNormalization" ? of_groups : out.reads;
      const auto& inputs = node.inputs;
      for (std::size_t i = 0; i < inputs.size(); ++i)
        if (auto t = g.initializers.find(inputs[i]); t != g.initializers.end() && is_floating(t->second.dtype) &&
                                                     (!t->second.sizes.empty() || is_own(t->first)) &&
                                                     (is_own(t->first) || !is_told(told, t->second.name)))
          reads.push_back({static_cast<std::size_t>(n), i, inputs[i]});
    }
    if (out.reads.empty()) out.reads = std::move(of_groups);
    for (std::size_t line : out.named) {
      const auto have = present_.find(line);
      const auto it = have == present_.end() ? out.reads.end()
                                             : std::find_if(out.reads.begin(), out.reads.end(),
                                                            [&](const Read& r) { return r.id == have->second; });
      if (it == out.reads.end())
        out.open.push_back(line);
      else
        out.reads.erase(it);
    }
    return out;
  }

  /// `x * self.scale.view(self.shape)` of a scale that was equal to another module's tensor: no node makes the view,
  /// and the line alone tells what it shows.
  std::optional<std::size_t> viewed_line(const FxGroup& group, std::string_view called) const {
    if (!may_show_all(op_of_name(called)) || made_.contains(called)) return std::nullopt;
    const GraphNode& node = old_.nodes[static_cast<std::size_t>(group.nodes.back())];
    const auto own = of_module_.find(module_of_node(node));
    return own == of_module_.end() ? std::nullopt : named_in_line(node, signature_, own->second, present_);
  }

  /// "add_40" where the text has it, or "add_57": equal results of several modules are one tensor.
  bool is_told(const std::unordered_set<std::string_view>& told, std::string_view name) const {
    return std::ranges::any_of(
        told, [&](std::string_view other) { return !lines_.contains(other) && op_of_name(other) == op_of_name(name); });
  }

  /// Whether a tensor is that of a line; other numbers are the program's.
  bool is_own(GraphValueId id) const {
    return std::ranges::any_of(present_, [&](const auto& line) { return line.second == id; });
  }

  /// Pairs the parameters that the text of a call names with the stored tensors that its nodes read.
  void restore(const FxGroup& group) {
    const auto [named, open, reads] = not_read(group, g_);
    if (open.empty()) return;
    if (group.text.target.find("batch_norm") != std::string_view::npos) {
      const auto conv = std::find_if(group.nodes.begin(), group.nodes.end(), [&](std::int32_t n) {
        const std::string& op = g_.nodes[static_cast<std::size_t>(n)].op_type;
        return op == "Conv" || op == "ConvTranspose" || op == "Gemm";
      });
      if (conv != group.nodes.end()) return unfold(group, static_cast<std::size_t>(*conv), named);
    }
    if (std::ranges::any_of(group.nodes,
                            [&](std::int32_t n) { return is_recurrent(g_.nodes[static_cast<std::size_t>(n)]); }))
      return restore_recurrent(group, open);
    if (restore_product(group, open, reads)) return;
    std::vector<bool> taken(open.size(), false);
    for (const Read& read : reads)
      for (std::size_t k = 0; k < open.size(); ++k)
        if (!taken[k] && may_be(open[k], read)) {
          taken[k] = true;
          put_back(group, open[k], read);
          break;
        }
    if (open.size() > reads.size() && open.back() == bias_of(group)) add_bias(group, open.back());
  }

  /// Whether what a node reads can be the tensor of a line. One that the file has, and that nodes elsewhere turned for
  /// this call as well, is no other of its size: modules that are called twice read it through the first call's nodes.
  bool may_be(std::size_t line, const Read& read) const {
    const auto have = present_.find(line);
    if (have == present_.end()) return true;
    const auto& sizes = g_.initializers.at(have->second).sizes;
    const auto& found = g_.initializers.at(read.id).sizes;
    return found == sizes || std::equal(found.begin(), found.end(), sizes.rbegin(), sizes.rend());
  }

  /// A layer over a table of coordinates, `self.cpb_mlp(self.relative_coords_table)` of Swin V2: its product is worked
  /// out, and neither factor is in the file. The table has a coordinate for each of the dimensions that it spans.
  bool restore_product(const FxGroup& group, const std::vector<std::size_t>& open, const std::vector<Read>& reads) {
    if (group.text.target.find("aten.linear") == std::string_view::npos || open.size() < 2 || reads.empty() ||
        signature_.inputs[open[0]].kind != "BUFFER" || signature_.inputs[open[1]].kind != "PARAMETER" ||
        std::ranges::any_of(group.nodes, [&](std::int32_t n) {
          const std::string& op = g_.nodes[static_cast<std::size_t>(n)].op_type;
          return op == "MatMul" || op == "Gemm";
        }))
      return false;
    const Read read = reads[0];
    const DType dtype = g_.initializers.at(read.id).dtype;
    std::vector<std::int64_t> table = g_.initializers.at(read.id).sizes;
    if (table.size() < 3 || table[0] != 1) return false;
    const auto axes = static_cast<std::int64_t>(table.size()) - 2;
    const std::int64_t features = std::exchange(table.back(), axes);
    GraphNode& node = g_.nodes[read.node];
    GraphNode turn, product;
    for (GraphNode* n : {&turn, &product}) n->metadata = node.metadata;
    turn.name = node.name + "_weight";
    turn.op_type = "Transpose";
    turn.attributes["perm"] = std::vector<std::int64_t>{1, 0};
    turn.inputs = {stored(open[1], dtype, {features, axes})};
    turn.outputs = {new_value(turn.name, dtype, nullptr)};
    product.name = node.name + "_product";
    product.op_type = "MatMul";
    product.inputs = {stored(open[0], dtype, std::move(table)), turn.outputs[0]};
    product.outputs = {new_value(product.name, dtype, nullptr)};
    node.inputs[read.input] = product.outputs[0];
    auto& there = before_[read.node];
    there.push_back(std::move(turn));
    there.push_back(std::move(product));
    if (open.size() > 2 && reads.size() > 1) put_back(group, open[2], reads[1]);  // its bias is another layer's as well
    return true;
  }

  /// A recurrent layer's parameters, which its nodes read joined to one tensor for both directions: W [directions,
  /// rows, inputs], R [directions, rows, hidden]. The text lists them in the order of torch.nn.RNNBase: for each layer
  /// and direction weight_ih, weight_hh and, if it has any, bias_ih, bias_hh.
  void restore_recurrent(const FxGroup& group, const std::vector<std::size_t>& open) {
    const Arg::List* listed = nullptr;
    for (const Arg& a : group.text.args)
      if (const auto* list = std::get_if<Arg::List>(&a.value); list && list->size() > 1) listed = list;
    std::vector<const GraphNode*> layers;
    for (std::int32_t n : group.nodes)
      if (is_recurrent(g_.nodes[static_cast<std::size_t>(n)])) layers.push_back(&g_.nodes[static_cast<std::size_t>(n)]);
    if (!listed || listed->size() % layers.size() != 0) return;
    DType dtype = DType::float32;
    for (GraphValueId id : layers.front()->inputs)
      if (const auto t = g_.initializers.find(id); t != g_.initializers.end()) dtype = t->second.dtype;
    const std::size_t of_layer = listed->size() / layers.size();
    for (std::size_t i = 0; i < listed->size(); ++i) {
      const auto* name = std::get_if<ValueId>(&(*listed)[i].value);
      const auto line = name ? lines_.find(program_.names[static_cast<std::size_t>(name->index)]) : lines_.end();
      if (line == lines_.end() || std::ranges::find(open, line->second) == open.end()) continue;
      const GraphNode& node = *layers[i / of_layer];
      const auto both = node.attributes.find("direction");
      const auto* direction = both != node.attributes.end() ? std::get_if<std::string>(&both->second) : nullptr;
      const std::size_t directions = direction && *direction == "bidirectional" ? 2 : 1;
      const std::size_t each = of_layer / directions;
      auto sizes = each % 2 == 0 ? recurrent_sizes(g_, node, i % each)
                                 : projected_sizes(node, rows_of((*listed)[i - i % each]), i % each, each);
      if (!sizes.empty()) stored(line->second, dtype, std::move(sizes));
    }
  }

  /// Rows of a parameter that the file has; 0 where it has not.
  std::int64_t rows_of(const Arg& named) const {
    const auto* name = std::get_if<ValueId>(&named.value);
    const auto line = name ? lines_.find(program_.names[static_cast<std::size_t>(name->index)]) : lines_.end();
    const auto have = line != lines_.end() ? present_.find(line->second) : present_.end();
    if (have == present_.end() || g_.initializers.at(have->second).sizes.empty()) return 0;
    return g_.initializers.at(have->second).sizes[0];
  }

  /// The line of the bias that a layer's text names, which an optimizer drops when it is all zeros.
  std::size_t bias_of(const FxGroup& group) const {
    const std::string_view t = group.text.target;
    const auto is = [&](std::string_view op) { return t.find(op) != std::string_view::npos; };
    const std::size_t at = is("aten.linear") || is("aten.conv") ? 2
                           : is("aten.layer_norm")              ? 3
                           : is("aten.addmm")                   ? 0
                                                                : 99;
    const auto* id = at < group.text.args.size() ? std::get_if<ValueId>(&group.text.args[at].value) : nullptr;
    const auto it = id ? lines_.find(program_.names[static_cast<std::size_t>(id->index)]) : lines_.end();
    return it == lines_.end() ? static_cast<std::size_t>(-1) : it->second;
  }

  void add_bias(const FxGroup& group, std::size_t line) {
    const auto last = static_cast<std::size_t>(group.nodes.back());
    GraphNode& node = g_.nodes[last];
    if (node.op_type == "Conv" || node.op_type == "LayerNormalization") return add_third(node, line);
    const bool gemm = node.op_type == "Gemm";
    if ((!gemm && node.op_type != "MatMul") || node.inputs.size() != 2 || node.outputs.empty() || after_.count(last))
      return;
    const GraphValue& w = g_.values[static_cast<std::size_t>(node.inputs[1])];
    if (!w.shape || w.shape->size() != 2) return;
    const bool rows = gemm && number_of(node, "transB", 0) != 0;
    const std::int64_t n = (*w.shape)[rows ? 0 : 1].size;
    if (n < 0) return;
    const GraphValueId bias = stored(line, w.dtype.value_or(DType::float32), {n});
    if (gemm) {
      node.inputs.push_back(bias);
      return;
    }
    GraphNode add;
    add.op_type = "Add";
    add.name = node.name + "_bias";
    add.metadata = node.metadata;
    add.outputs = {node.outputs[0]};
    const GraphValueId product = new_value(node.name + "_product", w.dtype, nullptr);
    add.inputs = {product, bias};
    g_.nodes[last].outputs[0] = product;
    after_.emplace(last, std::move(add));
  }

  /// A number per channel, or per feature as the norm's weight has them.
  void add_third(GraphNode& node, std::size_t line) {
    const GraphValue* w =
        node.inputs.size() == 2 && node.inputs[1] >= 0 ? &g_.values[static_cast<std::size_t>(node.inputs[1])] : nullptr;
    if (!w || !w->shape || w->shape->empty() || (*w->shape)[0].size < 0) return;
    node.inputs.push_back(stored(line, w->dtype.value_or(DType::float32), {(*w->shape)[0].size}));
  }

  GraphValueId new_value(std::string name, std::optional<DType> dtype, const std::vector<std::int64_t>* sizes) {
    GraphValue v;
    v.name = std::move(name);
    v.dtype = dtype;
    if (sizes) v.shape = fixed_dims(*sizes);
    g_.values.push_back(std::move(v));
    return static_cast<GraphValueId>(g_.values.size() - 1);
  }

  GraphValueId stored(std::size_t line, DType dtype, std::vector<std::int64_t> sizes) {
    if (auto it = present_.find(line); it != present_.end()) return it->second;
    return present_[line] = add_stored(g_, signature_.inputs[line], dtype, std::move(sizes));
  }

  void put_back(const FxGroup& group, std::size_t line, const Read& read) {
    const StoredTensor& t = g_.initializers.at(read.id);
    if (is_own(read.id) && !may_be_merged(t.sizes)) return;
    GraphNode& node = g_.nodes[read.node];
    const bool transposed = t.sizes.size() == 2 && is_stored_turned(group, node, read.input);
    std::vector<std::int64_t> put_in = put_in_dims(group, t.sizes);
    if (!transposed && put_in.empty()) {
      node.inputs[read.input] = stored(line, t.dtype, t.sizes);
      return;
    }
    GraphNode turn;
    turn.name = node.name + "_weight";
    turn.metadata = node.metadata;
    const auto dtype = t.dtype;
    const std::vector<std::int64_t> sizes = t.sizes;
    std::vector<std::int64_t> of_module = sizes;
    if (transposed) {
      turn.op_type = "Transpose";
      turn.attributes["perm"] = std::vector<std::int64_t>{1, 0};
      std::ranges::reverse(of_module);
    } else {
      turn.op_type = "Unsqueeze";
      for (auto dim = put_in.rbegin(); dim != put_in.rend(); ++dim) of_module.erase(of_module.begin() + *dim);
      turn.attributes["axes"] = std::move(put_in);
    }
    turn.inputs = {stored(line, dtype, std::move(of_module))};
    turn.outputs = {new_value(node.name + "_weight_t", dtype, &sizes)};
    node.inputs[read.input] = turn.outputs[0];
    before_[read.node].push_back(std::move(turn));
  }

  /// How many channels a layer makes: Conv [out, in / groups, …], ConvTranspose [in, out / groups, …], Gemm [out, in]
  /// or [in, out].
  static std::int64_t channels_of(const GraphNode& node, const std::vector<std::int64_t>& weight) {
    if (weight.size() < 2 || node.op_type == "Conv") return weight[0];
    if (node.op_type == "ConvTranspose") return checked_mul(weight[1], number_of(node, "group", 1));
    return number_of(node, "transB", 0) ? weight[0] : weight[1];
  }

  /// Conv, ConvTranspose or Gemm with folded weights -> itself, BatchNormalization. `named`: weight, bias, running mean
  /// and variance.
  void unfold(const FxGroup& group, std::size_t conv, const std::vector<std::size_t>& named) {
    GraphNode& node = g_.nodes[conv];
    const auto weight = node.inputs.size() > 1 ? g_.initializers.find(node.inputs[1]) : g_.initializers.end();
    if (weight == g_.initializers.end() || weight->second.sizes.empty() || named.size() != 4 || node.outputs.empty() ||
        after_.count(conv))
      return;
    const DType dtype = weight->second.dtype;
    const std::vector<std::int64_t> channels{channels_of(node, weight->second.sizes)};
    GraphNode norm;
    norm.op_type = "BatchNormalization";
    norm.name = node.name + "_norm";
    norm.metadata = node.metadata;
    norm.attributes["training_mode"] = std::int64_t{1};
    const auto& args = group.text.args;
    if (args.size() >= 3) {
      if (const auto* e = std::get_if<double>(&args[args.size() - 1].value)) norm.attributes["epsilon"] = *e;
      if (const auto* m = std::get_if<double>(&args[args.size() - 2].value)) norm.attributes["momentum"] = 1 - *m;
    }
    norm.outputs = {node.outputs[0]};
    const GraphValueId y = new_value(node.name + "_before_norm", dtype, nullptr);
    // A bias that the module had before the fold.
    std::string module = weight->second.name;
    module = module.substr(0, module.rfind('.')) + ".bias";
    node.inputs.resize(2);
    for (std::size_t i = 0; i < signature_.inputs.size(); ++i)
      if (signature_.inputs[i].target == module) node.inputs.push_back(stored(i, dtype, channels));
    norm.inputs = {y};
    for (std::size_t line : named) norm.inputs.push_back(stored(line, dtype, channels));
    g_.nodes[conv].outputs[0] = y;
    after_.emplace(conv, std::move(norm));
    move_home(g_, conv, std::string_view(module).substr(0, module.rfind('.')));
  }

  /// Tensors of the optimizer's making that nothing reads any more.
  std::vector<GraphValueId> unread(const Graph& g) const {
    std::unordered_set<GraphValueId> used(g.outputs.begin(), g.outputs.end());
    for (const GraphNode& n : g.nodes) used.insert(n.inputs.begin(), n.inputs.end());
    for (const auto& [line, id] : present_) used.insert(id);
    std::vector<GraphValueId> out;
    for (const auto& [id, tensor] : g.initializers)
      if (!used.count(id)) out.push_back(id);
    return out;
  }

  const Graph& old_;
  Graph g_;
  Signature signature_;
  const FxProgram& program_;
  std::unordered_map<std::string_view, std::size_t> lines_;                   ///< FX name -> line of the signature
  std::unordered_map<std::string_view, std::vector<std::size_t>> of_module_;  ///< path -> lines of what it has itself
  std::unordered_set<std::string_view> made_;                                 ///< names that the file has something for
  std::unordered_map<std::size_t, GraphValueId> present_;                     ///< line -> its tensor
  NodesBefore before_;                                                        ///< nodes to put before node i
  std::unordered_map<std::size_t, GraphNode> after_;
};

}  // namespace

std::optional<Graph> undo_folding(const Graph& graph, const FxProgram& program) {
  Restorer restorer(graph, program);
  if (!restorer.anything_to_do()) return std::nullopt;
  return restorer.run();
}

}  // namespace memplan::onnx_format
