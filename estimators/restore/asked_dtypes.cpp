#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimators/restore/casts.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// "x" of "noise = torch.rand(shape, dtype=x.dtype)", where `asks` is "dtype=", and of "y.to(x.dtype)"; empty where the
/// line asks more than once.
std::string named_dtype(std::string_view source, std::string_view asks) {
  constexpr std::string_view end = ".dtype";
  const auto at = source.find(asks);
  if (at == source.npos || source.find(asks, at + 1) != source.npos) return {};
  const std::string_view name = source.substr(at + asks.size());
  const auto stop = std::find_if(name.begin(), name.end(),
                                 [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_'; });
  const auto length = static_cast<std::size_t>(stop - name.begin());
  return name.substr(length).starts_with(end) ? std::string(name.substr(0, length)) : std::string();
}

/// The name whose dtype a factory, or a conversion to a dtype that the export does not tell, is asked for.
std::string asked_of(const Call& call) {
  if (call.op == "memplan::to_default_dtype") return named_dtype(call.source, ".to(");
  for (const auto& [kind, arg] : call.kwargs)
    if (const auto* type = std::get_if<DType>(&arg.value); kind == "dtype" && type && is_floating(*type))
      return named_dtype(call.source, "dtype=");
  return {};
}

/// What the names of frames hold while calls are gone through in their order.
class Names {
 public:
  explicit Names(const Tape& tape) : tape_(tape), maker_(tape.values.size(), -1) {
    for (std::size_t i = 0; i < tape.calls.size(); ++i) {
      const std::string name = asked_of(tape.calls[i]);
      if (!name.empty()) wanted_.emplace(tape.calls[i].scope, name);
      in_scope_[tape.calls[i].scope].push_back(i);
      for (ValueId id : tape.calls[i].outputs)
        if (id.valid()) maker_[static_cast<std::size_t>(id.index)] = static_cast<std::int64_t>(i);
    }
  }

  bool wants_none() const { return wanted_.empty(); }

  /// The call has run: its frame's name holds its first result, and those of its callers what their modules return.
  void ran(const Call& call) {
    if (call.outputs.empty() || !call.outputs[0].valid()) return;
    bind(call.scope, call.binding, call.outputs[0]);
    for (std::int32_t s = call.scope; s >= 0; s = scope(s).parent)
      bind(scope(s).parent, scope(s).binding, call.outputs[0]);
  }

  /// What a name that no line of its frame binds stands for there: the one tensor from outside that lines with this
  /// name read before call `at`.
  ValueId held(std::size_t at, const std::string& name) {
    const std::pair key{tape_.calls[at].scope, name};
    if (const auto it = bound_.find(key); it != bound_.end()) return it->second;
    std::set<std::int32_t> found;
    for (const std::size_t i : in_scope_[key.first]) {
      const Call& call = tape_.calls[i];
      if (call.source.find(name) == std::string::npos) continue;
      for_each_value(call, [&](ValueId id) {
        const std::int64_t made = maker_[static_cast<std::size_t>(id.index)];
        if (made < 0 || made >= static_cast<std::int64_t>(at)) return;
        const Call& maker = tape_.calls[static_cast<std::size_t>(made)];
        if (maker.scope != key.first && maker.op.starts_with("aten::") && !maker.op.starts_with("aten::sym_"))
          found.insert(id.index);
      });
    }
    return bound_[key] = found.size() == 1 ? ValueId{*found.begin()} : ValueId{};
  }

 private:
  const Scope& scope(std::int32_t s) const { return tape_.scopes[static_cast<std::size_t>(s)]; }

  void bind(std::int32_t frame, std::int32_t binding, ValueId value) {
    if (binding < 0) return;
    const auto& targets = tape_.bindings[static_cast<std::size_t>(binding)].targets;
    if (targets.size() != 1 || targets[0].size() != 1 || !wanted_.contains({frame, targets[0][0]})) return;
    bound_[{frame, targets[0][0]}] = value;
  }

  using Name = std::pair<std::int32_t, std::string>;  ///< of a scope's frame
  const Tape& tape_;
  std::vector<std::int64_t> maker_;
  std::map<std::int32_t, std::vector<std::size_t>> in_scope_;
  std::set<Name> wanted_;
  std::map<Name, ValueId> bound_;
};

}  // namespace

void follow_asked_dtypes(Tape& tape) {
  std::int64_t count = 0;
  Names names(tape);
  if (names.wants_none()) return;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    Call& call = tape.calls[i];
    const std::string name = asked_of(call);
    if (const ValueId like = name.empty() ? ValueId{} : names.held(i, name); like.valid()) {
      for (auto& [kind, arg] : call.kwargs)
        if (kind == "dtype") arg.value = like;
      if (call.op == "memplan::to_default_dtype") {
        call.op = "aten::type_as";
        call.args.resize(1);
        call.args.push_back({like});
      }
      ++count;
    }
    names.ran(call);
  }
  if (count > 0)
    tape.recovered.push_back({"x.dtype",
                              "types of tensors that lines name, which the export wrote as its own precision", count,
                              Evidence::told_by_source_line, About::cast});
}

}  // namespace memplan
