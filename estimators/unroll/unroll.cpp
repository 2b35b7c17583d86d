// unroll_script of pipeline.h: runs a TorchScript program on paper with the sizes of its inputs and writes down its
// ATen calls as torch.export would have. Numbers, lists and conditions become what they are for these sizes.
#include <fmt/format.h>

#include <algorithm>

#include "estimators/base/error.h"
#include "estimators/frontends/torchscript/script.h"
#include "estimators/graph/dims.h"
#include "estimators/pipeline.h"
#include "estimators/setup/field.h"
#include "estimators/unroll/calls.h"
#include "estimators/unroll/values.h"

namespace memplan {

namespace torchscript {

namespace {

/// Loops that run longer than any model does.
constexpr std::int64_t most_steps = 5'000'000;

/// prim::RaiseException
struct Raised {
  std::string message;
};

std::string_view without_overload(std::string_view op) { return op.substr(0, op.find('.')); }

class Unrolling {
 public:
  Unrolling(const Script& script, const Symbols& symbols, const Graph& given, const TrainingSetup& setup)
      : script_(script),
        setup_(setup),
        program_(std::make_shared<torch_export::Program>()),
        calls_(script, *program_),
        values_(static_cast<std::size_t>(script.values)) {
    program_->torch_version = script.torch_version;
    program_->graphs.emplace_back();
    make_stored();
    make_inputs(symbols, given);
    try {
      nodes(script_.body);
    } catch (const Raised& r) {
      fail_input(fmt::format("the TorchScript program raises an exception for these inputs: {}",
                             r.message.empty() ? "(no text)" : r.message),
                 {}, "other sizes for " + setting(Field::inputs) + " may suit it");
    }
    for (ValueNo out : script_.body.outputs) output(at(out));
  }

  Unrolled take() { return {std::move(program_), std::move(notes_)}; }

 private:
  V& at(ValueNo n) { return values_.at(static_cast<std::size_t>(n)); }

  void make_stored() {
    for (const ScriptTensor& t : script_.tensors) {
      if (t.kind == TensorKind::constant) continue;  // only those that the program uses
      stored(t);
      for (const std::string& name : t.also)
        if (t.kind == TensorKind::parameter)
          notes_.push_back({"MP005", fmt::format("parameters '{}' and '{}' are tied and counted once", t.name, name),
                            Evidence::proven_by_file, About::weights});
    }
    constants_.resize(script_.tensors.size(), V());
    std::size_t i = 0;
    for (std::size_t n = 0; n < script_.tensors.size(); ++n)
      if (script_.tensors[n].kind != TensorKind::constant) constants_[n] = stored_[i++];
  }

  V stored(const ScriptTensor& t) {
    using torch_export::InputKind;
    torch_export::InputSpec spec;
    spec.kind = t.kind == TensorKind::parameter ? InputKind::parameter
                : t.kind == TensorKind::buffer  ? InputKind::buffer
                                                : InputKind::constant;
    spec.target = t.name.empty() ? fmt::format("constant_{}", program_->inputs.size()) : t.name;
    TensorV made = calls_.stored(spec.target, t.dtype, t.sizes, t.requires_grad);
    spec.name = made.name;
    spec.stored = fmt::format("tensor {}", made.name);  // ties are known already
    program_->inputs.push_back(std::move(spec));
    if (t.number && t.kind == TensorKind::constant) made.number = std::make_shared<const V>(literal(*t.number));
    stored_.push_back(V(std::move(made)));
    return stored_.back();
  }

  void make_inputs(const Symbols& symbols, const Graph& given) {
    for (const ScriptInput& in : script_.inputs) {
      const auto v = std::find_if(given.values.begin(), given.values.end(),
                                  [&](const GraphValue& g) { return g.name == in.name; });
      if (v == given.values.end()) {
        at(in.id) = in.standard ? literal(*in.standard) : V();
        continue;
      }
      const auto sizes = evaluate(*v, symbols);
      if (!sizes)
        fail_input(fmt::format("a size of the input '{}' is not known", in.name), in.name,
                   "bind its dimensions with " + setting(Field::dims));
      torch_export::InputSpec spec;
      TensorV made = calls_.stored(in.name, *v->dtype, *sizes, false);
      spec.name = made.name;
      program_->inputs.push_back(std::move(spec));
      at(in.id) = V(std::move(made));
    }
  }

