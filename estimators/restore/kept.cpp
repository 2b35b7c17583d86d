#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "estimators/facts/libraries.h"
#include "estimators/restore/passes.h"
#include "estimators/tape/uses.h"

namespace memplan {

/// Modules of some classes keep what they look up in a parameter of theirs: the first forward pass makes it, all others
/// read it. From then on it is there as a buffer is.
void keep_in_inference(Tape& tape) {
  const auto value = [&](ValueId id) -> TapeValue& { return tape.values[static_cast<std::size_t>(id.index)]; };
  const auto is_kept = [&](const Call& c) {
    if (c.scope < 0 || c.outputs.size() != 1 || c.known_shapes.size() != 1) return false;
    const Scope& s = tape.scopes[static_cast<std::size_t>(c.scope)];
    bool found = false;
    for_each_value(c, [&](ValueId id) {
      if (!id.valid() || value(id).kind != ValueKind::parameter || !value(id).name.starts_with(s.path)) return;
      const std::string_view inside = std::string_view(value(id).name).substr(s.path.size());
      found =
          found || (inside.starts_with('.') && fact_of_child("keeps_in_inference", s.module_class, inside.substr(1)));
    });
    return found;
  };
  std::int64_t kept = 0;
  std::erase_if(tape.calls, [&](const Call& c) {
    if (!is_kept(c)) return false;
    const ValueId id = c.outputs[0];
    value(id).kind = ValueKind::buffer;
    value(id).dtype = c.known_shapes[0].first;
    value(id).sizes = c.known_shapes[0].second;
    tape.buffers.push_back(id);
    ++kept;
    return true;
  });
  if (kept > 0)
    tape.recovered.push_back({"results that modules keep", "classes that make them in the first pass alone", kept,
                              Evidence::told_by_name, About::lifetime});
}

/// Some modules hold a tensor that they never registered and move it to the device by an _apply() of their own. The
/// file of a training graph has none, where only inference reads it.
void keep_moved_attributes(Tape& tape) {
  std::map<std::size_t, std::set<std::string_view>> members;  // of the list that tells how long it is, by scope
  for (const Scope& child : tape.scopes) {
    if (child.parent < 0) continue;
    const auto owner = static_cast<std::size_t>(child.parent);
    const std::string& path = tape.scopes[owner].path;
    const LibraryFact* fact = fact_of_class("moves_attribute", tape.scopes[owner].module_class);
    const std::size_t space = fact ? fact->detail.find(' ') : std::string::npos;
    if (space == std::string::npos) continue;
    const std::string list = path + "." + fact->detail.substr(space + 1) + ".";
    if (!child.path.starts_with(list)) continue;
    const std::string_view member = std::string_view(child.path).substr(list.size());
    members[owner].insert(member.substr(0, member.find('.')));
  }
  for (const auto& [owner, list] : members) {
    const Scope& module = tape.scopes[owner];
    const std::string& detail = fact_of_class("moves_attribute", module.module_class)->detail;
    TapeValue v;
    v.name = module.path + "." + detail.substr(0, detail.find(' '));
    v.kind = ValueKind::buffer;
    v.dtype = DType::float32;
    v.sizes = {static_cast<std::int64_t>(list.size())};
    tape.buffers.push_back(tape.add_value(std::move(v)));
  }
  if (!members.empty())
    tape.recovered.push_back({"tensors beside buffers", "classes that move them to the device",
                              static_cast<std::int64_t>(members.size()), Evidence::told_by_name, About::weights});
}

namespace {

/// nn.utils.weight_norm and nn.utils.spectral_norm, by the parameters and buffers that they register
/// (torch/nn/utils/weight_norm.py, spectral_norm.py); those of nn.utils.parametrizations have other names.
bool is_hooked_weight(const Tape& tape, const std::set<std::string_view>& buffers, const Call& call) {
  const auto reads = [&](std::string_view end, std::string_view beside) {
    bool found = false;
    for_each_value(call, [&](ValueId id) {
      const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
      if (v.kind != ValueKind::parameter || !v.name.ends_with(end)) return;
      found = found || beside.empty() ||
              buffers.contains(v.name.substr(0, v.name.size() - end.size()) + std::string(beside));
    });
    return found;
  };
  return call.outputs.size() == 1 && ((call.op == "aten::_weight_norm" && reads("_g", {}) && reads("_v", {})) ||
                                      (call.op == "aten::div.Tensor" && reads("_orig", "_u")));
}

}  // namespace

void keep_hooked_weights(Tape& tape) {
  std::set<std::string_view> buffers;
  for (const ValueId id : tape.buffers)
    if (const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)]; v.name.ends_with("_u"))
      buffers.insert(v.name);
  std::int64_t count = 0;
  for (const Call& c : tape.calls)
    if (is_hooked_weight(tape, buffers, c))
      tape.values[static_cast<std::size_t>(c.outputs[0].index)].in_attribute = true, ++count;
  if (count > 0)
    tape.recovered.push_back({"weights of hooks", "names of the parameters that weight_norm and spectral_norm register",
                              count, Evidence::told_by_name, About::lifetime});
}

}  // namespace memplan
