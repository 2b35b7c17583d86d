#include "estimators/frontends/torch_export/rewrites.h"

#include <string_view>

#include "estimators/restore/casts.h"
#include "estimators/setup/setup.h"

namespace memplan::torch_export {

namespace {

bool flag_is(const Call& call, std::size_t at, std::string_view name, bool wanted) {
  const Arg* arg = at < call.args.size() ? &call.args[at] : nullptr;
  for (const auto& [key, value] : call.kwargs)
    if (key == name) arg = &value;
  const bool* flag = arg ? std::get_if<bool>(&arg->value) : nullptr;
  return flag && *flag == wanted;
}

/// The line of Python asks for this precision whatever the model's own is.
bool says_precision(std::string_view source) {
  for (std::string_view t : {"float32", ".float()", "float64", ".double()", "float16", ".half()", "bfloat16"})
    if (source.find(t) != std::string_view::npos) return true;
  return false;
}

Fate cast(Call& call, const Types& types, const Tape& tape) {
  if (!types.output || call.args.empty()) return Fate::keep;
  if (types.input == types.output) {
    // The passes over the tape put casts of these classes back on every route.
    if (has_restored_casts(tape, call.scope)) return Fate::pass_input;
    if (!is_floating(*types.output)) return Fate::pass_input;
    if (!says_precision(call.source)) {
      // `x.to(device)`; or `x.to(y.dtype)`, which takes x back to the precision of the model.
      if (call.source.find("dtype") == std::string::npos) return Fate::pass_input;
      call.op = "memplan::to_default_dtype";
      call.args.resize(1);
      call.kwargs.clear();
      return Fate::keep;
    }
  }
  call.op = "aten::to.dtype";
  call.args.resize(2);
  call.args[1].value = *types.output;
  call.kwargs.clear();
  return Fate::keep;
}

}  // namespace

Fate rewrite_exported(Call& call, const Types& types, const TrainingSetup& setup, const Tape& tape) {
  const auto* self = call.args.empty() ? nullptr : std::get_if<ValueId>(&call.args[0].value);
  if (call.op == "aten::batch_norm" && call.args.size() > 8) {
    call.args[8] = {true};  // torch.backends.cudnn.enabled of the machine that exported
  } else if (call.op == "aten::add_.Tensor" && self && setup.mode == Mode::inference) {
    // BatchNorm counts its batches in training only.
    const TapeValue& v = tape.values[static_cast<std::size_t>(self->index)];
    if (v.kind == ValueKind::buffer && v.name.size() >= 19 &&
        v.name.compare(v.name.size() - 19, 19, "num_batches_tracked") == 0)
      return Fate::drop;
  } else if (call.op.rfind("aten::to.", 0) == 0 || call.op == "aten::_to_copy") {
    return cast(call, types, tape);
  } else if (call.op == "aten::lift_fresh_copy" || call.op == "aten::lift_fresh" || call.op == "aten::detach_" ||
             call.op == "aten::alias") {
    return Fate::pass_input;  // torch.tensor(3.0) as tracing records it
  }
  return Fate::keep;
}

bool is_frozen(const Call& call) {
  if (call.op == "aten::batch_norm") return flag_is(call, 5, "training", false);
  if (call.op == "aten::dropout") return flag_is(call, 2, "train", false);
  return call.op.rfind("aten::_native_batch_norm_legit_no_training", 0) == 0;
}

}  // namespace memplan::torch_export
