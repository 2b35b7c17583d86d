#include "estimators/frontends/onnx/reader.h"

#include <fmt/format.h>
#include <google/protobuf/arena.h>
#include <google/protobuf/io/coded_stream.h>

#include <limits>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "estimators/frontends/onnx/order.h"
#include "estimators/frontends/onnx/tensors.h"
#include "estimators/frontends/onnx/wire.h"
#include "onnx/onnx-ml.pb.h"

namespace memplan::onnx_format {

namespace {

using ::onnx::AttributeProto;
using ::onnx::FunctionProto;
using ::onnx::GraphProto;
using ::onnx::ModelProto;
using ::onnx::NodeProto;

constexpr std::size_t max_nodes = 4'000'000;
/// Of those that functions unfold into, which can blow a small file up without bound; no real model comes near this.
constexpr std::size_t max_inlined_nodes = 250'000;
constexpr int max_function_depth = 40;

/// TensorNames as one scope of the file sees them: a graph, or the body of a function that is being inlined.
struct TensorNames {
  std::unordered_map<std::string, GraphValueId> ids;
  const TensorNames* outer = nullptr;  ///< of a subgraph: what it may capture
  GraphId graph = 0;
  std::string prefix;  ///< of values that an inlined function makes
};

/// Where a function is being inlined: the call's attributes, which the body may refer to.
struct CallSite {
  const NodeProto* call = nullptr;
  const FunctionProto* function = nullptr;
  const CallSite* outer = nullptr;
  int depth = 0;
};

std::string function_key(const std::string& domain, const std::string& name, const std::string& overload) {
  return domain + '\n' + name + '\n' + overload;
}

class Reader {
 public:
  Reader(const ModelProto& proto, const std::string& path) : proto_(proto) {
    model_.path = path;
    for (const FunctionProto& f : proto.functions()) functions_[function_key(f.domain(), f.name(), f.overload())] = &f;
  }

  Model read() {
    for (const auto& opset : proto_.opset_import())
      if (opset.domain().empty() || opset.domain() == "ai.onnx")
        model_.opset = opset.version();
      else
        model_.domains.push_back(opset.domain());
    model_.ir = proto_.ir_version();
    model_.producer = proto_.producer_name();
    if (model_.producer == "pytorch") model_.torch = proto_.producer_version();
    model_.format =
        fmt::format("ONNX opset {}{}{}{}{}", model_.opset, model_.producer.empty() ? "" : ", ", model_.producer,
                    proto_.producer_version().empty() ? "" : " ", proto_.producer_version());
    for (const auto& entry : proto_.metadata_props()) model_.metadata.emplace(entry.key(), entry.value());
    if (!proto_.has_graph()) fail_input("the file holds no graph", model_.path, "is this an ONNX model?");
    if (model_.opset > 0 && model_.opset < 9)
      model_.warnings.push_back(fmt::format("opset {} is older than 9, the oldest that memplan knows", model_.opset));
    model_.graphs.emplace_back();
    TensorNames names;
    read_graph(proto_.graph(), names, nullptr);
    return std::move(model_);
  }

 private:
  Graph& graph(GraphId id) { return model_.graphs[static_cast<std::size_t>(id)]; }

  GraphValueId add_value(TensorNames& names, const std::string& name) {
    Graph& g = graph(names.graph);
    g.values.push_back({names.prefix + name, std::nullopt, std::nullopt, {}});
    const auto id = static_cast<GraphValueId>(g.values.size() - 1);
    names.ids.emplace(name, id);
    return id;
  }

  /// The value of a name, made on first sight: the order of nodes is checked when all are known.
  GraphValueId value(TensorNames& names, const std::string& name) {
    if (name.empty()) return -1;
    if (auto it = names.ids.find(name); it != names.ids.end()) return it->second;
    const GraphValueId id = add_value(names, name);
    for (const TensorNames* o = names.outer; o; o = o->outer)
      if (auto it = o->ids.find(name); it != o->ids.end()) {
        const GraphValue& captured = graph(o->graph).values[static_cast<std::size_t>(it->second)];
        GraphValue& here = graph(names.graph).values[static_cast<std::size_t>(id)];
        here = {captured.name, captured.dtype, captured.shape, {}};
        captured_[static_cast<std::size_t>(names.graph)].insert(id);
        break;
      }
    return id;
  }

