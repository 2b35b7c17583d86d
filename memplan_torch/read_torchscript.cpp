// read-torchscript: {"path": "model.pt"} -> the forward method as one list of nodes (estimators/frontends/torchscript/
// script.h says what is in it). Calls of methods and functions are written out at their place, with the module that
// each node is in; attributes of modules are constants. No condition is decided here.
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <set>

#include "memplan_torch/commands.h"
#include "memplan_torch/libraries.h"
#include "memplan_torch/script_file.h"
#include "memplan_torch/script_lines.h"
#include "memplan_torch/script_values.h"

namespace memplan::torch_side {

namespace {

using nlohmann::json;
using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
namespace prim = c10::prim;
namespace attr = c10::attr;

constexpr std::size_t most_nodes = 2'000'000;
constexpr std::size_t deepest_call = 256;

/// The call of a module that nodes are written out for.
struct Frame {
  std::string path, module_class;
  const void* object = nullptr;
  std::string line;  ///< of its forward(), where it is now
};

class Writer {
 public:
  Writer(const ScriptFile& file) : values_(file.module) {
    const auto& method = file.module.get_method("forward").function();
    const auto& schema = method.getSchema();
    const auto graph = torch::jit::toGraphFunction(method).graph();
    std::vector<int> arguments;
    json inputs = json::array();
    for (std::size_t i = 0; i < graph->inputs().size(); ++i) {
      const int id = next_++;
      arguments.push_back(id);
      if (i == 0) {
        known_[id] = file.module._ivalue();
        continue;
      }
      json input{{"id", id}, {"name", schema.arguments()[i].name()}, {"type", graph->inputs()[i]->type()->repr_str()}};
      if (const auto& d = schema.arguments()[i].default_value()) input["default"] = values_.json_of(*d);
      inputs.push_back(std::move(input));
    }
    frames_.push_back({"", ScriptValues::class_name(*file.module.type()), file.module._ivalue().get(), ""});
    json nodes = json::array();
    const std::vector<int> results = body(*graph->block(), arguments, nodes, "");
    reply_ = {{"torch", library_version()}, {"bytes_read", file.bytes_read},
              {"inputs", inputs},           {"nodes", nodes},
              {"outputs", results},         {"stacks", stacks_},
              {"schemas", schemas_}};
    reply_["tensors"] = values_.tensors();
  }

  json take() { return std::move(reply_); }

 private:
  using Scope = std::unordered_map<const torch::jit::Value*, int>;

  std::vector<int> body(const Block& block, const std::vector<int>& arguments, json& out,
                        const std::string& fixed_line) {
    Scope scope;
    for (std::size_t i = 0; i < arguments.size(); ++i) scope[block.inputs()[i]] = arguments[i];
    return nodes(block, scope, out, fixed_line);
  }

  std::vector<int> nodes(const Block& block, Scope& scope, json& out, const std::string& fixed_line) {
    for (const Node* node : block.nodes()) {
      if (++count_ > most_nodes)
        throw Refusal("input", "the TorchScript program has more than " + std::to_string(most_nodes) + " nodes");
      const std::string line = fixed_line.empty() ? lines_.line(*node) : fixed_line;
      if (fixed_line.empty() && !line.empty()) frames_.back().line = line;
      one(*node, scope, out, line);
    }
    std::vector<int> results;
    for (const auto* v : block.outputs()) results.push_back(id_of(v, scope, out));
    return results;
  }

  void one(const Node& node, Scope& scope, json& out, const std::string& line) {
    if (node.kind() == prim::Constant) {
      const int id = scope[node.output()] = next_++;
      if (const auto function = node.output()->type()->cast<c10::FunctionType>()) {
        functions_[id] = function->function();
        return;
      }
      const auto value = torch::jit::toIValue(node.output());
      constant(id, value ? *value : c10::IValue(), out);
    } else if (node.kind() == prim::GetAttr && known_.count(id_of(node.input(), scope, out))) {
      const c10::IValue owner = known_.at(scope.at(node.input()));
      const int id = scope[node.output()] = next_++;
      const std::string& name = node.s(attr::name);
      const c10::IValue value = owner.toObjectRef().getAttr(name);
      if (name == "training" && value.isBool())
        out.push_back({{"op", "prim::Constant"}, {"out", {id}}, {"value", {{"training", value.toBool()}}}});
      else
        constant(id, value, out);
    } else if (node.kind() == prim::CallMethod) {
      call_method(node, scope, out, line);
    } else if (node.kind() == prim::CallFunction) {
      const auto it = functions_.find(id_of(node.input(0), scope, out));
      if (it == functions_.end()) throw Refusal("input", "a call in the TorchScript program leads nowhere");
      inlined(*it->second, node, 1, scope, out, line);
    } else {
      plain(node, scope, out, line);
    }
  }

  /// Modules and their containers are never written: every use of one is resolved here.
  void constant(int id, const c10::IValue& value, json& out) {
    if (value.isObject()) known_[id] = value;
    out.push_back({{"op", "prim::Constant"}, {"out", {id}}, {"value", values_.json_of(value)}});
  }