  V literal(const Literal& l) {
    struct Visitor {
      Unrolling& u;
      V operator()(const Literal::None&) const { return {}; }
      V operator()(bool b) const { return b; }
      V operator()(std::int64_t n) const { return n; }
      V operator()(double d) const { return d; }
      V operator()(const std::string& s) const { return s; }
      V operator()(const Literal::TensorNo& t) const {
        if (t.index < 0 || static_cast<std::size_t>(t.index) >= u.constants_.size())
          fail_input("the program names a tensor that the file does not have");
        V& known = u.constants_[static_cast<std::size_t>(t.index)];
        if (known.is_none()) known = u.stored(u.script_.tensors[static_cast<std::size_t>(t.index)]);
        return known;
      }
      V operator()(const Literal::Training& t) const { return t.saved && u.setup_.mode == Mode::training; }
      V operator()(const Literal::Device& d) const { return DeviceV{d.name}; }
      V operator()(const Literal::Object& o) const {
        return ObjectV{o.class_name, std::make_shared<std::map<std::string, V>>()};
      }
      V operator()(const Literal::List& list) const {
        std::vector<V> items;
        for (const Literal& item : list.items) items.push_back(u.literal(item));
        return list.tuple ? V(TupleV{std::move(items)}) : make_list(std::move(items));
      }
      V operator()(const Literal::Dictionary& d) const {
        auto out = std::make_shared<std::vector<std::pair<V, V>>>();
        for (std::size_t i = 0; i < d.keys.size(); ++i) out->emplace_back(u.literal(d.keys[i]), u.literal(d.values[i]));
        return V(DictV(std::move(out)));
      }
    };
    return std::visit(Visitor{*this}, l.value);
  }

  void output(const V& v) {
    if (const TensorV* t = v.tensor()) {
      torch_export::OutputSpec spec;
      spec.value = {ValueId{t->name}};
      program_->outputs.push_back(spec);
      program_->graphs.front().outputs.push_back(spec.value);
    } else if (const auto* list = v.get<ListV>()) {
      for (const V& item : **list) output(item);
    } else if (const auto* tuple = v.get<TupleV>()) {
      for (const V& item : tuple->items) output(item);
    } else if (const auto* dict = v.get<DictV>()) {
      for (const auto& [key, item] : **dict) output(item);
    }
  }

  void nodes(const Block& block) {
    for (const Node& node : block.nodes) {
      if (++steps_ > most_steps)
        fail_input("the TorchScript program runs more steps than memplan follows", {},
                   "export the model with torch.export.save");
      one(node);
    }
  }

  std::string place(const Node& node) const {
    if (node.stack < 0) return {};
    const auto& paths = script_.stacks[static_cast<std::size_t>(node.stack)].paths;
    return paths.empty() ? std::string() : paths.back();
  }

  void one(const Node& node) {
    if (node.op == "prim::Constant") {
      at(node.outputs.at(0)) = literal(node.constant);
    } else if (node.op == "prim::If") {
      branch(node);
    } else if (node.op == "prim::Loop") {
      loop(node);
    } else if (node.op == "prim::RaiseException") {
      const auto* text = node.inputs.empty() ? nullptr : at(node.inputs[0]).get<std::string>();
      throw Raised{text ? *text : std::string()};
    } else {
      std::vector<V> args;
      args.reserve(node.inputs.size());
      for (ValueNo n : node.inputs) args.push_back(at(n));
      if (structure(node, args)) return;
      if (auto result = calls_.about_tensor(node.op, args)) return bind(node, std::move(*result));
      // Python itself has no names for overloads: what an op means follows from its operands.
      if (auto result = python_op(without_overload(node.op), args)) {
        steps_ += entries_made(*result, args);
        return bind(node, std::move(*result));
      }
      if (node.op.rfind("prim::", 0) == 0 && node.op != "prim::abs") {
        if (node.outputs.empty()) return;
        fail_input(fmt::format("the TorchScript program uses '{}', which memplan does not follow", node.op),
                   place(node), "export the model with torch.export.save");
      }
      bind_all(node, calls_.call(node, args));
    }
  }