  void read_graph(const GraphProto& p, TensorNames& names, const CallSite* site) {
    const GraphId id = names.graph;
    if (captured_.size() <= static_cast<std::size_t>(id)) captured_.resize(static_cast<std::size_t>(id) + 1);
    graph(id).name = p.name();
    for (const auto& entry : p.metadata_props()) graph(id).metadata[entry.key()] = entry.value();
    const auto nodes = static_cast<std::size_t>(p.node_size()), stored = static_cast<std::size_t>(p.initializer_size());
    names.ids.reserve(nodes + stored + static_cast<std::size_t>(p.value_info_size()) + 16);
    graph(id).nodes.reserve(nodes);
    graph(id).values.reserve(nodes + stored + static_cast<std::size_t>(p.input_size()));

    // What the graph itself defines goes first, so that it shadows outer names.
    for (const auto& tensor : p.initializer()) add_initializer(names, tensor);
    for (const auto& sparse : p.sparse_initializer()) {
      const GraphValueId v = add_initializer(names, sparse.values());
      StoredTensor& stored = graph(id).initializers[v];
      stored.sizes.assign(sparse.dims().begin(), sparse.dims().end());
      stored.integers.clear(), stored.floats.clear();
      model_.warnings.push_back(fmt::format("sparse initializer '{}' is counted as a dense tensor", stored.name));
    }
    for (const auto& input : p.input()) {
      const bool stored = names.ids.count(input.name()) > 0;
      const GraphValueId v = stored ? names.ids.at(input.name()) : add_value(names, input.name());
      read_value_info(input, graph(id).values[static_cast<std::size_t>(v)]);
      if (!stored) graph(id).inputs.push_back(v);
    }
    for (const NodeProto& node : p.node())
      for (const std::string& name : node.output())
        if (!name.empty() && !names.ids.count(name)) add_value(names, name);
    for (const auto& info : p.value_info())
      if (auto it = names.ids.find(info.name()); it != names.ids.end())
        read_value_info(info, graph(id).values[static_cast<std::size_t>(it->second)]);
    follow_declared_dtypes(graph(id));

    for (const NodeProto& node : p.node()) add_node(node, names, site);
    for (const auto& output : p.output()) {
      const GraphValueId v = value(names, output.name());
      if (v < 0) continue;
      read_value_info(output, graph(id).values[static_cast<std::size_t>(v)]);
      graph(id).outputs.push_back(v);
    }
    put_in_order(graph(id), captured_[static_cast<std::size_t>(id)], model_, model_.warnings);
  }

  /// What onnxscript's optimizer worked out in NumPy may be doubles where the program has floats (einsum of integers
  /// and floats); the value's type is still the program's.
  static void follow_declared_dtypes(Graph& g) {
    for (auto& [v, stored] : g.initializers) {
      const GraphValue& value = g.values[static_cast<std::size_t>(v)];
      if (value.dtype && is_floating(*value.dtype) && is_floating(stored.dtype) &&
          value.metadata.contains("pkg.onnxscript.optimizer.folded_from"))
        stored.dtype = *value.dtype;
    }
  }

  GraphValueId add_initializer(TensorNames& names, const ::onnx::TensorProto& tensor) {
    if (names.ids.count(tensor.name()))
      fail_input(fmt::format("the initializer '{}' is defined twice", tensor.name()), tensor.name(),
                 "export the model again");
    StoredTensor stored = read_tensor(tensor, model_.warnings);
    const GraphValueId v = add_value(names, tensor.name());
    GraphValue& value = graph(names.graph).values[static_cast<std::size_t>(v)];
    value.dtype = stored.dtype;
    std::vector<Dim> shape;
    for (std::int64_t d : stored.sizes) shape.push_back({d, {}});
    value.shape = std::move(shape);
    graph(names.graph).initializers.emplace(v, std::move(stored));
    return v;
  }

