#include "estimators/frontends/torch_export/stored_weights.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "estimators/frontends/torch_export/nodes.h"

namespace memplan::torch_export {

namespace {

using nlohmann::json, nlohmann::ordered_json;

bool is_weight(const InputSpec& spec) { return spec.kind == InputKind::parameter || spec.kind == InputKind::buffer; }

/// The table of a config, or null.
template <class Json>
const Json* table_of(const Json& config) {
  const auto it = config.is_object() ? config.find("config") : config.end();
  return it != config.end() && it->is_object() ? &*it : nullptr;
}

}  // namespace

void read_stored(std::string_view config, std::string_view folder, Program& p) {
  if (config.empty()) return;
  const json root = json::parse(config, nullptr, false);
  const json* table = table_of(root);
  if (!table) return;
  for (InputSpec& spec : p.inputs) {
    const auto it = table->find(spec.target);
    if (it != table->end() && it->is_object() && it->contains("path_name") && (*it)["path_name"].is_string())
      spec.stored = std::string(folder) + (*it)["path_name"].get<std::string>();
  }
}

void add_unread(std::string_view config, const std::string& where, Program& p) {
  if (config.empty()) return;
  const ordered_json root = ordered_json::parse(config, nullptr, false);
  const ordered_json* table = table_of(root);
  if (!table) return;
  std::unordered_map<std::string_view, const InputSpec*> listed;
  for (const InputSpec& spec : p.inputs)
    if (is_weight(spec)) listed.emplace(spec.target, &spec);
  std::unordered_map<std::string, std::size_t> place;
  std::vector<InputSpec> unread;
  for (const auto& [target, entry] : table->items()) {
    place.emplace(target, place.size());
    if (listed.contains(target) || !entry.is_object() || !entry.contains("tensor_meta")) continue;
    InputSpec spec;
    spec.kind = entry.value("is_param", false) ? InputKind::parameter : InputKind::buffer;
    spec.target = target;
    spec.name = static_cast<NameId>(p.names.size());
    p.names.push_back({target, tensor_meta(json(entry["tensor_meta"]), target, where), {}});
    unread.push_back(std::move(spec));
  }
  const auto place_of = [&](const InputSpec& spec) {
    const auto it = is_weight(spec) ? place.find(spec.target) : place.end();
    return it == place.end() ? place.size() : it->second;
  };
  const auto before = [&](const InputSpec& a, const InputSpec& b) { return place_of(a) < place_of(b); };
  std::vector<std::size_t> places;
  for (const InputSpec& spec : p.inputs)
    if (place_of(spec) < place.size()) places.push_back(place_of(spec));
  if (unread.empty() && std::ranges::is_sorted(places)) return;
  p.inputs.insert(p.inputs.begin(), unread.begin(), unread.end());
  std::stable_sort(p.inputs.begin(), p.inputs.end(), before);
}

}  // namespace memplan::torch_export
