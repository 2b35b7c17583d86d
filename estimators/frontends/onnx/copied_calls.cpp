#include "estimators/frontends/onnx/copied_calls.h"

#include <algorithm>
#include <cctype>

#include "estimators/frontends/onnx/fx_text.h"
#include "estimators/frontends/onnx/metadata.h"

namespace memplan::onnx_format {

std::string_view module_of_node(const GraphNode& node) {
  const auto scopes = parse_python_strings(note_at(node.metadata, scopes_key));
  return scopes.size() < 2 ? std::string_view{} : scopes[scopes.size() - 2];
}

bool is_within(std::string_view path, std::string_view root) {
  return root.empty() || path == root || (path.starts_with(root) && path[root.size()] == '.');
}

Parting parting(std::string_view path, std::string_view other) {
  std::size_t begin = 0;
  while (begin < path.size()) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::size_t there = std::min(other.find('.', std::min(begin, other.size())), other.size());
    const std::string_view part = path.substr(begin, end - begin);
    const std::string_view its = begin < other.size() ? other.substr(begin, there - begin) : std::string_view{};
    if (part != its) {
      const auto is_index = [](std::string_view s) {
        return !s.empty() && s.find_first_not_of("0123456789") == s.npos;
      };
      return {path.substr(0, end), other.substr(0, there), is_index(part) && is_index(its)};
    }
    begin = end + 1;
  }
  return {};
}

std::string with_module(const std::string& text, const Parting& p) {
  std::string out;
  std::size_t from = 0;
  for (std::size_t i = text.find(p.root); i != std::string::npos; i = text.find(p.root, i + 1)) {
    const char before = i > 0 ? text[i - 1] : '\'',
               after = i + p.root.size() < text.size() ? text[i + p.root.size()] : '\'';
    if (before != '\'' || (after != '\'' && after != '.')) continue;
    out += text.substr(from, i - from);
    out += p.other;
    from = i + p.root.size();
  }
  return out + text.substr(from);
}

std::string renamed(std::string_view text, const std::unordered_map<std::string, std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    out += text[i++];
    if (text[i - 1] != '%') continue;
    std::size_t end = i;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
    const std::string name(text.substr(i, end - i));
    const auto it = names.find(name);
    out += it == names.end() ? name : it->second;
    i = end;
  }
  return out;
}

bool may_do_nothing(std::string_view op) {
  for (std::string_view o : {"clone",
                             "alias",
                             "detach",
                             "detach_",
                             "dropout",
                             "native_dropout",
                             "contiguous",
                             "to",
                             "_to_copy",
                             "type_as",
                             "lift_fresh_copy",
                             "lift_fresh",
                             "view",
                             "_unsafe_view",
                             "reshape",
                             "expand",
                             "slice",
                             "select",
                             "unsqueeze",
                             "squeeze",
                             "permute",
                             "transpose",
                             "t",
                             "flatten",
                             "getitem",
                             "sym_size_int",
                             "scalar_tensor_default"})
    if (op == o) return true;
  return false;
}

namespace {

std::string_view parent_of(std::string_view module) {
  const auto dot = module.rfind('.');
  return dot == module.npos ? std::string_view() : module.substr(0, dot);
}

}  // namespace

void move_home(Graph& g, std::size_t conv, std::string_view layer) {
  GraphNode& node = g.nodes[conv];
  if (parent_of(layer).empty() || parent_of(layer) == parent_of(module_of_node(node))) return;
  constexpr std::size_t near = 8;  // the nodes of the layer beside it
  for (std::size_t i = conv; i-- > 0 && i + near > conv;) {
    const std::string beside(module_of_node(g.nodes[i]));
    if (parent_of(beside) != parent_of(layer)) continue;
    for (const char* key : {scopes_key, "pkg.torch.onnx.class_hierarchy", "pkg.torch.onnx.stack_trace"})
      if (const auto from = g.nodes[i].metadata.find(key); from != g.nodes[i].metadata.end())
        node.metadata[key] = from->second;
    std::string& scopes = node.metadata[scopes_key];
    const std::string quoted = "'" + beside + "'";
    if (const auto at = scopes.rfind(quoted); at != scopes.npos)
      scopes.replace(at, quoted.size(), "'" + std::string(layer) + "'");
    return;
  }
}

}  // namespace memplan::onnx_format
