#include "estimators/transforms/lora.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "estimators/base/error.h"
#include "estimators/base/glob.h"
#include "estimators/facts/libraries.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/setup/bitsandbytes.h"
#include "estimators/setup/field.h"
#include "estimators/setup/run_dtype.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// One call of a Linear: what it reads, what it returns.
struct Layer {
  std::int32_t scope = -1, first = 0, last = 0;
  ValueId input, output, weight, bias;
  std::int64_t in = 0, out = 0;
};

/// What peft puts in the place of a linear layer.
const std::string& adapter_class(std::string_view kind) {
  const auto& known = library_facts("adapter");
  return std::find_if(known.begin(), known.end(), [&](const LibraryFact& f) { return f.detail == kind; })->subject;
}

std::size_t at(ValueId id) { return static_cast<std::size_t>(id.index); }

/// Every call of a Linear layer, in order.
std::vector<Layer> linear_layers(const Tape& tape) {
  std::vector<Layer> layers;
  for (std::size_t i = 0; i < tape.calls.size();) {
    const std::int32_t scope = tape.calls[i].scope;
    std::size_t end = i + 1;
    while (end < tape.calls.size() && tape.calls[end].scope == scope) ++end;
    const LibraryFact* linear =
        scope < 0 ? nullptr : fact_of_class("linear", tape.scopes[static_cast<std::size_t>(scope)].module_class);
    if (linear) {
      // A Linear returns one tensor: what cuts it up was put into its scope by an exporter's optimizer.
      std::size_t past = end;
      while (past > i + 1 && tape.calls[past - 1].outputs.size() != 1) --past;
      Layer l;
      l.scope = scope;
      l.first = static_cast<std::int32_t>(i);
      l.last = static_cast<std::int32_t>(past - 1);
      for (std::size_t k = i; k < past; ++k)
        for_each_value(tape.calls[k], [&](ValueId id) {
          const TapeValue& v = tape.values[at(id)];
          if (v.kind != ValueKind::parameter) {
            if (k == i && !l.input.valid()) l.input = id;
          } else if (v.sizes.size() == 2) {
            l.weight = id;
          } else {
            l.bias = id;
          }
        });
      const Call& last = tape.calls[past - 1];
      if (!last.outputs.empty()) l.output = last.outputs.front();
      if (l.weight.valid() && l.input.valid() && l.output.valid()) {
        const TapeValue& w = tape.values[at(l.weight)];
        const bool transposed = linear->detail == "transposed";
        l.in = w.sizes[transposed ? 0 : 1];
        l.out = w.sizes[transposed ? 1 : 0];
        layers.push_back(l);
      }
    }
    i = end;
  }
  return layers;
}

/// peft matches whole paths and their ends; globs do as well.
bool targeted(std::string_view path, const std::string& target) {
  return path == target ||
         (path.size() > target.size() && path.ends_with(target) && path[path.size() - target.size() - 1] == '.') ||
         matches_glob(path, target);
}

/// The layers that get adapters. Without targets all but the last one, which makes the logits ("all-linear").
std::set<std::string> chosen_paths(const Tape& tape, const std::vector<Layer>& layers,
                                   const std::vector<std::string>& targets) {
  std::set<std::string> paths;
  auto path_of = [&](const Layer& l) -> const std::string& {
    return tape.scopes[static_cast<std::size_t>(l.scope)].path;
  };
  if (targets.empty()) {
    for (const Layer& l : layers) paths.insert(path_of(l));
    if (paths.size() > 1) paths.erase(path_of(layers.back()));
  }
  for (const std::string& target : targets) {
    bool found = false;
    for (const Layer& l : layers)
      if (targeted(path_of(l), target)) {
        paths.insert(path_of(l));
        found = true;
      }
    if (!found)
      fail(ErrorKind::usage, fmt::format("no nn.Linear matches '{}'", target),
           setting(Field::lora, "targets=" + target),
           layers.empty() ? "the file names no nn.Linear"
                          : fmt::format("they have paths such as '{}'", path_of(layers.front())));
  }
  if (paths.empty())
    fail(ErrorKind::usage, "the model has no nn.Linear for an adapter", setting(Field::lora),
         "leave " + setting(Field::lora) + " out");
  return paths;
}

/// Weights whose dtype the program asks for, `x.to(self.wo.weight.dtype)`. Packed ones would make integers of its
/// activations: transformers keeps such layers as they are (`_keep_in_fp32_modules`, which its quantizers skip).
std::set<ValueId> asked_for_dtype(const Tape& tape) {
  std::set<ValueId> weights;
  for (const Call& c : tape.calls)
    if (c.op == "aten::type_as" && c.args.size() > 1)
      if (const auto* other = std::get_if<ValueId>(&c.args[1].value)) weights.insert(*other);
  return weights;
}

class Adapters {
 public:
  Adapters(Tape& tape, const LoraSetup& lora, Precision precision)
      : tape_(tape),
        lora_(lora),
        precision_(precision),
        keeps_inputs_(bitsandbytes_keeps_inputs(lora.bitsandbytes).value_or(false)) {}

