#include "estimators/frontends/torch_export/rewrites.h"

#include <set>
#include <string_view>

#include "estimators/frontends/torch_export/archive_casts.h"
#include "estimators/restore/casts.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/made_tensor.h"

namespace memplan::torch_export {

namespace {

bool flag_is(const Call& call, std::size_t at, std::string_view name, bool wanted) {
  const Arg* arg = at < call.args.size() ? &call.args[at] : nullptr;
  for (const auto& [key, value] : call.kwargs)
    if (key == name) arg = &value;
  const bool* flag = arg ? std::get_if<bool>(&arg->value) : nullptr;
  return flag && *flag == wanted;
}

Fate cast(Call& call, const Types& types, const Tape& tape, std::string_view function, ArchiveCasts& casts) {
  if (!types.output || call.args.empty()) return Fate::keep;
  if (types.input == types.output) {
    // The passes over the tape put casts of these classes back on every route.
    if (has_restored_casts(tape, call.scope)) return Fate::pass_input;
    if (!is_floating(*types.output)) return Fate::pass_input;
    return casts.rewrite(call, *types.output, function);
  }
  if (call.op == "aten::type_as") return Fate::keep;
  if (is_floating(*types.output) && types.input && !is_floating(*types.input) &&
      ArchiveCasts::follows_named(call, function)) {
    call.op = "memplan::to_default_dtype";
    call.args.resize(1);
    call.kwargs.clear();
    return Fate::keep;
  }
  call.op = "aten::to.dtype";
  call.args.resize(2);
  call.args[1].value = *types.output;
  call.kwargs.clear();
  return Fate::keep;
}

}  // namespace

Fate rewrite_exported(Call& call, const Types& types, const TrainingSetup& setup, const Tape& tape,
                      std::string_view function, ArchiveCasts& casts) {
  const auto* self = call.args.empty() ? nullptr : std::get_if<ValueId>(&call.args[0].value);
  if (call.op == "aten::batch_norm" && call.args.size() > 8) {
    call.args[8] = {true};  // torch.backends.cudnn.enabled of the machine that exported
  } else if (call.op == "aten::add_.Tensor" && self && setup.mode == Mode::inference) {
    // BatchNorm counts its batches in training only.
    const TapeValue& v = tape.values[static_cast<std::size_t>(self->index)];
    if (v.kind == ValueKind::buffer && v.name.size() >= 19 &&
        v.name.compare(v.name.size() - 19, 19, "num_batches_tracked") == 0)
      return Fate::drop;
  } else if (call.op.rfind("aten::to.", 0) == 0 || call.op == "aten::_to_copy" || call.op == "aten::type_as") {
    return cast(call, types, tape, function, casts);
  } else if (call.op == "aten::lift_fresh_copy" || call.op == "aten::lift_fresh" || call.op == "aten::detach_" ||
             call.op == "aten::alias") {
    return Fate::pass_input;  // torch.tensor(3.0) as tracing records it
  }
  return Fate::keep;
}

void make_lifted(Call& call, Tape& tape) {
  if (call.op != "aten::lift_fresh_copy" && call.op != "aten::lift_fresh") return;
  const auto* id = call.args.empty() ? nullptr : std::get_if<ValueId>(&call.args[0].value);
  if (!id) return;
  const ValueId lifted = *id;
  TapeValue& v = tape.values[static_cast<std::size_t>(lifted.index)];
  const bool made = v.kind == ValueKind::constant || v.name.find("lifted_tensor") != v.name.npos;
  if (!made || v.sizes.empty()) return;
  make_of_size(call, "aten::empty.memory_format", v.dtype, v.sizes);
  std::erase(tape.buffers, lifted);
  v.kind = ValueKind::computed;  // nothing reads it any more
}

bool is_frozen(const Call& call) {
  if (call.op == "aten::batch_norm") return flag_is(call, 5, "training", false);
  if (call.op == "aten::dropout") return flag_is(call, 2, "train", false);
  return call.op.rfind("aten::_native_batch_norm_legit_no_training", 0) == 0;
}

bool is_keyword_only(std::string_view name) {
  static const std::set<std::string_view> names{
      "alpha",        "beta", "value",     "dtype",         "layout", "device",     "pin_memory", "memory_format",
      "non_blocking", "copy", "generator", "rounding_mode", "scale",  "enable_gqa", "correction", "approximate"};
  return names.count(name) > 0;
}

}  // namespace memplan::torch_export
