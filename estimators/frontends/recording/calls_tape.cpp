#include "estimators/frontends/recording/calls_tape.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>

#include "estimators/base/error.h"
#include "estimators/setup/field.h"
#include "estimators/setup/run_dtype.h"
#include "estimators/tape/own_function.h"
#include "estimators/tape/uses.h"

namespace memplan::recording {

namespace {

constexpr std::int64_t most_elements = std::int64_t{1} << 52;

std::int64_t at_batch(const OfBatch& n, std::int64_t batch) {
  const __int128 v = static_cast<__int128>(n.per_sample) * batch + n.at_zero;
  if (n.per_sample != 0 && (v > most_elements || v < -most_elements))
    fail_input(fmt::format("at batch {} a size would be {}", batch, v > 0 ? "beyond all devices" : "negative"),
               setting(Field::batch), "choose a smaller batch");
  return static_cast<std::int64_t>(v);
}

std::vector<std::int64_t> at_batch(const Shape& shape, std::int64_t batch) {
  std::vector<std::int64_t> out;
  for (const OfBatch& n : shape) {
    out.push_back(at_batch(n, batch));
    if (out.back() < 0)
      fail_input(fmt::format("at batch {} a size would be negative", batch), setting(Field::batch),
                 "choose one of the recorded batches");
  }
  return out;
}

/// "aten.mm.default" as it is written elsewhere, "aten::mm".
std::string op_name(std::string_view op) {
  const auto dot = op.find('.');
  if (dot == std::string_view::npos) return std::string(op);
  std::string_view rest = op.substr(dot + 1);
  if (rest.ends_with(".default")) rest.remove_suffix(8);
  return fmt::format("{}::{}", op.substr(0, dot), rest);
}

/// What returns its argument itself. aten::alias does not: its result lives on where the argument goes.
bool is_nothing(const StoredCall& c) {
  static const std::set<std::string_view> aliases{"aten.lift_fresh.default", "aten.detach_.default"};
  return aliases.count(c.op) > 0;
}

bool is_conversion(std::string_view op) { return op.starts_with("aten.to.") || op == "aten._to_copy.default"; }

const DType* dtype_in(const StoredCall& c) {
  for (const StoredArg& a : c.args)
    if (const auto* d = std::get_if<DType>(&a.value)) return d;
  for (const auto& [name, a] : c.kwargs)
    if (const auto* d = std::get_if<DType>(&a.value)) return d;
  return nullptr;
}

/// Values of one list of calls: the program, or a function's forward or backward pass.
class Lowering {
 public:
  /// `autocast`: the program ran under it, and calls say where it was off.
  Lowering(const Calls& calls, std::int64_t batch, bool autocast, Tape& tape)
      : calls_(calls), batch_(batch), autocast_(autocast), tape_(tape) {}

  void bind(std::int32_t number, ValueId id) { ids_[number] = id; }
  /// An input may have twice as many samples as the batch: of pairs that are joined before the module.
  auto at_batch_of(const StoredTensorValue& v) const { return at_batch(v.sizes, batch_); }
  bool knows(std::int32_t number) const { return ids_.count(number) > 0; }
  ValueId id(std::int32_t number) const {
    const auto found = ids_.find(number);
    if (found == ids_.end() || released_.count(found->second.index))
      fail_input(fmt::format("the recording is damaged: value {} is read {}", number,
                             found == ids_.end() ? "before anything made it" : "after it was let go"),
                 {}, "record the module again with memplan.record");
    return found->second;
  }

  ValueId make(std::int32_t number, ValueKind kind, std::string_view op = {}) {
    const StoredTensorValue& s = calls_.values[static_cast<std::size_t>(number)];
    if (knows(number))
      fail_input(fmt::format("the recording is damaged: value {} is made twice", number), {},
                 "record the module again with memplan.record");
    TapeValue v;
    v.name = s.role == Role::parameter || s.role == Role::buffer
                 ? s.name
                 : fmt::format("{}_{}", op.empty() ? "tensor" : op, number);
    v.kind = kind;
    v.dtype = s.dtype;
    v.sizes = at_batch(s.sizes, batch_);
    v.on_host = s.on_host;
    const ValueId made = tape_.add_value(std::move(v));
    bind(number, made);
    return made;
  }

  enum class Of : std::uint8_t { program, forward, backward };
  void run(const std::vector<StoredCall>& calls, Of of) {
    for (const StoredCall& c : calls) call(c, of);
  }

