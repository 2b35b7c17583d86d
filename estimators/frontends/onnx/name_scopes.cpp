#include "estimators/frontends/onnx/name_scopes.h"

namespace memplan::onnx_format {

namespace {

/// The parts of a path without the op itself; none for names that carry no path.
std::vector<std::string_view> parts_of(std::string_view name) {
  std::vector<std::string_view> out;
  if (name.find('/') == std::string_view::npos) return out;
  if (name.front() == '/') name.remove_prefix(1);
  for (std::size_t slash = name.find('/'); slash != std::string_view::npos; slash = name.find('/')) {
    if (slash > 0) out.push_back(name.substr(0, slash));
    name.remove_prefix(slash + 1);
    if (out.size() > 100) break;
  }
  return out;
}

std::string joined(std::string path, std::string_view part, std::string_view parent_part) {
  // A child of a container is named by its path from the container's owner: "layer1/layer1.0".
  if (!parent_part.empty() && part.size() > parent_part.size() && part.substr(0, parent_part.size()) == parent_part &&
      part[parent_part.size()] == '.') {
    path.append(part.substr(parent_part.size()));
    return path;
  }
  if (!path.empty()) path += '.';
  path.append(part);
  return path;
}

}  // namespace

std::string module_of(std::string_view name) {
  std::string path;
  std::string_view parent;
  for (std::string_view part : parts_of(name)) {
    path = joined(std::move(path), part, parent);
    parent = part;
  }
  return path;
}

std::int32_t NameScopes::enter(std::string_view name) {
  if (name.find('/') == std::string_view::npos) return last_;
  const std::size_t slash = name.rfind('/');
  const std::string_view module = name.substr(0, slash);
  if (last_ >= 0 && module == last_name_) return last_;
  last_name_ = module;
  const auto parts = parts_of(name);
  if (stack_.empty()) stack_.emplace_back("", scope(-1, ""));
  std::size_t common = 0;
  while (common < parts.size() && common + 1 < stack_.size() && stack_[common + 1].first == parts[common]) ++common;
  stack_.resize(common + 1);
  for (std::size_t i = common; i < parts.size(); ++i) {
    const std::int32_t parent = stack_.back().second;
    const std::string path = joined(tape_.scopes[static_cast<std::size_t>(parent)].path, parts[i],
                                    i == 0 ? std::string_view{} : std::string_view(stack_.back().first));
    stack_.emplace_back(std::string(parts[i]), scope(parent, path));
  }
  last_ = stack_.back().second;
  return last_;
}

std::int32_t NameScopes::scope(std::int32_t parent, std::string_view path) {
  Scope s;
  s.path = path;
  // The second call of relu is named relu_1.
  const std::size_t underscore = s.path.rfind('_');
  if (underscore != std::string::npos && underscore + 1 < s.path.size() &&
      s.path.find_first_not_of("0123456789", underscore + 1) == std::string::npos &&
      calls_.count(s.path.substr(0, underscore)) > 0)
    s.path.resize(underscore);
  s.parent = parent;
  s.call = calls_[s.path]++;
  tape_.scopes.push_back(std::move(s));
  return static_cast<std::int32_t>(tape_.scopes.size() - 1);
}

}  // namespace memplan::onnx_format
