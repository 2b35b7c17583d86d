#include "estimators/frontends/torch_export/stored_weights.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "estimators/frontends/torch_export/nodes.h"

namespace memplan::torch_export {

namespace {

using nlohmann::json;

using Entries = std::vector<std::pair<std::string, json>>;

/// The entries of {"config": {target: {…}, …}} in the order of the file. They are taken out of the text as they are
/// read, in a time that grows with their number: nlohmann's ordered_json takes the square of it.
Entries entries_of(std::string_view config) {
  constexpr int in_root = 1, in_table = 2;
  Entries entries;
  bool is_table = false;
  std::string target;
  const auto take = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == in_root) is_table = parsed == "config";
    if (event == json::parse_event_t::key && depth == in_table) target = parsed.get<std::string>();
    if (event != json::parse_event_t::object_end || depth != in_table || !is_table) return true;
    entries.emplace_back(std::move(target), std::move(parsed));
    return false;
  };
  return json::parse(config, take, false).is_discarded() ? Entries{} : entries;
}

bool is_weight(const InputSpec& spec) { return spec.kind == InputKind::parameter || spec.kind == InputKind::buffer; }

void note_members(const Entries& entries, std::string_view folder, Program& p) {
  std::unordered_map<std::string_view, const json*> members;
  for (const auto& [target, entry] : entries)
    if (const auto it = entry.find("path_name"); it != entry.end() && it->is_string())
      members.insert_or_assign(target, &*it);
  for (InputSpec& spec : p.inputs)
    if (const auto it = members.find(spec.target); it != members.end())
      spec.stored = std::string(folder) + it->second->get_ref<const std::string&>();
}

/// Adds the parameters and buffers that the signature lacks, and puts all in the order of the table.
void add_unread(const Entries& entries, const std::string& where, Program& p) {
  std::unordered_set<std::string_view> listed;
  for (const InputSpec& spec : p.inputs)
    if (is_weight(spec)) listed.insert(spec.target);
  std::unordered_map<std::string_view, std::size_t> place;
  std::vector<InputSpec> unread;
  for (const auto& [target, entry] : entries) {
    if (!place.emplace(target, place.size()).second || listed.contains(target) || !entry.contains("tensor_meta"))
      continue;
    InputSpec spec;
    spec.kind = entry.value("is_param", false) ? InputKind::parameter : InputKind::buffer;
    spec.target = target;
    spec.name = static_cast<NameId>(p.names.size());
    p.names.push_back({target, tensor_meta(entry["tensor_meta"], target, where), {}});
    unread.push_back(std::move(spec));
  }
  const auto place_of = [&](const InputSpec& spec) {
    const auto it = is_weight(spec) ? place.find(spec.target) : place.end();
    return it == place.end() ? place.size() : it->second;
  };
  std::vector<std::size_t> places;
  for (const InputSpec& spec : p.inputs)
    if (const std::size_t at = place_of(spec); at < place.size()) places.push_back(at);
  if (unread.empty() && std::ranges::is_sorted(places)) return;
  p.inputs.insert(p.inputs.begin(), unread.begin(), unread.end());
  std::ranges::stable_sort(p.inputs, {}, place_of);
}

}  // namespace

void read_stored_weights(std::string_view config, const std::string& where, Program& p) {
  const Entries entries = entries_of(config);
  add_unread(entries, where, p);
  note_members(entries, "weights/", p);
}

void read_stored_constants(std::string_view config, Program& p) { note_members(entries_of(config), "constants/", p); }

}  // namespace memplan::torch_export
