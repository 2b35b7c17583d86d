#include "estimators/frontends/torch_export/tied_constants.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "estimators/tape/uses.h"

namespace memplan::torch_export {

namespace {

using Contents = std::pair<std::int64_t, std::uint32_t>;

/// What copies or converts a constant may also move it, so that it need not be a parameter.
bool moves(std::string_view target) {
  return target.starts_with("torch.ops.aten.to.") || target.starts_with("torch.ops.aten._to_copy") ||
         target.starts_with("torch.ops.aten.lift_fresh") || target.starts_with("torch.ops.aten.copy");
}

std::set<NameId> moved_names(const Program& p) {
  std::set<NameId> moved;
  for (const Subgraph& g : p.graphs)
    for (const Node& n : g.nodes)
      if (moves(n.target))
        for (const NodeInput& in : n.inputs) for_each_value(in.value, [&](ValueId id) { moved.insert(id.index); });
  return moved;
}

}  // namespace

void tie_constants(const Archive& archive, const std::string& data, Program& p) {
  const auto contents = [&](const InputSpec& spec) {
    const Archive::Member* m = spec.stored.empty() ? nullptr : archive.find(data + spec.stored);
    return m && m->crc != 0 ? Contents(m->bytes, m->crc) : Contents();
  };
  std::vector<InputSpec*> constants;
  for (InputSpec& spec : p.inputs)
    if (spec.kind == InputKind::constant && spec.name >= 0) constants.push_back(&spec);
  if (constants.empty()) return;
  std::map<Contents, std::vector<std::string>> parameters;  // members of the archive, each once
  std::set<std::string_view> seen;
  for (const InputSpec& spec : p.inputs) {
    const Contents key = spec.kind == InputKind::parameter ? contents(spec) : Contents();
    if (key != Contents() && seen.insert(spec.stored).second) parameters[key].push_back(spec.stored);
  }
  const std::set<NameId> moved = moved_names(p);
  std::vector<std::pair<InputSpec*, std::vector<std::string>*>> found;
  for (InputSpec* spec : constants)
    if (const auto it = parameters.find(contents(*spec)); it != parameters.end() && !moved.contains(spec->name))
      found.emplace_back(spec, &it->second);
  if (std::ranges::none_of(found, [](const auto& f) { return f.second->size() == 1; })) return;
  std::map<std::vector<std::string>*, std::size_t> taken;
  for (auto& [spec, members] : found) {
    spec->kind = InputKind::parameter;
    spec->stored = (*members)[std::min(taken[members]++, members->size() - 1)];
  }
}

}  // namespace memplan::torch_export