  /// Of a new list each entry is a step: a program of few ops could copy long lists over and over.
  static std::int64_t entries_made(const V& result, const std::vector<V>& args) {
    const auto* list = result.get<ListV>();
    if (!list || (!args.empty() && args[0].get<ListV>() && *args[0].get<ListV>() == *list)) return 0;
    return static_cast<std::int64_t>((*list)->size());
  }

  void bind(const Node& node, V v) {
    if (!node.outputs.empty()) at(node.outputs[0]) = std::move(v);
  }
  void bind_all(const Node& node, std::vector<V> results) {
    for (std::size_t i = 0; i < node.outputs.size() && i < results.size(); ++i)
      at(node.outputs[i]) = std::move(results[i]);
  }

  /// Lists, tuples, objects and casts. False for other ops.
  bool structure(const Node& node, std::vector<V>& args) {
    const std::string_view op =
        std::string_view(node.op).substr(0, 6) == "prim::" ? std::string_view(node.op).substr(6) : std::string_view();
    if (op.empty()) {
      if (node.op != "aten::_unwrap_optional") return false;
      bind(node, args.at(0));
    } else if (op == "ListConstruct") {
      bind(node, make_list(std::move(args)));
    } else if (op == "TupleConstruct") {
      bind(node, TupleV{std::move(args)});
    } else if (op == "DictConstruct") {
      auto out = std::make_shared<std::vector<std::pair<V, V>>>();
      for (std::size_t i = 0; i + 1 < args.size(); i += 2) out->emplace_back(args[i], args[i + 1]);
      bind(node, DictV(std::move(out)));
    } else if (op == "ListUnpack" || op == "TupleUnpack") {
      const auto* list = args.at(0).get<ListV>();
      const auto* tuple = args[0].get<TupleV>();
      if (!list && !tuple) fail_input(fmt::format("'{}' gets something else than a list", node.op), place(node));
      const std::vector<V> items = list ? **list : tuple->items;
      if (items.size() < node.outputs.size())
        fail_input(fmt::format("'{}' wants {} values of a list of {}", node.op, node.outputs.size(), items.size()),
                   place(node), "other sizes for " + setting(Field::inputs) + " may suit it");
      bind_all(node, items);
    } else if (op == "TupleIndex" || op == "TupleSlice") {
      auto part = python_op(op == "TupleIndex" ? "aten::__getitem__" : "aten::slice", args);
      if (!part) fail_input(fmt::format("'{}' gets something else than a tuple", node.op), place(node));
      bind(node, std::move(*part));
    } else if (op == "unchecked_cast" || op == "unchecked_unwrap_optional" || op == "data") {
      bind(node, args.at(0));
    } else if (op == "Uninitialized") {
      bind(node, UnknownV{"a value that is not set"});
    } else if (op == "isinstance") {
      bind(node, std::any_of(node.types.begin(), node.types.end(),
                             [&](const std::string& t) { return is_a(args.at(0), t); }));
    } else if (op == "CreateObject") {
      bind(node, ObjectV{"", std::make_shared<std::map<std::string, V>>()});
    } else if (op == "SetAttr") {
      if (const auto* o = args.at(0).get<ObjectV>()) (*o->attributes)[node.name] = args.at(1);
    } else if (op == "GetAttr") {
      const auto* o = args.at(0).get<ObjectV>();
      const auto it = o ? o->attributes->find(node.name) : decltype(o->attributes->end()){};
      if (!o || it == o->attributes->end())
        fail_input(fmt::format("the attribute '{}' of an object is known only when the program runs", node.name),
                   place(node), "export the model with torch.export.save");
      bind(node, it->second);
    } else if (op == "Enter" || op == "Exit" || op == "Print") {
      bind(node, V());
    } else {
      return false;
    }
    return true;
  }