  void add_node(const NodeProto& p, TensorNames& names, const CallSite* site) {
    if (++(site ? inlined_nodes_ : nodes_) > (site ? max_inlined_nodes : max_nodes))
      fail_input(site ? fmt::format("the functions of the graph unfold into more than {} nodes", max_inlined_nodes)
                      : fmt::format("the graph has more than {} nodes", max_nodes),
                 model_.path, "no exporter writes such a file");
    if (auto it = functions_.find(function_key(p.domain(), p.op_type(), p.overload())); it != functions_.end())
      return inline_function(*it->second, p, names, site);
    GraphNode node;
    node.op_type = p.op_type();
    node.domain = p.domain() == "ai.onnx" ? std::string() : p.domain();
    node.name = names.prefix + p.name();
    for (const auto& entry : p.metadata_props()) node.metadata.emplace(entry.key(), entry.value());
    if (node.metadata.empty() && site)  // a body has no metadata of its own: the call's says where it stands
      for (const CallSite* s = site; s && node.metadata.empty(); s = s->outer)
        for (const auto& entry : s->call->metadata_props()) node.metadata.emplace(entry.key(), entry.value());
    node.inputs.reserve(static_cast<std::size_t>(p.input_size()));
    for (const std::string& name : p.input()) node.inputs.push_back(value(names, name));
    node.outputs.reserve(static_cast<std::size_t>(p.output_size()));
    for (const std::string& name : p.output()) node.outputs.push_back(value(names, name));
    for (const AttributeProto& a : p.attribute()) add_attribute(node, a, a.name(), names, site);
    graph(names.graph).nodes.push_back(std::move(node));
  }

  void add_attribute(GraphNode& node, const AttributeProto& a, const std::string& name, TensorNames& names,
                     const CallSite* site) {
    if (!a.ref_attr_name().empty()) {
      if (!site)
        fail_input(fmt::format("attribute '{}' refers to a function's attribute outside a function", name), node.name);
      for (const AttributeProto& given : site->call->attribute())
        if (given.name() == a.ref_attr_name()) return add_attribute(node, given, name, names, site->outer);
      for (const AttributeProto& standard : site->function->attribute_proto())
        if (standard.name() == a.ref_attr_name()) return add_attribute(node, standard, name, names, site->outer);
      return;  // optional and not given
    }
    auto set = [&](Attribute value) { node.attributes.insert_or_assign(name, std::move(value)); };
    switch (type_of(a)) {
      case AttributeProto::INT:
        return set(static_cast<std::int64_t>(a.i()));
      case AttributeProto::FLOAT:
        return set(static_cast<double>(a.f()));
      case AttributeProto::STRING:
        return set(a.s());
      case AttributeProto::INTS:
        return set(std::vector<std::int64_t>(a.ints().begin(), a.ints().end()));
      case AttributeProto::FLOATS:
        return set(std::vector<double>(a.floats().begin(), a.floats().end()));
      case AttributeProto::STRINGS:
        return set(std::vector<std::string>(a.strings().begin(), a.strings().end()));
      case AttributeProto::TENSOR:
        return set(read_tensor(a.t(), model_.warnings));
      case AttributeProto::SPARSE_TENSOR: {
        StoredTensor stored = read_tensor(a.sparse_tensor().values(), model_.warnings);
        stored.sizes.assign(a.sparse_tensor().dims().begin(), a.sparse_tensor().dims().end());
        stored.integers.clear(), stored.floats.clear();
        return set(std::move(stored));
      }
      case AttributeProto::GRAPH: {
        model_.graphs.emplace_back();
        TensorNames inner;
        inner.outer = &names;
        inner.graph = static_cast<GraphId>(model_.graphs.size() - 1);
        const GraphId id = inner.graph;
        read_graph(a.g(), inner, site);
        return set(id);
      }
      default:
        model_.warnings.push_back(
            fmt::format("attribute '{}' of node '{}' has a type that memplan does not read", name, node.name));
    }
  }

