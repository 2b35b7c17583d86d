#include "estimators/frontends/onnx/alike_calls.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>

#include "estimators/frontends/onnx/changed_graph.h"
#include "estimators/frontends/onnx/copied_calls.h"
#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/metadata.h"
#include "estimators/graph/expression.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

namespace {

std::string_view trace_of(const GraphNode& node) { return note_at(node.metadata, stack_trace_key); }

std::vector<ValueId> values_of(const FxGroup& call) {
  std::vector<ValueId> out;
  for (const Arg& a : call.text.args) for_each_value(a, [&](ValueId id) { out.push_back(id); });
  return out;
}

/// Paths that are the same but for numbers, "layers.0.conv" and "layers.12.conv".
bool differ_in_numbers(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      while (i < a.size() && is_digit(a[i])) ++i;
      while (j < b.size() && is_digit(b[j])) ++j;
    } else if (a[i++] != b[j++]) {
      return false;
    }
  }
  return i == a.size() && j == b.size();
}

}  // namespace

void AlikeCalls::know() {
  if (std::exchange(known_, true)) return;
  group_of_name_.assign(program_.names.size(), -1);
  for (std::size_t k = 0; k < program_.groups.size(); ++k) {
    const FxGroup& call = program_.groups[k];
    if (call.name < 0) continue;
    group_of_name_[at(call.name)] = static_cast<std::int32_t>(k);
    by_line_[{call.text.target, last_frame(trace_of(graph_.nodes[at(call.nodes.back())]))}].push_back(&call);
    if (const auto* read = call.text.args.empty() ? nullptr : std::get_if<ValueId>(&call.text.args[0].value))
      readers_[read->index].push_back(&call);
  }
}

bool AlikeCalls::part_slice(std::int32_t by, const FxGroup& reader) {
  if (op_of_name(program_.groups[at(by)].text.name) != "slice") return false;
  const std::string_view trace = trace_of(graph_.nodes[at(reader.nodes.back())]);
  return !trace.empty() &&
         std::ranges::any_of(readers_like(program_.groups[at(by)], reader), [&](const FxGroup* other) {
           return trace_of(graph_.nodes[at(other->nodes.back())]) == trace;
         });
}

bool AlikeCalls::is_read_alike(std::int32_t by, const FxGroup& reader) {
  const std::string_view frame = last_frame(trace_of(graph_.nodes[at(reader.nodes.back())]));
  return !frame.empty() &&
         std::ranges::any_of(readers_like(program_.groups[at(by)], reader), [&](const FxGroup* other) {
           const GraphNode& node = graph_.nodes[at(other->nodes.back())];
           return module_of_node(node) == module_of(by) && last_frame(trace_of(node)) == frame;
         });
}

std::pair<std::string, std::string> AlikeCalls::made_like(const FxGroup& made, const FxGroup& reader) {
  const auto value_of = [](const FxGroup& call, std::size_t i) {
    return i < call.text.args.size() ? std::get_if<ValueId>(&call.text.args[i].value) : nullptr;
  };
  const ValueId* like = value_of(made, 0);
  if (!like || made.text.target.find("aten.new_") == std::string_view::npos) return {};
  for (const FxGroup* other : readers_like(made, reader))
    for (std::size_t i = 1; i < other->text.args.size(); ++i)
      if (const ValueId* its = value_of(*other, i), *mine = value_of(reader, i); its && mine && *its == *like)
        return {std::string(program_.names[at(like->index)]), std::string(program_.names[at(mine->index)])};
  return {};
}

std::vector<const FxGroup*> AlikeCalls::readers_like(const FxGroup& made, const FxGroup& reader) {
  know();
  std::vector<const FxGroup*> out;
  if (const auto named = readers_.find(made.name); named != readers_.end())
    std::ranges::copy_if(named->second, std::back_inserter(out),
                         [&](const FxGroup* other) { return other->text.target == reader.text.target; });
  return out;
}

std::vector<std::int32_t> AlikeCalls::makers(const FxGroup& call) const {
  std::vector<std::int32_t> out;
  for (const ValueId id : values_of(call)) out.push_back(group_of_name_[at(id.index)]);
  return out;
}

std::string_view AlikeCalls::module_of(std::int32_t call) const {
  return module_of_node(graph_.nodes[at(program_.groups[at(call)].nodes.back())]);
}

/// `mine` stands outside of `here`, where the program makes it again; `other` in a module of the same class.
void AlikeCalls::pair(std::int32_t mine, std::int32_t other, std::string_view here, Made& out) const {
  const FxGroup &a = program_.groups[at(mine)], &b = program_.groups[at(other)];
  if (a.text.target != b.text.target || out.size() > 4096 || !out.emplace(mine, other).second) return;
  const std::vector<std::int32_t> from = makers(a), there = makers(b);
  for (std::size_t i = 0; i < std::min(from.size(), there.size()); ++i)
    if (from[i] >= 0 && there[i] >= 0 && !is_within(module_of(from[i]), here) &&
        module_of(there[i]) == module_of(other))
      pair(from[i], there[i], here, out);
}

