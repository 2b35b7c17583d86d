// What it takes to make a call of a module once more, for another module: paths of modules, and names in its text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/frontends/onnx/signature.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// The exporter's key of the modules around a node, outermost first, and the node's own name.
inline constexpr const char* scopes_key = "pkg.torch.onnx.name_scopes";
/// Likewise, their classes and the node's op.
inline constexpr const char* classes_key = "pkg.torch.onnx.class_hierarchy";

/// The innermost module of a call.
std::string_view module_of_node(const GraphNode& node);

/// "layer.norm" of "layer.norm.weight"; empty of what the model has itself.
std::string_view parent_of(std::string_view path);

/// "layers.0.attn" is within "layers.0", and everything within the root.
bool is_within(std::string_view path, std::string_view root);

/// Of a module and another one: where the first one's path leaves the other's, "layers.0" of "layers.0.attn.rope" and
/// "layers.1" of "layers.1.attn". Empty where it never does. `index`: both go on with a number there. `inner`: where
/// their last numbers differ, "stages.0.1" of "stages.0.1.drop" and "stages.2.4" of "stages.2.4.drop".
struct Parting {
  std::string_view root, other;
  bool index = false;
  std::string_view inner = root, inner_other = other;
};
Parting parting(std::string_view path, std::string_view other);

/// A path within the module, moved to the other one; the path where it is not within.
std::string moved(std::string_view path, const Parting& p);

/// Paths of the module in a printed list, moved to the other one.
std::string with_module(const std::string& text, const Parting& p);

/// Puts a node of one module into another of the same class that `reader` is in: of "q_proj" into "v_proj", of "down.0"
/// into "up.1". The lines around the two modules are the reader's. Nothing happens where the classes differ.
void move_to_twin(GraphNode& node, const GraphNode& reader);

/// The first `frames` of the node's trace become the reader's: a module's frame is one entry of it.
void lead_with(GraphNode& node, const GraphNode& reader, std::size_t frames);

/// The lines that lead to the module which both nodes are in become the reader's.
void move_lines(GraphNode& node, const GraphNode& reader);

/// The text with other names: "%mul_3" -> "%mul_7".
std::string renamed(std::string_view text, const std::unordered_map<std::string, std::string>& names);

/// Ops that share their input's memory, or that an optimizer leaves out where they change nothing: a name that is gone
/// may be one of these.
bool may_do_nothing(std::string_view op);

/// What such a call does not change its other argument with; none for other ops.
std::optional<double> neutral_number(std::string_view op);

/// The call of such a name, as the exporter writes it, where the node that reads its argument does its work or nothing
/// is left of it: two bounds after each other are one Clip (FuseRelusClips of onnxscript; `bound`: the reader is one);
/// a pad by nothing is gone, and PyTorch copies all the same (native/PadNd.cpp); a detach has no node, nor have views
/// of complex numbers, which a file has as pairs of real ones. Empty for other ops.
std::string_view call_of_same(std::string_view op, const GraphNode& reader, bool bound);

/// Whether the line of a node asks for a copy of what it makes, `y = x.expand(n, -1).clone()`: the exporter's node for
/// it does nothing, so its optimizer takes it out.
bool asks_for_copy(const GraphNode& maker);

/// `criterion(x, target.clone().detach())`: of a line that reads what it detaches the copy is gone as well. One that
/// detaches twice does not say of which. `reader`: the node of the call that reads it.
bool copies_before_detach(const GraphNode& reader);
/// How it is written, and the call of both.
inline constexpr std::string_view copying_detach = ".clone().detach()", detached_copy = "detach_copy.default";

/// The call is a ReLU or a clamp, by one node.
bool is_bound(const Graph& graph, const FxGroup& call);

/// Names of traced sizes count with those of tensors: a number that is left out proves nothing.
bool counts_sizes(std::string_view op);

/// An ATen call of one result, or a norm, whose others nobody reads.
bool gives_one(const FxGroup& call);

/// A conversion to another type makes a tensor: `mask.to(x.dtype)` of booleans.
bool converts(const Graph& graph, const FxGroup& call);

/// By name of the program: something in the graph has it.
std::vector<bool> known_names(const Graph& graph, const FxProgram& program, const Signature& signature);

/// Views that no kernel makes: their copy is `x.contiguous()`. A dropout that does nothing leaves the same name.
bool is_turned(std::string_view target);

/// 2 of "relu_2"; 0 where the name has no number.
std::int64_t number_of_name(std::string_view name);

/// Names that no tracing reaches, of calls that come again without a name of the program's.
inline constexpr std::int64_t first_fresh = 50'000'000;
inline bool is_fresh(std::string_view name) { return number_of_name(name) >= first_fresh; }

/// The first of several results, which is called "getitem": a dropout's, a norm's.
bool gives_item(const FxGroup& group);

/// Names of tensors in a call's text, without those that stand in lists of sizes.
std::vector<ValueId> tensors_of(const FxGroup& group);

/// A view that its module's last line returns is copied by nobody there, a head takes one token as it is, and attention
/// with sinks multiplies what it cut off, `dropout(probs[..., :-1])`: a dropout that does nothing follows it. `here`: a
/// node of the call that reads it, of this target; `view`: its own, under this name.
bool is_dropped_out(const GraphNode& here, const GraphNode& view, std::string_view name, std::string_view target);

/// A copy in front of these is their own, which aten::reshape makes where it is needed.
bool takes_any_layout(std::string_view target);

/// A layer that became one node with a norm of another module, "rep.0.pointwise" with "rep.1", stands where the layer
/// beside it, "rep.0.conv1", does: frames in between hold names while it runs. One with a norm of the same module gets
/// its own place and line again: names are bound anew between the two. One whose norm is further inside, in the first
/// block that gets its result, stands in the frame that calls both. `conv`: its node; `layer`: its path.
void move_home(Graph& graph, std::size_t conv, std::string_view layer);

}  // namespace memplan::onnx_format