  /// Values of a list that the tape has; those that stand for an argument itself are not let go with it.
  std::vector<ValueId> ids(const std::vector<std::int32_t>& numbers) const {
    std::vector<ValueId> out;
    for (const std::int32_t n : numbers) out.push_back(n < 0 ? ValueId{} : id(n));
    return out;
  }

 private:
  Arg argument(const StoredArg& a) const {
    struct Visitor {
      const Lowering& self;
      Arg operator()(Arg::None) const { return {}; }
      Arg operator()(StoredArg::Value v) const { return {self.id(v.number)}; }
      Arg operator()(const OfBatch& n) const { return {at_batch(n, self.batch_)}; }
      Arg operator()(double d) const { return {d}; }
      Arg operator()(bool b) const { return {b}; }
      Arg operator()(const std::string& s) const { return {s}; }
      Arg operator()(DType d) const { return {d}; }
      Arg operator()(const StoredArg::List& list) const {
        Arg::List out;
        for (const StoredArg& x : list) out.push_back(self.argument(x));
        return {std::move(out)};
      }
    };
    return std::visit(Visitor{*this}, a.value);
  }

  void call(const StoredCall& c, Of of) {
    if (is_nothing(c) || (is_conversion(c.op) && !dtype_in(c))) return pass(c);
    Call out;
    out.op = op_name(c.op);
    out.source = c.source;
    out.scope = of == Of::program ? c.scope : -1;
    out.checkpoint = of == Of::program ? c.checkpoint : -1;
    // A backward pass runs without autocast unless the function asks for it.
    out.no_autocast = autocast_ ? c.without_autocast : of == Of::backward;
    arguments(c, out);
    if (c.function >= 0) out.own = function(calls_.functions[static_cast<std::size_t>(c.function)], out);
    std::string_view base = std::string_view(out.op).substr(out.op.rfind(':') + 1);
    base = base.substr(0, base.find('.'));
    bool all = true;
    for (const std::int32_t n : c.outputs) {
      if (n < 0) {
        out.outputs.emplace_back();
        all = false;
        continue;
      }
      out.outputs.push_back(make(n, ValueKind::computed, base));
      // What the file says of a result is for ops without a row; all others say it themselves.
      TapeValue& v = tape_.values[static_cast<std::size_t>(out.outputs.back().index)];
      out.known_shapes.emplace_back(v.dtype, std::move(v.sizes));
      v.sizes.clear();
      v.dtype = DType::float32;
    }
    if (!all) out.known_shapes.clear();
    if (!c.kept.empty()) out.kept = kept(c);
    for (const std::int32_t n : c.released) release(n, out);
    tape_.calls.push_back(std::move(out));
  }

  void arguments(const StoredCall& c, Call& out) const {
    if (is_conversion(c.op)) {
      out.op = "aten::to.dtype";
      if (c.args.empty())
        fail_input("the recording is damaged: a conversion of nothing", {}, "record the module again");
      out.args = {argument(c.args[0]), Arg{*dtype_in(c)}};
      return;
    }
    for (const StoredArg& a : c.args) out.args.push_back(argument(a));
    for (const auto& [name, a] : c.kwargs)
      if (name != "device" && name != "pin_memory" && name != "layout" && name != "generator")
        out.kwargs.emplace_back(name, argument(a));
  }

  /// The result is the argument.
  void pass(const StoredCall& c) {
    const auto* v = c.args.empty() ? nullptr : std::get_if<StoredArg::Value>(&c.args[0].value);
    if (!v) fail_input("the recording is damaged: a conversion of nothing", {}, "record the module again");
    for (const std::int32_t n : c.outputs)
      if (n >= 0) bind(n, id(v->number)), aliases_.insert(n);
    if (!c.released.empty() && !tape_.calls.empty())
      for (const std::int32_t n : c.released) release(n, tape_.calls.back());
  }

  void release(std::int32_t n, Call& call) {
    if (aliases_.count(n) || !knows(n)) return;
    const ValueId value = ids_.at(n);
    if (tape_.values[static_cast<std::size_t>(value.index)].kind == ValueKind::computed &&
        released_.insert(value.index).second)
      call.releases.push_back(value);
  }

  std::shared_ptr<const Kept> kept(const StoredCall& c) const {
    auto out = std::make_shared<Kept>();
    for (const StoredKept& k : c.kept)
      if (k.inside)
        out->made_inside.emplace_back(k.dtype, at_batch(k.sizes, batch_));
      else if (k.at >= 0)
        out->arguments.push_back(k.at);
      else
        out->results.push_back(-1 - k.at);
    return out;
  }