AlikeCalls::Made AlikeCalls::made_elsewhere(const FxGroup& reader, std::string_view name, std::int32_t by) {
  know();
  Made out;
  const GraphNode& node = graph_.nodes[at(reader.nodes.back())];
  const std::string_view frame = last_frame(trace_of(node)), here = module_of_node(node);
  const auto alike = by_line_.find({reader.text.target, frame});
  if (frame.empty() || alike == by_line_.end() || here == module_of(by) || !is_within(here, module_of(by))) return out;
  const std::vector<ValueId> values = values_of(reader);
  const auto named = std::ranges::find_if(values, [&](ValueId id) { return program_.names[at(id.index)] == name; });
  const auto place = static_cast<std::size_t>(named - values.begin());
  constexpr std::size_t most_modules = 64;
  for (const FxGroup* other : std::span(alike->second).first(std::min(most_modules, alike->second.size()))) {
    const std::string_view module = module_of_node(graph_.nodes[at(other->nodes.back())]);
    const std::vector<std::int32_t> made_by = makers(*other);
    const std::int32_t made = place < made_by.size() ? made_by[place] : -1;
    if (module == here || made < 0 || made == by || module_of(made) != module) continue;
    pair(by, made, here, out);
    break;
  }
  return out;
}

bool AlikeCalls::stand_like_sibling(GraphNode& node, const FxGroup& reader, std::string_view op) {
  know();
  const GraphNode& of_reader = graph_.nodes[at(reader.nodes.back())];
  const auto alike = by_line_.find({reader.text.target, last_frame(trace_of(of_reader))});
  if (alike == by_line_.end()) return false;
  const std::string_view here = module_of_node(of_reader);
  for (const FxGroup* other : alike->second) {
    const std::string_view module = module_of_node(graph_.nodes[at(other->nodes.back())]);
    const std::vector<std::int32_t> made_by = makers(*other);
    const std::int32_t made = made_by.empty() ? -1 : made_by[0];
    if (made < 0 || module == here || !differ_in_numbers(module, here)) continue;
    if (op_of_name(program_.groups[at(made)].text.name) != op) continue;
    const GraphNode& twin = graph_.nodes[at(program_.groups[at(made)].nodes.back())];
    for (const char* key : {scopes_key, classes_key, stack_trace_key})
      if (const auto it = twin.metadata.find(key); it != twin.metadata.end()) node.metadata[key] = it->second;
    node.metadata[scopes_key] = with_module(node.metadata[scopes_key], parting(module, here));
    return true;
  }
  return false;
}

namespace {

char sign_of(std::string_view op) { return op == "mul" ? '*' : op == "div" ? '/' : op == "add" ? '+' : '-'; }

/// The line of the frame that is as deep as the last one of `other`, and what follows.
std::string_view frames_from(std::string_view trace, std::string_view other) {
  return trace.substr(frame_at(trace, std::max<std::size_t>(count_frames(other), 1) - 1));
}

}  // namespace

bool has_free_sign(const GraphNode& node, std::string_view op) {
  const std::string_view frame = last_frame(trace_of(node));
  const auto line = frame.find('\n');
  return line != frame.npos &&
         std::ranges::count(frame.substr(line), sign_of(op)) > (lower_case(node.op_type) == op ? 1 : 0);
}

bool is_of_caller(const GraphNode& maker, const GraphNode& reader, std::string_view op) {
  if (!neutral_number(op) || has_free_sign(maker, op)) return false;
  const std::string_view of_maker = module_of_node(maker), of_reader = module_of_node(reader);
  if (of_maker == of_reader || !is_within(of_maker, of_reader)) return false;
  // The line that calls the module shows it: its names get what that makes of the module's result.
  const std::string_view frames = frames_from(trace_of(maker), trace_of(reader));
  const auto line = frames.find('\n');
  return line != frames.npos &&
         frames.substr(line, frames.find('\n', line + 1) - line).find(sign_of(op)) == frames.npos;
}

void stand_as(GraphNode& node, const GraphNode& reader, const GraphNode& other) {
  for (const char* key : {scopes_key, classes_key})
    if (const auto it = reader.metadata.find(key); it != reader.metadata.end()) node.metadata[key] = it->second;
  const std::string_view lines = trace_of(reader), frame = last_frame(trace_of(other));
  const std::size_t own = last_frame(lines).size();
  if (own > 0 && !frame.empty())
    node.metadata[stack_trace_key] = std::string(lines.substr(0, lines.size() - own)).append(frame);
}

}  // namespace memplan::onnx_format