  /// Before IR version 2 the type was told by the field that is set.
  static int type_of(const AttributeProto& a) {
    if (a.type() != AttributeProto::UNDEFINED) return a.type();
    if (a.has_f()) return AttributeProto::FLOAT;
    if (a.has_i()) return AttributeProto::INT;
    if (a.has_s()) return AttributeProto::STRING;
    if (a.has_t()) return AttributeProto::TENSOR;
    if (a.has_g()) return AttributeProto::GRAPH;
    if (a.floats_size()) return AttributeProto::FLOATS;
    if (a.strings_size()) return AttributeProto::STRINGS;
    return AttributeProto::INTS;
  }

  void inline_function(const FunctionProto& f, const NodeProto& call, TensorNames& names, const CallSite* site) {
    const CallSite here{&call, &f, site, site ? site->depth + 1 : 1};
    if (here.depth > max_function_depth)
      fail_input(fmt::format("function '{}' is called {} levels deep; does it call itself?", f.name(), here.depth),
                 f.name(), "ONNX functions must not be recursive");
    TensorNames body;
    body.graph = names.graph;
    body.prefix = fmt::format("{}{}_{}/", names.prefix, f.name(), ++inlined_);
    // A function sees nothing but its arguments; its values are prefixed, so that two calls do not collide.
    for (int i = 0; i < f.input_size(); ++i)
      body.ids.emplace(f.input(i), i < call.input_size() ? value(names, call.input(i)) : -1);
    for (int i = 0; i < f.output_size() && i < call.output_size(); ++i)
      if (!call.output(i).empty() && !body.ids.count(f.output(i)))
        body.ids.emplace(f.output(i), value(names, call.output(i)));
    for (const NodeProto& node : f.node()) add_node(node, body, &here);
    // An output that is an input of the function passes a value through.
    for (int i = 0; i < f.output_size() && i < call.output_size(); ++i)
      for (int k = 0; k < f.input_size() && k < call.input_size(); ++k)
        if (f.output(i) == f.input(k)) {
          GraphNode pass;
          pass.op_type = "Identity";
          pass.inputs = {value(names, call.input(k))};
          pass.outputs = {value(names, call.output(i))};
          graph(names.graph).nodes.push_back(std::move(pass));
        }
  }

  const ModelProto& proto_;
  Model model_;
  std::unordered_map<std::string, const FunctionProto*> functions_;
  std::vector<std::unordered_set<GraphValueId>> captured_;
  std::size_t nodes_ = 0, inlined_nodes_ = 0;
  std::int64_t inlined_ = 0;
};

}  // namespace

Model read_model(std::string_view bytes, const std::string& path) {
  std::optional<std::string> without_weights;
  if (!is_slim(bytes, path)) without_weights = slim_model(bytes, path);
  const std::string_view slim = without_weights ? *without_weights : bytes;
  if (slim.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    fail_input("the graph without its weights is larger than 2 GiB", path);
  // Hundreds of thousands of small messages: an arena takes and frees them at once.
  google::protobuf::Arena arena;
  ModelProto& proto = *google::protobuf::Arena::CreateMessage<ModelProto>(&arena);
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const std::uint8_t*>(slim.data()),
                                                static_cast<int>(slim.size()));
  stream.SetRecursionLimit(100);
  if (!proto.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage()) {
    check_model(bytes, path);
    fail_input("the file is damaged or not an ONNX model: protobuf cannot parse it", path,
               "check the file with onnx.checker, or export the model again");
  }
  if (!proto.has_graph() && proto.opset_import_size() == 0 && proto.ir_version() == 0)
    fail_input("the file is not an ONNX model: it has no IR version, no opset and no graph", path,
               "give the path of an .onnx file");
  Model model = Reader(proto, path).read();
  model.file_bytes = static_cast<std::int64_t>(bytes.size());
  return model;
}

}  // namespace memplan::onnx_format