  /// With values of its own, in the order of the call's arguments.
  std::shared_ptr<const OwnFunction> function(const StoredFunction& f, const Call& call) const {
    auto out = std::make_shared<OwnFunction>();
    out->name = f.name;
    if (f.inputs.size() != call.args.size())
      fail_input("the recording is damaged: a function has other arguments than its call", {},
                 "record the module again");
    Lowering forward(calls_, batch_, autocast_, out->forward.tape);
    for (const std::int32_t n : f.inputs) out->forward.tape.inputs.push_back(forward.input(n));
    forward.run(f.forward, Of::forward);
    out->forward.results = forward.ids(f.outputs);
    for (const std::int32_t n : f.saved) out->saved.push_back(forward.revived(n));
    Lowering backward(calls_, batch_, autocast_, out->backward.tape);
    for (const std::int32_t n : f.grads) out->backward.tape.inputs.push_back(n < 0 ? ValueId{} : backward.input(n));
    for (const std::int32_t n : f.saved) out->backward.tape.inputs.push_back(backward.input(n));
    backward.run(f.backward, Of::backward);
    out->backward.results = backward.ids(f.results);
    return out;
  }

  /// What a function saves lives on, whatever its names do.
  ValueId revived(std::int32_t number) {
    const auto found = ids_.find(number);
    if (found == ids_.end()) return id(number);
    if (released_.erase(found->second.index))
      for (Call& c : tape_.calls) std::erase(c.releases, found->second);
    return found->second;
  }

  ValueId input(std::int32_t number) { return knows(number) ? id(number) : make(number, ValueKind::user_input); }

  const Calls& calls_;
  const std::int64_t batch_;
  const bool autocast_;
  Tape& tape_;
  std::unordered_map<std::int32_t, ValueId> ids_;
  std::set<std::int32_t> aliases_, released_;
};

/// Values that no call makes, by their names in the module.
void bind_roles(const Recording& recording, const Calls& calls, Tape& tape, Lowering& lowering) {
  std::map<std::string, ValueId, std::less<>> named;
  for (const auto* list : {&tape.parameters, &tape.buffers})
    for (const ValueId id : *list) named.emplace(tape.values[static_cast<std::size_t>(id.index)].name, id);
  for (std::size_t i = 0; i < calls.values.size(); ++i) {
    const StoredTensorValue& v = calls.values[i];
    const auto number = static_cast<std::int32_t>(i);
    if (v.role == Role::input) {
      const ValueId id = tape.inputs[static_cast<std::size_t>(std::stoll(v.name))];
      tape.values[static_cast<std::size_t>(id.index)].sizes = lowering.at_batch_of(v);
      lowering.bind(number, id);
    } else if (v.role == Role::constant) {
      const ValueId id = lowering.make(number, ValueKind::constant);
      if (!v.on_host) tape.buffers.push_back(id);
    } else if (v.role != Role::made) {
      const auto found = named.find(v.name);
      if (found == named.end())
        fail_input(fmt::format("the recording is damaged: the module has no tensor '{}'", v.name),
                   recording.module_class, "record the module again with memplan.record");
      lowering.bind(number, found->second);
    }
  }
}

std::string listed(const std::vector<std::int64_t>& batches) { return fmt::format("{}", fmt::join(batches, ", ")); }

}  // namespace

Tape tape_of_calls(const Recording& recording, const Run& run, std::int64_t batch) {
  const Calls& calls = *run.calls;
  const bool ran = std::find(calls.batches.begin(), calls.batches.end(), batch) != calls.batches.end();
  if (!ran && calls.batches.size() < 3)
    fail(ErrorKind::usage,
         fmt::format("the module does other things at other batches, and its calls were recorded at {}",
                     listed(calls.batches)),
         setting(Field::batch), fmt::format("record it: memplan.record(…, batches=[{}])", batch));
  Tape tape;
  tape.scopes = calls.scopes;
  add_module(recording, batch, tape);
  Lowering lowering(calls, batch, is_amp(run.setup.precision), tape);
  bind_roles(recording, calls, tape, lowering);
  lowering.run(calls.calls, Lowering::Of::program);
  for (const std::int32_t n : calls.outputs)
    if (const ValueId id = lowering.id(n);
        std::find(tape.outputs.begin(), tape.outputs.end(), id) == tape.outputs.end())
      tape.outputs.push_back(id);
  if (tape.outputs.empty())
    fail_input("the recorded calls return no tensor, so there is nothing to train", recording.module_class,
               "record a module whose forward returns its output");
  tape.exported.functional = false;
  tape.exported.recorded = true;
  tape.exported.checkpoints_seen = true;
  tape.exported.in_eval = run.setup.mode == Mode::inference;
  return tape;
}

}  // namespace memplan::recording