  void run() {
    for (ValueId id : tape_.parameters) tape_.values[at(id)].requires_grad = false;
    const std::vector<Layer> layers = linear_layers(tape_);
    const std::set<std::string> paths = chosen_paths(tape_, layers, lora_.targets);
    const std::set<ValueId> plain = asked_for_dtype(tape_);
    std::vector<Call> old = std::move(tape_.calls);
    tape_.calls.clear();
    std::size_t next = 0;
    for (const Layer& l : layers) {
      const std::string path = tape_.scopes[static_cast<std::size_t>(l.scope)].path;
      const bool adapted = paths.count(path),
                 packed = lora_.quantized && &l != &layers.back() && !plain.count(l.weight);
      for (; next < static_cast<std::size_t>(l.first); ++next) append(std::move(old[next]));
      const std::int32_t base = adapted ? base_scope(l, path) : l.scope;
      if (packed) {
        pack(l, adapted ? path + ".base_layer" : path);
        append(packed_call(l, base));
        next = static_cast<std::size_t>(l.last) + 1;
      }
      for (; next <= static_cast<std::size_t>(l.last); ++next) {
        old[next].scope = base;
        append(std::move(old[next]));
      }
      if (adapted) adapt(l, path, packed);
    }
    for (; next < old.size(); ++next) append(std::move(old[next]));
    for (ValueId& id : tape_.outputs) id = now(id);
    order_parameters();
  }

 private:
  ValueId now(ValueId id) const {
    const auto it = renamed_.find(id);
    return it == renamed_.end() ? id : it->second;
  }

  void append(Call call) {
    replace_values(call, [&](ValueId id) { return Arg{now(id)}; });
    tape_.calls.push_back(std::move(call));
  }

  /// A statement of peft's layers: the name that it binds, which may be none, and where it stands.
  struct Line {
    std::string place;
    std::int32_t binding = -1;
  };
  Line line(const char* place, const char* name) { return {place, tape_.add_binding({name})}; }

  std::int32_t add_scope(std::int32_t parent, std::string path, std::string module_class, Line caller) {
    Scope s;
    s.path = std::move(path);
    s.module_class = std::move(module_class);
    s.parent = parent;
    s.source = std::move(caller.place);
    s.binding = caller.binding;
    tape_.scopes.push_back(s);
    return static_cast<std::int32_t>(tape_.scopes.size() - 1);
  }

  std::int32_t base_scope(const Layer& l, const std::string& path) {
    const std::string inner = tape_.scopes[static_cast<std::size_t>(l.scope)].module_class;
    tape_.scopes[static_cast<std::size_t>(l.scope)].module_class = adapter_class(lora_.quantized ? "packed" : "plain");
    for (ValueId id : {l.weight, l.bias})
      if (id.valid()) {
        std::string& name = tape_.values[at(id)].name;
        if (name.starts_with(path + ".") && !name.starts_with(path + ".base_layer."))
          name.insert(path.size(), ".base_layer");
      }
    return add_scope(l.scope, path + ".base_layer", inner, line("peft/tuners/lora/layer.py:1088", "result"));
  }

  ValueId parameter(const std::string& name, std::vector<std::int64_t> sizes) {
    TapeValue v;
    v.name = name;
    v.kind = ValueKind::parameter;
    v.sizes = std::move(sizes);
    v.requires_grad = true;
    v.keeps_dtype = true;
    return tape_.add_value(std::move(v));
  }

  ValueId emit(std::string op, std::vector<Arg> args, std::int32_t scope, Line at, std::string name) {
    TapeValue v;
    v.name = std::move(name);
    Call c;
    c.op = std::move(op);
    c.args = std::move(args);
    c.scope = scope;
    c.source = std::move(at.place);
    c.binding = at.binding;
    c.outputs = {tape_.add_value(std::move(v))};
    tape_.calls.push_back(c);
    return c.outputs.front();
  }

  /// dtype of the base layer's result: autocast lowers it, and a converted model has nothing else.
  DType result_dtype() const {
    switch (precision_) {
      case Precision::amp_bf16:
      case Precision::bf16:
        return DType::bfloat16;
      case Precision::amp_fp16:
      case Precision::fp16:
        return DType::float16;
      case Precision::fp32:
        break;
    }
    return DType::float32;
  }

