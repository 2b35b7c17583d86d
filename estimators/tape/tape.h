// One forward pass as a straight line of ATen calls, the vocabulary that every frontend lowers to.
//
// Shapes of inputs and parameters are concrete; every later shape follows from the calls, because the rows of
// estimators/runtime/torch/aten/ state the shape rule of each op. Integer results (aten::sym_size.int, _operator.mul …)
// are values like any other, so the same tape serves every batch size: bind other input shapes and run it again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "estimators/base/dtype.h"
#include "estimators/base/evidence.h"
#include "estimators/setup/bound_dim.h"
#include "estimators/tape/reading.h"

namespace memplan {

namespace recording {
struct Steps;
}
struct BoundGraph;

struct OwnFunction;  // tape/own_function.h
struct Kept;

/// Index into Tape::values.
struct ValueId {
  std::int32_t index = -1;
  friend auto operator<=>(ValueId, ValueId) = default;
  bool valid() const { return index >= 0; }
};

/// An argument of a call. A ValueId may stand for a tensor or for a number computed earlier.
/// `List` holds lists of tensors, of optional tensors (none inside), or of integers that contain values.
struct Arg {
  struct None {
    friend bool operator==(None, None) = default;
  };
  using List = std::vector<Arg>;
  std::variant<None, ValueId, std::int64_t, double, bool, std::string, DType, List> value = None{};

