#include "estimators/tape/check.h"

#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "estimators/base/error.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

class Checker {
 public:
  Checker(const Tape& tape, std::string_view stage, std::string_view part)
      : tape_(tape), stage_(stage), part_(part), made_(tape.values.size(), false), gone_(tape.values.size(), -1) {}

  void run() {
    check_values();
    check_scopes();
    check_list(tape_.inputs, ValueKind::user_input, "input");
    check_list(tape_.parameters, ValueKind::parameter, "parameter");
    check_list(tape_.buffers, ValueKind::buffer, "buffer");
    for (std::size_t i = 0; i < tape_.values.size(); ++i) made_[i] = tape_.values[i].kind != ValueKind::computed;
    for (at_ = 0; at_ < tape_.calls.size(); ++at_) check_call(tape_.calls[at_]);
    check_outputs();
    check_checkpoints();
  }

 private:
  [[noreturn]] void broken(const std::string& what) const {
    std::string place = std::string(stage_);
    if (!part_.empty()) place += fmt::format(", {}", part_);
    if (at_ < tape_.calls.size())
      place += fmt::format("{}call {}, {}", place.empty() ? "" : ": ", at_, tape_.calls[at_].op);
    fail(ErrorKind::internal, "a tape is not sound: " + what, place,
         "please report this with the command and the model");
  }

  const TapeValue& value(ValueId id) const { return tape_.values[static_cast<std::size_t>(id.index)]; }
  bool exists(ValueId id) const { return id.valid() && static_cast<std::size_t>(id.index) < tape_.values.size(); }
  std::string name(ValueId id) const { return fmt::format("value {} '{}'", id.index, value(id).name); }
  void need(ValueId id, const char* whose) const {
    if (!exists(id)) broken(fmt::format("{} is value {} of {}", whose, id.index, tape_.values.size()));
  }

  void check_values() const {
    for (std::size_t i = 0; i < tape_.values.size(); ++i) {
      const TapeValue& v = tape_.values[i];
      for (const std::int64_t size : v.sizes)
        if (size < 0) broken(fmt::format("value {} '{}' has a size of {}", i, v.name, size));
      if (!v.same_storage_as.valid()) continue;
      need(v.same_storage_as, "what a value is tied to");
      if (value(v.same_storage_as).same_storage_as.valid())
        broken(fmt::format("value {} '{}' is tied to one that is tied itself", i, v.name));
    }
  }

  void check_scopes() const {
    for (std::size_t i = 0; i < tape_.scopes.size(); ++i) {
      const Scope& s = tape_.scopes[i];
      if (s.parent >= static_cast<std::int32_t>(i) || s.parent < -1)
        broken(fmt::format("scope {} '{}' has scope {} as its parent", i, s.path, s.parent));
      check_binding(s.binding);
    }
  }

  void check_binding(std::int32_t binding) const {
    if (binding < -1 || binding >= static_cast<std::int64_t>(tape_.bindings.size()))
      broken(fmt::format("there is no binding {}", binding));
    if (binding < 0) return;
    for (const auto& names : tape_.bindings[static_cast<std::size_t>(binding)].targets)
      if (names.empty()) broken(fmt::format("binding {} has an assignment to no name", binding));
  }

  void check_list(const std::vector<ValueId>& ids, ValueKind kind, const char* what) const {
    std::vector<bool> seen(tape_.values.size(), false);
    for (ValueId id : ids) {
      need(id, what);
      // Constants of the graph count like buffers.
      const bool fits = value(id).kind == kind || (kind == ValueKind::buffer && value(id).kind == ValueKind::constant);
      if (!fits) broken(fmt::format("{} is listed as {} and is none", name(id), what));
      if (seen[static_cast<std::size_t>(id.index)]) broken(fmt::format("{} is listed twice as {}", name(id), what));
      seen[static_cast<std::size_t>(id.index)] = true;
    }
  }

