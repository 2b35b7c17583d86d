// ONNX models built in code, for tests.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "estimators/frontends/onnx/reader.h"
#include "estimators/pipeline.h"
#include "onnx/onnx-ml.pb.h"

namespace memplan::test {

class Builder {
 public:
  explicit Builder(int opset = 20) {
    model.set_ir_version(9);
    model.set_producer_name("pytorch");
    model.add_opset_import()->set_version(opset);
    graph().set_name("main");
  }

  ::onnx::GraphProto& graph() { return *model.mutable_graph(); }

  /// Sizes; a negative one is the open dimension "batch".
  Builder& input(const std::string& name, std::initializer_list<std::int64_t> sizes,
                 int type = ::onnx::TensorProto::FLOAT) {
    return value(*graph().add_input(), name, sizes, type);
  }
  /// What the file says of a value between nodes.
  Builder& known(const std::string& name, std::initializer_list<std::int64_t> sizes) {
    return value(*graph().add_value_info(), name, sizes, ::onnx::TensorProto::FLOAT);
  }
  Builder& output(const std::string& name) {
    graph().add_output()->set_name(name);
    return *this;
  }
  /// A weight whose contents are elsewhere.
  Builder& weight(const std::string& name, std::initializer_list<std::int64_t> sizes,
                  int type = ::onnx::TensorProto::FLOAT) {
    auto* t = graph().add_initializer();
    t->set_name(name);
    t->set_data_type(type);
    for (std::int64_t s : sizes) t->add_dims(s);
    t->set_data_location(::onnx::TensorProto::EXTERNAL);
    auto* e = t->add_external_data();
    e->set_key("location");
    e->set_value("weights.bin");
    return *this;
  }
  Builder& integers(const std::string& name, const std::vector<std::int64_t>& values, bool scalar = false) {
    fill(*graph().add_initializer(), values, scalar)->set_name(name);
    return *this;
  }
  Builder& real(const std::string& name, float value) {
    auto* t = graph().add_initializer();
    t->set_name(name);
    t->set_data_type(::onnx::TensorProto::FLOAT);
    t->add_float_data(value);
    return *this;
  }

  ::onnx::NodeProto& node(const std::string& op, const std::vector<std::string>& inputs,
                          const std::vector<std::string>& outputs, const std::string& name = {}) {
    return fill(*graph().add_node(), op, inputs, outputs, name);
  }
  static ::onnx::NodeProto& fill(::onnx::NodeProto& n, const std::string& op, const std::vector<std::string>& inputs,
                                 const std::vector<std::string>& outputs, const std::string& name = {}) {
    n.set_op_type(op);
    n.set_name(name);
    for (const auto& i : inputs) n.add_input(i);
    for (const auto& o : outputs) n.add_output(o);
    return n;
  }
  static void attribute(::onnx::NodeProto& n, const std::string& name, std::int64_t value) {
    auto* a = n.add_attribute();
    a->set_name(name);
    a->set_type(::onnx::AttributeProto::INT);
    a->set_i(value);
  }
  static void attribute(::onnx::NodeProto& n, const std::string& name, float value) {
    auto* a = n.add_attribute();
    a->set_name(name);
    a->set_type(::onnx::AttributeProto::FLOAT);
    a->set_f(value);
  }
  static void attribute(::onnx::NodeProto& n, const std::string& name, std::initializer_list<std::int64_t> values) {
    auto* a = n.add_attribute();
    a->set_name(name);
    a->set_type(::onnx::AttributeProto::INTS);
    for (std::int64_t v : values) a->add_ints(v);
  }
  static ::onnx::GraphProto& subgraph(::onnx::NodeProto& n, const std::string& name) {
    auto* a = n.add_attribute();
    a->set_name(name);
    a->set_type(::onnx::AttributeProto::GRAPH);
    a->mutable_g()->set_name(name);
    return *a->mutable_g();
  }

  Result<Model> load() const {
    return catching([&] { return onnx_format::read_model(model.SerializeAsString(), "model.onnx"); });
  }
  Result<Tape> tape(TrainingSetup setup = {}) const {
    const auto m = load();
    if (!m.ok()) return m.error();
    return tape_of(*m, setup);
  }

  ::onnx::ModelProto model;

 private:
  Builder& value(::onnx::ValueInfoProto& v, const std::string& name, std::initializer_list<std::int64_t> sizes,
                 int type) {
    v.set_name(name);
    auto* t = v.mutable_type()->mutable_tensor_type();
    t->set_elem_type(type);
    t->mutable_shape();
    for (std::int64_t s : sizes) {
      auto* d = t->mutable_shape()->add_dim();
      if (s < 0)
        d->set_dim_param("batch");
      else
        d->set_dim_value(s);
    }
    return *this;
  }
  static ::onnx::TensorProto* fill(::onnx::TensorProto& t, const std::vector<std::int64_t>& values, bool scalar) {
    t.set_data_type(::onnx::TensorProto::INT64);
    if (!scalar) t.add_dims(static_cast<std::int64_t>(values.size()));
    for (std::int64_t v : values) t.add_int64_data(v);
    return &t;
  }
};

/// Names of the ops, in order.
inline std::vector<std::string> ops_of(const Tape& tape) {
  std::vector<std::string> out;
  for (const Call& c : tape.calls) out.push_back(c.op);
  return out;
}

inline const TapeValue& value_of(const Tape& tape, const std::string& name) {
  const auto it =
      std::find_if(tape.values.begin(), tape.values.end(), [&](const TapeValue& v) { return v.name == name; });
  static const TapeValue none;
  return it == tape.values.end() ? none : *it;
}

/// Argument `i` as a list of numbers; empty when it is none.
inline std::vector<std::int64_t> numbers(const Call& call, std::size_t i) {
  std::vector<std::int64_t> out;
  if (i < call.args.size())
    if (const auto* list = std::get_if<Arg::List>(&call.args[i].value))
      for (const Arg& a : *list)
        if (const auto* n = std::get_if<std::int64_t>(&a.value)) out.push_back(*n);
  return out;
}

/// Gives a node the exporter's notes: "name = call" of ATen, which so many calls read, made in `module`.
inline void noted(::onnx::NodeProto& n, const std::string& name, const std::string& call,
                  const std::string& module = "", int users = 1) {
  const auto entry = [&](const char* key, const std::string& value) {
    auto* e = n.add_metadata_props();
    e->set_key(key);
    e->set_value(value);
  };
  entry("pkg.torch.onnx.fx_node", "%" + name + " : [num_users=" + std::to_string(users) +
                                      "] = call_function[target=torch.ops.aten." + call + ", kwargs = {})");
  entry("pkg.torch.onnx.name_scopes", "['', '" + module + "', '" + name + "']");
  entry("pkg.torch.onnx.class_hierarchy", "['Net', 'Part', 'aten.op.default']");
}

inline TrainingSetup with_batch(std::int64_t batch) {
  TrainingSetup s;
  s.batch = batch;
  return s;
}

}  // namespace memplan::test