  void call_method(const Node& node, Scope& scope, json& out, const std::string& line) {
    const std::string& name = node.s(attr::name);
    const auto it = known_.find(id_of(node.input(0), scope, out));
    const auto type =
        it != known_.end() ? it->second.type()->cast<c10::ClassType>() : node.input(0)->type()->cast<c10::ClassType>();
    if (!type || !type->findMethod(name))
      throw Refusal("input",
                    "the TorchScript program calls '" + name + "' on an object that is known only when it runs");
    const void* object = it == known_.end() ? nullptr : it->second.toObject().get();
    const bool is_module =
        type->is_module() && object && object != frames_.back().object && name.rfind("forward", 0) == 0;
    if (!is_module) return inlined(type->getMethod(name), node, 0, scope, out, line);
    frames_.push_back({values_.path_of(object), ScriptValues::class_name(*type), object, ""});
    inlined(type->getMethod(name), node, 0, scope, out, "");
    frames_.pop_back();
  }

  void inlined(torch::jit::Function& function, const Node& node, std::size_t first, Scope& scope, json& out,
               const std::string& line) {
    if (++depth_ > deepest_call)
      throw Refusal("input", "calls in the TorchScript program are nested deeper than " + std::to_string(deepest_call) +
                                 " levels");
    std::vector<int> arguments;
    for (std::size_t i = first; i < node.inputs().size(); ++i) arguments.push_back(id_of(node.input(i), scope, out));
    const auto graph = torch::jit::toGraphFunction(function).graph();
    const std::vector<int> results = body(*graph->block(), arguments, out, line);
    for (std::size_t i = 0; i < node.outputs().size(); ++i) scope[node.outputs()[i]] = results.at(i);
    --depth_;
  }

  void plain(const Node& node, Scope& scope, json& out, const std::string& line) {
    json n{{"op", name_of(node)}, {"in", json::array()}, {"out", json::array()}};
    for (const auto* v : node.inputs()) n["in"].push_back(id_of(v, scope, out));
    for (const Block* block : node.blocks()) {
      json b{{"in", json::array()}, {"nodes", json::array()}};
      for (const auto* v : block->inputs()) b["in"].push_back(scope[v] = next_++);
      b["out"] = nodes(*block, scope, b["nodes"], line == lines_.line(node) ? "" : line);
      n["blocks"].push_back(std::move(b));
    }
    for (const auto* v : node.outputs()) n["out"].push_back(scope[v] = next_++);
    if (node.hasAttribute(attr::name) && node.kindOf(attr::name) == torch::jit::AttributeKind::s)
      n["name"] = node.s(attr::name);
    if (node.kind() == prim::isinstance)
      for (const auto& t : node.tys(attr::types)) n["types"].push_back(t->repr_str());
    n["at"] = stack(node, line);
    out.push_back(std::move(n));
  }

  int id_of(const torch::jit::Value* v, Scope& scope, json&) {
    const auto it = scope.find(v);
    if (it == scope.end()) throw Refusal("input", "the TorchScript program uses a value that nothing makes");
    return it->second;
  }

  /// "aten::add.Tensor"; what the arguments are called and which of them are numbers that stand for element types and
  /// the like is in "schemas".
  std::string name_of(const Node& node) {
    const auto* schema = node.maybeSchema();
    std::string name = node.kind().toQualString();
    if (!schema) return name;
    if (!schema->overload_name().empty()) name += "." + schema->overload_name();
    if (name.rfind("prim::", 0) == 0 || schemas_.contains(name)) return name;
    json arguments = json::array();
    for (const auto& a : schema->arguments()) {
      auto type = a.real_type();
      if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
      const char* kind = type->kind() == c10::TypeKind::ScalarTypeType     ? "dtype"
                         : type->kind() == c10::TypeKind::MemoryFormatType ? "memory_format"
                         : type->kind() == c10::TypeKind::LayoutType       ? "layout"
                         : type->kind() == c10::TypeKind::DeviceObjType    ? "device"
                                                                           : "";
      json argument = json::array({a.name(), kind, a.kwarg_only()});
      if (a.default_value()) argument.push_back(values_.json_of(*a.default_value()));
      arguments.push_back(std::move(argument));
    }
    schemas_[name] = std::move(arguments);
    return name;
  }

  /// Index into "stacks": paths, classes and lines of the modules around a node, outermost first.
  int stack(const Node& node, const std::string& line) {
    std::vector<std::string> lines = lines_.frames(node);
    if (lines.empty()) {
      for (const Frame& f : frames_) lines.push_back(f.line);
      if (!line.empty()) lines.back() = line;
      bool all = true;
      for (const std::string& l : lines) all = all && !l.empty();
      if (!all) lines.clear();
    }
    json paths = json::array(), classes = json::array();
    for (const Frame& f : frames_) paths.push_back(f.path), classes.push_back(f.module_class);
    json entry{{"paths", std::move(paths)}, {"classes", std::move(classes)}, {"lines", lines}};
    const auto [it, fresh] = stack_ids_.try_emplace(entry.dump(-1, ' ', false, json::error_handler_t::replace),
                                                    static_cast<int>(stacks_.size()));
    if (fresh) stacks_.push_back(std::move(entry));
    return it->second;
  }

  ScriptValues values_;
  ScriptLines lines_;
  std::vector<Frame> frames_;
  std::unordered_map<int, c10::IValue> known_;
  std::unordered_map<int, torch::jit::Function*> functions_;
  std::map<std::string, int> stack_ids_;
  json stacks_ = json::array(), schemas_ = json::object(), reply_;
  int next_ = 0;
  std::size_t count_ = 0, depth_ = 0;
};

}  // namespace

json run_read_torchscript(const json& request) {
  const ScriptFile file = open_script(request.at("path").get<std::string>());
  if (!file.module.find_method("forward"))
    throw Refusal("input", "the TorchScript module has no forward method", request.at("path").get<std::string>());
  return Writer(file).take();
}

}  // namespace memplan::torch_side