  void check_call(const Call& call) {
    if (call.scope < -1 || call.scope >= static_cast<std::int64_t>(tape_.scopes.size()))
      broken(fmt::format("there is no scope {}", call.scope));
    check_binding(call.binding);
    for_each_value(call, [&](ValueId id) {
      need(id, "an argument");
      if (!made_[static_cast<std::size_t>(id.index)]) broken(name(id) + " is read before it is made");
      if (const auto gone = gone_[static_cast<std::size_t>(id.index)]; gone >= 0)
        broken(fmt::format("{} is read, and was let go after call {}", name(id), gone));
    });
    if (is_in_place(call) && !has_target(call)) broken("an in-place op has nothing to write into");
    for (ValueId id : call.outputs) {
      if (!id.valid()) continue;  // an output that nobody takes
      need(id, "a result");
      if (value(id).kind != ValueKind::computed) broken(name(id) + " is a result and no computed value");
      if (made_[static_cast<std::size_t>(id.index)]) broken(name(id) + " is made twice");
      made_[static_cast<std::size_t>(id.index)] = true;
    }
    for (ValueId id : call.last_uses) let_go(id);
    for (ValueId id : call.releases) {
      need(id, "what a call releases");
      if (!made_[static_cast<std::size_t>(id.index)]) broken(name(id) + " is released before it is made");
    }
  }

  void let_go(ValueId id) {
    need(id, "what a call lets go");
    if (!made_[static_cast<std::size_t>(id.index)]) broken(name(id) + " is let go before it is made");
    if (value(id).kind != ValueKind::computed) broken(name(id) + " is let go and is no computed value");
    if (gone_[static_cast<std::size_t>(id.index)] >= 0) broken(name(id) + " is let go twice");
    gone_[static_cast<std::size_t>(id.index)] = static_cast<std::int32_t>(at_);
  }

  /// "aten::relu_", "aten::add_.Tensor"; not "aten::__and__" and the ops of other libraries.
  static bool is_in_place(const Call& call) {
    std::string_view op = call.op;
    if (!op.starts_with("aten::")) return false;
    op = op.substr(0, op.find('.'));
    return op.ends_with("_") && !op.ends_with("__");
  }

  static bool has_target(const Call& call) {
    bool any = false;
    if (!call.args.empty()) for_each_value(call.args[0], [&](ValueId) { any = true; });
    return any;
  }

  void check_outputs() const {
    for (ValueId id : tape_.outputs) {
      need(id, "an output");
      if (!made_[static_cast<std::size_t>(id.index)]) broken(name(id) + " is returned and never made");
      if (gone_[static_cast<std::size_t>(id.index)] >= 0)
        broken(fmt::format("{} is returned, and was let go after call {}", name(id),
                           gone_[static_cast<std::size_t>(id.index)]));
    }
  }

  void check_checkpoints() const {
    std::vector<const CheckpointRegion*> around;
    const CheckpointRegion* before = nullptr;
    const auto scopes = static_cast<std::int64_t>(tape_.scopes.size());
    for (const CheckpointRegion& r : tape_.checkpoints) {
      const std::string calls = fmt::format("the checkpoint over calls {} to {}", r.first, r.last);
      if (r.first < 0 || r.last < r.first || r.last >= static_cast<std::int64_t>(tape_.calls.size()))
        broken(fmt::format("{} is not among the tape's {}", calls, tape_.calls.size()));
      if (r.scope < -1 || r.scope >= scopes) broken(fmt::format("{} is of scope {}", calls, r.scope));
      for (const std::int32_t other : r.others)
        if (other < 0 || other >= scopes) broken(fmt::format("{} is of scope {}", calls, other));
      if (before && before->first > r.first) broken(calls + " stands after one that begins later");
      while (!around.empty() && around.back()->last < r.first) around.pop_back();
      if (!around.empty() && around.back()->last < r.last)
        broken(calls + " begins inside of another one and ends after it");
      around.push_back(&r);
      before = &r;
    }
  }

  const Tape& tape_;
  const std::string_view stage_, part_;
  std::vector<bool> made_;
  std::vector<std::int32_t> gone_;  ///< the call after which a value is let go
  std::size_t at_ = static_cast<std::size_t>(-1);
};

bool checks_are_on() {
#ifdef NDEBUG
  static const bool on = std::getenv("MEMPLAN_CHECK") != nullptr;
  return on;
#else
  return true;
#endif
}

}  // namespace

void check(const Tape& tape, std::string_view stage, std::string_view part) { Checker(tape, stage, part).run(); }

void verify(const Tape& tape, std::string_view stage, std::string_view part) {
  if (checks_are_on()) check(tape, stage, part);
}

}  // namespace memplan
