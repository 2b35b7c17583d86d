#include "estimators/restore/host_numbers.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/restore/passes.h"
#include "estimators/tape/made_tensor.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

std::string_view base_of(std::string_view op) { return op.substr(0, op.find('.')); }

/// "torch.arange(" of "aten::arange.start".
std::string spelling_of(const Call& call) { return std::string(base_of(call.op).substr(6)) + "("; }

bool makes_from_numbers(const Call& call) {
  constexpr std::array<std::string_view, 8> makers{"aten::arange",       "aten::linspace", "aten::zeros",
                                                   "aten::ones",         "aten::full",     "aten::eye",
                                                   "aten::tril_indices", "aten::empty"};
  return std::ranges::find(makers, base_of(call.op)) != makers.end() && call.known_shapes.size() == 1;
}

bool tells_device(const Tape& tape, const Call& call) {
  const std::string& line = call.source;
  if (line.empty()) return true;
  for (const std::string_view word : {"device", ".to(", "cuda", "new_", "_like("})
    if (line.find(word) != line.npos) return true;
  const bool shown = line.find(spelling_of(call)) != line.npos;
  return !shown && call.scope >= 0 &&
         tape.scopes[static_cast<std::size_t>(call.scope)].module_class.starts_with("transformers.");
}

bool starts_on_host(const Tape& tape, const Call& call) {
  return makes_from_numbers(call) && !tells_device(tape, call);
}

/// By call: whether all that it makes may be on the CPU.
class HostCalls {
 public:
  explicit HostCalls(const Tape& tape)
      : tape_(tape), number_(tape.values.size(), false), host_value_(tape.values.size(), false) {
    for (const Call& call : tape.calls) {
      for (const ValueId id : call.outputs)
        if (id.valid()) number_[static_cast<std::size_t>(id.index)] = makes_numbers(call);
      host_call_.push_back(follows(call));
      for (const ValueId id : call.outputs)
        if (id.valid()) host_value_[static_cast<std::size_t>(id.index)] = host_call_.back();
    }
  }

  bool call(std::size_t i) const { return host_call_[i]; }
  bool value(ValueId id) const { return id.valid() && host_value_[static_cast<std::size_t>(id.index)]; }

 private:
  bool follows(const Call& call) const {
    if (starts_on_host(tape_, call)) return true;
    bool any = false, others = false;
    for_each_value(call, [&](ValueId id) {
      any = any || value(id);
      others = others || !(value(id) || is_number(id));
    });
    return any && !others && call.known_shapes.size() == call.outputs.size() && call.op.starts_with("aten::") &&
           !base_of(call.op).ends_with('_');
  }

  bool is_number(ValueId id) const { return id.valid() && number_[static_cast<std::size_t>(id.index)]; }

  const Tape& tape_;
  std::vector<bool> number_, host_value_, host_call_;
};

}  // namespace

bool makes_numbers(const Call& call) {
  return call.op.starts_with("aten::sym_") || call.op.starts_with("_operator.") || call.op.starts_with("torch.sym_");
}

bool reads_from_host(const Call& call) { return base_of(call.op) == "aten::index"; }

bool has_numbers_without_device(const Tape& tape) {
  return !tape.exported.recorded &&
         std::ranges::any_of(tape.calls, [&](const Call& c) { return starts_on_host(tape, c); });
}

void leave_on_host(Tape& tape) {
  if (!tape.reading.numbers_on_host) return;
  const HostCalls host(tape);
  enum class Met : std::uint8_t { nobody, as_index, on_gpu };
  std::vector<Met> met(tape.values.size(), Met::nobody);
  const auto meet = [&](ValueId id, Met how) {
    if (!host.value(id)) return;
    Met& most = met[static_cast<std::size_t>(id.index)];
    most = std::max(most, how);
  };
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    const Met how = reads_from_host(tape.calls[i]) ? Met::as_index : Met::on_gpu;
    if (!host.call(i)) for_each_value(tape.calls[i], [&](ValueId id) { meet(id, how); });
  }
  for (const ValueId id : tape.outputs) meet(id, Met::on_gpu);
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    Call& call = tape.calls[i];
    if (!host.call(i) || call.outputs.size() != 1 || !call.outputs[0].valid()) continue;
    const Met how = met[static_cast<std::size_t>(call.outputs[0].index)];
    const auto [dtype, sizes] = call.known_shapes.front();
    if (how == Met::nobody || sizes.empty()) continue;
    make_of_size(call, how == Met::as_index ? "memplan::on_cpu" : "aten::empty.memory_format", dtype, sizes);
  }
  remove_unused_calls(tape, [&](const Call& call, std::size_t i) { return host.call(i) && !call.outputs.empty(); });
}

}  // namespace memplan