  static bool is_a(const V& v, std::string_view type) {
    const auto begins = [&](std::string_view t) { return type.substr(0, t.size()) == t; };
    if (type == "int") return v.get<std::int64_t>();
    if (type == "float") return v.get<double>();
    if (type == "bool") return v.get<bool>();
    if (type == "str") return v.get<std::string>();
    if (type == "NoneType") return v.is_none();
    if (type == "Tensor") return v.tensor();
    if (begins("List[")) {
      const auto* list = v.get<ListV>();
      return list && ((*list)->empty() || is_a((*list)->front(), type.substr(5, type.size() - 6)));
    }
    if (begins("Tuple[")) return v.get<TupleV>();
    if (begins("Dict[")) return v.get<DictV>();
    return false;
  }

  static bool raises(const Block& block) {
    return std::any_of(block.nodes.begin(), block.nodes.end(),
                       [](const Node& n) { return n.op == "prim::RaiseException"; });
  }
  static std::size_t length(const Block& block) {
    std::size_t n = 0;
    for (const Node& node : block.nodes) {
      n += node.op.rfind("aten::", 0) == 0;
      for (const Block& b : node.blocks) n += length(b);
    }
    return n;
  }

  void branch(const Node& node) {
    if (node.blocks.size() != 2) fail_input("a condition of the program has no two branches");
    const auto known = at(node.inputs.at(0)).truth();
    std::size_t taken = known && *known ? 0 : 1;
    if (!known) {
      const bool first = raises(node.blocks[0]), second = raises(node.blocks[1]);
      if (first != second) {
        taken = first ? 1 : 0;
      } else {
        taken = length(node.blocks[1]) > length(node.blocks[0]) ? 1 : 0;
        note("MP014",
             fmt::format("a condition in '{}' depends on data; the branch with more calls is counted", place(node)),
             About::branch);
      }
    }
    nodes(node.blocks[taken]);
    const auto& results = node.blocks[taken].outputs;
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      V v = at(results.at(i));
      at(node.outputs[i]) = std::move(v);
    }
  }

  void loop(const Node& node) {
    if (node.blocks.size() != 1 || node.inputs.size() < 2) fail_input("a loop of the program has no body");
    const Block& block = node.blocks[0];
    const auto most = at(node.inputs[0]).integer();
    auto goes_on = at(node.inputs[1]).truth();
    std::vector<V> carried;
    for (std::size_t i = 2; i < node.inputs.size(); ++i) carried.push_back(at(node.inputs[i]));
    if (!most || !goes_on)
      note("MP013", fmt::format("a loop in '{}' runs as often as data say; one turn is counted", place(node)),
           About::branch);
    const std::int64_t turns = most.value_or(1);
    for (std::int64_t turn = 0; turn < turns && goes_on.value_or(turn == 0); ++turn) {
      at(block.inputs.at(0)) = turn;
      for (std::size_t i = 0; i < carried.size(); ++i) at(block.inputs.at(i + 1)) = std::move(carried[i]);
      nodes(block);
      goes_on = at(block.outputs.at(0)).truth();
      for (std::size_t i = 0; i < carried.size(); ++i) carried[i] = at(block.outputs.at(i + 1));
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i) at(node.outputs[i]) = carried.at(i);
  }

  void note(std::string code, std::string text, About about) {
    if (std::none_of(notes_.begin(), notes_.end(), [&](const Note& n) { return n.text == text; }))
      notes_.push_back({std::move(code), std::move(text), Evidence::assumed, about});
  }

  const Script& script_;
  const TrainingSetup& setup_;
  std::shared_ptr<torch_export::Program> program_;
  Calls calls_;
  std::vector<V> values_, stored_, constants_;
  std::vector<Note> notes_;
  std::int64_t steps_ = 0;
};

}  // namespace

}  // namespace torchscript

Result<Unrolled> unroll_script(const Model& model, const std::map<std::string, std::int64_t, std::less<>>& dims,
                               const TrainingSetup& setup) {
  return catching(
      [&] { return torchscript::Unrolling(*model.exported->script, dims, model.graphs.front(), setup).take(); });
}

}  // namespace memplan
