#include "estimators/frontends/onnx/scopes.h"

#include "estimators/frontends/onnx/call_frames.h"
#include "estimators/frontends/onnx/fx_text.h"
#include "estimators/frontends/onnx/metadata.h"
#include "estimators/graph/exporter_notes.h"

namespace memplan::onnx_format {

namespace {

std::string_view get(const GraphNode& node, const char* key) {
  const auto it = node.metadata.find(key);
  return it == node.metadata.end() ? std::string_view{} : std::string_view(it->second);
}

std::string_view short_path(std::string_view path) {
  for (const char* packages : {"site-packages/", "dist-packages/"})  // the latter: Debian's
    if (const auto at = path.rfind(packages); at != std::string_view::npos) return path.substr(at + 14);
  const std::size_t last = path.rfind('/');
  if (last == std::string_view::npos || last == 0) return path;
  const std::size_t before = path.rfind('/', last - 1);
  return before == std::string_view::npos ? path : path.substr(before + 1);
}

}  // namespace

std::vector<std::string> stack_lines(std::string_view trace) {
  std::vector<std::string> forwards, others;
  for (std::size_t at = trace.find("File \""); at != std::string_view::npos; at = trace.find("File \"", at)) {
    at += 6;
    const std::size_t quote = trace.find('"', at);
    const std::size_t line = trace.find("line ", at);
    if (quote == std::string_view::npos || line == std::string_view::npos) break;
    std::size_t digits = line + 5;
    while (digits < trace.size() && trace[digits] >= '0' && trace[digits] <= '9') ++digits;
    std::size_t code = trace.find('\n', digits);
    std::string entry(short_path(trace.substr(at, quote - at)));
    entry.append(":").append(trace.substr(line + 5, digits - line - 5));
    const bool forward = trace.substr(digits, code - digits) == ", in forward";
    if (code != std::string_view::npos) {
      code = trace.find_first_not_of(" \n", code);
      std::size_t end = code == std::string_view::npos ? code : trace.find('\n', code);
      if (end == std::string_view::npos) end = trace.size();
      if (code != std::string_view::npos && trace.substr(code, 6) != "File \"")
        entry.append(" ").append(trace.substr(code, end - code));
    }
    at = quote;
    if (entry.starts_with("torch/_dynamo/")) continue;
    (forward ? forwards : others).push_back(std::move(entry));
  }
  return forwards.empty() ? others : forwards;
}

bool without_checkpoint_frames(std::vector<std::string>& lines) {
  return std::erase_if(lines, [](const std::string& line) { return line.starts_with("torch/utils/checkpoint.py:"); }) >
         0;
}

std::int32_t ScopeTracker::enter(const GraphNode& node, std::string& source) {
  std::vector<std::string_view> paths = parse_python_strings(get(node, "pkg.torch.onnx.name_scopes"));
  const std::vector<std::string_view> classes = parse_python_strings(get(node, "pkg.torch.onnx.class_hierarchy"));
  // Nodes that a pass of the exporter put in have no module of their own.
  if (paths.empty() || paths.front().substr(0, 22) == "_empty_nn_module_stack") return current();
  paths.pop_back();  // the op itself
  // Equal blocks have equal traces.
  const std::string_view trace = get(node, stack_trace_key);
  const auto [it, fresh] = lines_.try_emplace(trace);
  if (fresh) it->second = stack_lines(trace), without_checkpoint_frames(it->second);
  return enter(paths, classes, it->second, source);
}

namespace {

/// The forward of an autograd.Function is a frame of its own, called from a line with `.apply(`: that line, or null.
const std::string* application_in(const std::vector<std::string>& lines) {
  for (std::size_t i = 0; i + 1 < lines.size(); ++i)
    if (lines[i].find(".apply(") != std::string::npos) return &lines[i];
  return nullptr;
}

}  // namespace

void ScopeTracker::follow_functions(const std::string* line, std::int32_t scope) {
  if (line && (function_ < 0 || scope != function_scope_ || *line != application_)) {
    function_ = functions_++;
    function_scope_ = scope;
    application_ = *line;
  } else if (!line) {
    function_ = -1;
  }
}

namespace {

/// "add" of `add_ = torch.ops.aten.add_.Tensor(p_target_weight, …)`: what the line writes in place. Empty for others.
std::string_view written_by(std::string_view line) {
  constexpr std::string_view ops = "torch.ops.aten.";
  const auto op = line.find(ops);
  if (op == line.npos) return {};
  const std::string_view name =
      line.substr(op + ops.size(), line.find_first_of(".(", op + ops.size()) - op - ops.size());
  return name.ends_with('_') ? name.substr(0, name.size() - 1) : std::string_view();
}

}  // namespace

/// A region without gradients or without autocast is a graph of its own, whose lines the exporter has written.
bool ScopeTracker::follow_regions(const std::vector<std::string>& lines) {
  const bool region = !lines.empty() && lines.back().starts_with(file_of_region);
  std::string graph = region ? lines.back().substr(0, lines.back().find(':')) : std::string();
  if (graph != graph_of_region_) {
    graph_of_region_ = std::move(graph);
    region_ = region ? regions_++ : -1;
  }
  written_ = region ? written_by(lines.back()) : std::string_view();
  const bool writes_parameter = !written_.empty() && lines.back().find("(p_") != std::string::npos;
  if (region && (lines.back().find(".out(") != std::string::npos || writes_parameter))
    without_gradients_.insert(region_);
  return region;
}

namespace {

/// Whether an open scope is that of an entry. Of a frame without a module the path may only be a prefix, or not known
/// yet.
bool is_same(Scope& open, std::string_view path, std::string_view module_class) {
  if (!without_module(module_class)) return open.path == path;
  if (!without_module(open.module_class)) return false;
  if (open.path.empty()) open.path = path;
  return path.empty() || path.starts_with(open.path);
}

}  // namespace

template <class Text>
std::int32_t ScopeTracker::enter(const std::vector<Text>& paths, const std::vector<Text>& classes,
                                 const std::vector<std::string>& lines, std::string& source) {
  // Where each frame is a module's, as in "y = Scale.apply(self.features(x))", the line calls the module first.
  const std::string* application = lines.size() == paths.size() ? nullptr : application_in(lines);
  if (lines.size() < paths.size() && !lines.empty()) {
    const std::vector<std::string> all = with_frames_of_torch(paths.size(), classes, lines);
    tape_.exported.strict = tape_.exported.strict || all.size() > lines.size();
    return open(paths, classes, all, application, source);
  }
  if (lines.size() <= paths.size()) return open(paths, classes, lines, application, source);
  // What stands in the function's own frame is made by the line that applies it.
  if (!paths.empty() && application == &lines[paths.size() - 1])
    return open(paths, classes, {lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(paths.size())}, application,
                source);
  const CallFrames f = call_frames({paths.begin(), paths.end()}, {classes.begin(), classes.end()}, lines);
  if (!application && !f.application.empty() && !lines.back().starts_with(file_of_region)) application = &f.application;
  return open(f.paths, f.classes, f.lines, application, source);
}

template <class Text>
std::int32_t ScopeTracker::open(const std::vector<Text>& paths, const std::vector<Text>& classes,
                                const std::vector<std::string>& lines, const std::string* application,
                                std::string& source) {
  const bool region = follow_regions(lines);
  if (region)
    note(tape_.notes,
         {{},
          "a region without gradients or without autocast: the file does not say which; it counts as any other",
          Evidence::assumed,
          About::mode});
  // Frames and modules correspond one to one, unless a pass of the exporter made the node.
  const bool aligned = lines.size() == paths.size() && !lines.empty() && !region &&
                       lines.front().find("torch/fx/passes") == std::string::npos;
  if (aligned) source = lines.back();
  if (paths.empty()) {
    follow_functions(application, -1);
    return stack_.empty() ? -1 : stack_.front();
  }

  std::size_t common = 0;
  while (common < stack_.size() && common < paths.size()) {
    Scope& s = tape_.scopes[static_cast<std::size_t>(stack_[common])];
    if (!is_same(s, paths[common], common < classes.size() ? std::string_view(classes[common]) : "")) break;
    if (aligned && common > 0) {
      // The first node of a module may have no lines, such as a region without gradients.
      if (s.source.empty()) s.source = lines[common - 1];
      if (s.source != lines[common - 1]) break;
    }
    ++common;
  }
  stack_.resize(common);
  for (std::size_t i = common; i < paths.size(); ++i) {
    Scope s;
    s.path = paths[i];
    if (i < classes.size()) s.module_class = classes[i];
    s.parent = stack_.empty() ? -1 : stack_.back();
    if (aligned && i > 0) s.source = lines[i - 1];
    s.call = calls_[s.path]++;
    tape_.scopes.push_back(std::move(s));
    stack_.push_back(static_cast<std::int32_t>(tape_.scopes.size() - 1));
  }
  follow_functions(application, stack_.back());
  return stack_.back();
}

template std::int32_t ScopeTracker::enter(const std::vector<std::string_view>&, const std::vector<std::string_view>&,
                                          const std::vector<std::string>&, std::string&);
template std::int32_t ScopeTracker::enter(const std::vector<std::string>&, const std::vector<std::string>&,
                                          const std::vector<std::string>&, std::string&);

}  // namespace memplan::onnx_format