  void adapt(const Layer& l, const std::string& path, bool packed) {
    auto& [a, b] = factors_[path];
    if (!a.valid()) {
      a = parameter(path + ".lora_A.default.weight", {lora_.rank, l.in});
      b = parameter(path + ".lora_B.default.weight", {l.out, lora_.rank});
      after_[at(l.bias.valid() ? l.bias : l.weight)] = {a, b};
    }
    // result = result + lora_B(lora_A(dropout(x))) * scaling, in two statements where weights are packed
    const Line sum =
        packed ? line("peft/tuners/lora/bnb.py:613", "output") : line("peft/tuners/lora/layer.py:1102", "result");
    const bool amp = is_amp(precision_), lower = result_dtype() != DType::float32;
    const ValueId base = now(l.output);
    ValueId x = now(l.input), result = base;
    if (packed)
      result = emit("aten::clone", {{result}}, l.scope, line("peft/tuners/lora/bnb.py:585", "result"), "result");
    // Without autocast, and in lora.Linear always, the input follows the adapter's dtype.
    if (lower && !(packed && amp))
      x = emit("aten::to.dtype", {{x}, {DType::float32}}, l.scope, line("peft/tuners/lora/layer.py:1100", "x"), "x");
    ValueId h = x;
    if (lora_.dropout > 0)
      h = emit("aten::dropout", {{h}, {lora_.dropout}, {true}},
               add_scope(l.scope, path + ".lora_dropout.default", "torch.nn.modules.dropout.Dropout", sum),
               Line{"torch/nn/modules/dropout.py:73"}, "dropout");
    const Line linear{"torch/nn/modules/linear.py:134"};
    h = emit("aten::linear", {{h}, {a}},
             add_scope(l.scope, path + ".lora_A.default", "torch.nn.modules.linear.Linear", sum), linear, "lora_A");
    h = emit("aten::linear", {{h}, {b}},
             add_scope(l.scope, path + ".lora_B.default", "torch.nn.modules.linear.Linear", sum), linear, "lora_B");
    h = emit("aten::mul.Tensor", {{h}, {2.0}}, l.scope, sum, "scaled");
    if (packed) {
      if (lower && !amp)
        h = emit("aten::to.dtype", {{h}, {result_dtype()}}, l.scope, line("peft/tuners/lora/bnb.py:622", "output"),
                 "output");
      result =
          emit("aten::add.Tensor", {{result}, {h}}, l.scope, line("peft/tuners/lora/bnb.py:623", "result"), "result");
    } else {
      result = emit("aten::add.Tensor", {{result}, {h}}, l.scope, sum, "result");
      if (lower)
        result = emit("aten::to.dtype", {{result}, {result_dtype()}}, l.scope,
                      line("peft/tuners/lora/layer.py:1113", "result"), "result");
    }
    renamed_[l.output] = result;
  }

  /// The weight as bitsandbytes keeps it: two values a byte, and the state that turns them back.
  void pack(const Layer& l, const std::string& path) {
    TapeValue& w = tape_.values[at(l.weight)];
    if (w.dtype == DType::uint8 || w.same_storage_as.valid()) return;
    const std::int64_t n = checked_mul(l.in, l.out), blocks = (n + 63) / 64;
    w.dtype = DType::uint8;
    w.sizes = {(n + 1) / 2, 1};
    auto buffer = [&](const char* name, DType dtype, std::vector<std::int64_t> sizes) {
      TapeValue v;
      v.name = path + ".weight." + name;
      v.kind = ValueKind::buffer;
      v.dtype = dtype;
      v.sizes = std::move(sizes);
      v.keeps_dtype = true;
      tape_.buffers.push_back(tape_.add_value(std::move(v)));
    };
    buffer("absmax", DType::uint8, {blocks});
    buffer("quant_map", DType::float32, {16});
    buffer("nested_absmax", DType::float32, {(blocks + 255) / 256});
    buffer("nested_offset", DType::float32, {});
  }

  Call packed_call(const Layer& l, std::int32_t scope) const {
    Call c;
    c.op = "bitsandbytes::linear_4bit";
    c.args = {{l.input}, {l.weight}, l.bias.valid() ? Arg{l.bias} : Arg{}, {l.out}, {keeps_inputs_}};
    c.scope = scope;
    c.source = "bitsandbytes/nn/modules.py:564";
    c.outputs = {l.output};
    return c;
  }

  /// An adapter is registered after the layer that it wraps.
  void order_parameters() {
    std::vector<ValueId> order;
    for (ValueId id : tape_.parameters) {
      order.push_back(id);
      if (const auto it = after_.find(at(id)); it != after_.end()) {
        order.push_back(it->second.first);
        order.push_back(it->second.second);
      }
    }
    tape_.parameters = std::move(order);
  }

  Tape& tape_;
  const LoraSetup& lora_;
  Precision precision_;
  bool keeps_inputs_;                   ///< of 4-bit layers
  std::map<ValueId, ValueId> renamed_;  ///< result of a layer -> result with its adapter
  std::map<std::string, std::pair<ValueId, ValueId>> factors_;
  std::map<std::size_t, std::pair<ValueId, ValueId>> after_;
};

}  // namespace

void add_adapters(Tape& tape, const LoraSetup& lora, Precision precision) {
  Adapters(tape, lora, precision).run();
  mark_last_uses(tape);
}

std::vector<std::string> adapter_targets(const Tape& tape, const LoraSetup& lora) {
  // The tape may have its adapters already: their base layers then stand one level deeper.
  std::vector<std::string> paths;
  for (const Scope& s : tape.scopes)
    if (fact_of_class("adapter", s.module_class) && std::find(paths.begin(), paths.end(), s.path) == paths.end())
      paths.push_back(s.path);
  if (!paths.empty()) return paths;
  for (const std::string& path : chosen_paths(tape, linear_layers(tape), lora.targets)) paths.push_back(path);
  return paths;
}

}  // namespace memplan