  bool is_none() const { return std::holds_alternative<None>(value); }
};

enum class ValueKind : std::uint8_t {
  user_input,  ///< part of the batch
  parameter,   ///< trainable unless frozen
  buffer,      ///< registered buffer: moves with the module, never trained
  constant,    ///< tensor constant of the graph (counted like a buffer)
  computed,    ///< result of a call
};

struct TapeValue {
  std::string name;  ///< fully qualified for parameters ("transformer.h.0.ln_1.weight"), else the graph's name
  ValueKind kind = ValueKind::computed;
  DType dtype = DType::float32;        ///< of inputs, parameters, buffers and constants
  std::vector<std::int64_t> sizes;     ///< likewise
  bool requires_grad = false;          ///< of parameters: false when frozen
  ValueId same_storage_as;             ///< tied parameters: the first one of the group
  std::optional<std::int64_t> number;  ///< a scalar integer input or constant whose value is known
  bool on_host = false;                ///< 0-dim constants that PyTorch keeps on the CPU
  bool keeps_dtype = false;   ///< model.to(dtype) comes before it is made: its dtype stays whatever the precision
  bool in_attribute = false;  ///< a module's attribute holds it until the next forward pass makes it anew
};

/// What one statement of a frame (a module's forward) does with the frame's names, as far as they keep tensors alive.
/// Calls and modules that follow each other with the same binding are one run of that statement. Read from lines of
/// Python (restore/names.h), or set by a pass that puts calls in.
struct Binding {
  /// Names that get the results, one list per `=`: "a = b, c = f()" is {a}, {b, c}. A name holds its tensor until it is
  /// bound again or the frame returns. Empty: results go with their last use.
  std::vector<std::vector<std::string>> targets;
  bool calls_local = false;       ///< all it does is call a local name, "x = module(x)": a loop's turn calls one module
  bool makes_list = false;        ///< its value is a list, "skips = [self.inc(x)]"
  std::string collects;           ///< the list or dict that gets its result: "outs" of "outs.append(self.head(x))"
  std::vector<std::string> pops;  ///< lists that give an element away here: "x = up(x, skips.pop())"
  /// Ops of a plain function called here whose first result a name inside of that function holds until the statement
  /// ends; an op that stands here twice, its first two results. "aten::mul.Tensor(0)": what the first such op reads.
  std::vector<std::string> held;
};

/// One level of nn.Module nesting around a call: its path ("layer1.0.conv1") and class ("torch.nn.Conv2d").
struct Scope {
  std::string path;
  std::string module_class;
  std::int32_t parent = -1;  ///< index into Tape::scopes, -1 for the root
  std::int32_t call = 0;     ///< numbers repeated calls of the same module
  std::string source;        ///< the caller's line: "torchvision/models/resnet.py:92 out = self.conv1(x)"; may be empty
  std::int32_t binding = -1;  ///< index into Tape::bindings: the caller's statement
};

struct Call {
  std::string op;  ///< "aten::linear", with an overload where PyTorch has several: "aten::add.Tensor"
  std::vector<Arg> args;
  std::vector<std::pair<std::string, Arg>> kwargs;
  std::vector<ValueId> outputs;
  std::int32_t scope = -1;  ///< index into Tape::scopes
  /// "torchvision/models/resnet.py:92 out = self.conv1(x)", or a place alone, "peft/tuners/lora/layer.py:1102", where
  /// a transform knows the library's line; may be empty. Never made up.
  std::string source;
  std::int32_t binding = -1;  ///< index into Tape::bindings: the statement that makes it; -1: results are temporaries
  bool no_autocast = false;   ///< the module runs it with autocast off
  /// Numbers the applications of autograd.Functions of the model's own, whose forward passes the export took apart; -1:
  /// part of none.
  std::int32_t function = -1;
  /// Numbers the applications of torch.utils.checkpoint, as a recording saw them; -1: outside of all.
  std::int32_t checkpoint = -1;
  bool unknown = false;                    ///< the frontend knows no ATen op for it: outputs take `known_shapes`
  std::shared_ptr<const OwnFunction> own;  ///< an application of an autograd.Function that was recorded
  std::shared_ptr<const Kept> kept;        ///< what autograd kept when it ran; what an op without a row falls back to
  /// Of the outputs, where the file tells all of them; what an op without a row falls back to.
  std::vector<std::pair<DType, std::vector<std::int64_t>>> known_shapes;
  /// Values that are known to be let go once this call has returned, whatever bindings say: for frontends that saw the
  /// program run, and for transforms that know when. mark_last_uses takes them over.
  std::vector<ValueId> releases;
  /// Values whose last reference goes once this call has returned: computed by mark_last_uses (restore/lifetimes.h).
  std::vector<ValueId> last_uses;
};

/// What a frontend did to get from the file to ATen calls, for the report.
struct Recovery {
  std::string op;    ///< "aten::layer_norm"
  std::string from;  ///< "ReduceMean/Sub/Pow/…" or "fx_node metadata"
  std::int64_t count = 0;
  Evidence evidence = Evidence::proven_by_file;
  About about = About::op;
};

/// What the file says of its program, for the passes that restore what its exporter lost.
struct Exported {
  bool functional = true;    ///< in-place ops were taken out
  bool recorded = false;     ///< the program was seen running: nothing is lost, names included
  bool in_eval = false;      ///< seen in evaluation mode
  bool in_training = false;  ///< some dropout or batch norm of a file is as in training
  bool strict = false;       ///< by torch.export's strict mode, which lists no tensors that no op reads
  bool in_dtype = false;     ///< seen with the weights in the setup's dtype
  Bytes folded_away;         ///< small tensors that an optimizer worked out or merged: off by as much
  Bytes merged_parameters;   ///< small ones of them that are equal to another module's, which may be one with it
  bool tells_frozen = true;  ///< the file says which parameters want no gradients
  bool keeps_casts = false;  ///< conversions that do nothing are calls too, with who asked for them
  /// Results of conversions to fp32, or to the dtype of some tensor: nothing says which.
  std::vector<ValueId> unseen_casts;
  std::vector<std::string> inplace_modules;  ///< paths of modules that were constructed with inplace=True
  std::vector<std::string> lost_parameters;  ///< paths of those that no node of the file reads
  std::vector<std::string> left_out;         ///< names of calls that the exporter made and the file has lost: "cat_5"
  bool checkpoints_seen =
      false;  ///< the exporter watched torch.utils.checkpoint and noted what it saw: lines need not tell
};

/// A stretch of calls that runs under torch.utils.checkpoint: one call of a module, or of neighbours in a list of
/// modules.
struct CheckpointRegion {
  std::int32_t first = 0, last = 0;  ///< calls, both inside
  std::int32_t scope = -1;
  std::vector<std::int32_t> others;  ///< scopes of the modules that follow in the same stretch
};

struct Tape {
  std::vector<TapeValue> values;
  std::vector<Call> calls;
  std::vector<Scope> scopes;
  std::vector<Binding> bindings;
  std::vector<ValueId> inputs;      ///< user inputs, in the order of the model's signature
  std::vector<ValueId> parameters;  ///< in registration order where the file tells it
  std::vector<ValueId> buffers;
  std::vector<ValueId> outputs;
  std::vector<CheckpointRegion>
      checkpoints;             ///< ascending; those inside of another one follow it, others never overlap
  std::vector<BoundDim> dims;  ///< in the order of the inputs
  Exported exported;
  std::vector<Recovery> recovered;
  Notes notes;      ///< what was put back, taken for granted or found on the way
  Reading reading;  ///< of what the file leaves open
  /// Of a recorded program: its steps are not worked out from calls (there are none) but were written down.
  std::shared_ptr<const recording::Steps> recorded;
  /// For a runtime that runs the file's own nodes instead of ATen calls (there are none then): graph/bound_graph.h.
  std::shared_ptr<const BoundGraph> graph;
  /// What restore() began with, for other readings of the same file; null where it was not kept.
  std::shared_ptr<const Tape> lowered;

  ValueId add_value(TapeValue value) {
    values.push_back(std::move(value));
    return ValueId{static_cast<std::int32_t>(values.size() - 1)};
  }
  /// A statement that binds its results to `names` ("q, k" is {q, k}), as an index for Call::binding.
  std::int32_t add_binding(std::vector<std::string> names) {
    bindings.emplace_back();
    if (!names.empty()) bindings.back().targets.push_back(std::move(names));
    return static_cast<std::int32_t>(bindings.size() - 1);
  }
};

}  // namespace memplan
