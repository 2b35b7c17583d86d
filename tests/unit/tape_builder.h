// Small tapes written by hand, for tests of what works on a tape.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "estimators/restore/lifetimes.h"
#include "estimators/tape/tape.h"

namespace memplan::testing {

/// Adds modules, values and calls to `tape`. `x` is the value that the layers pass on.
struct TapeBuilder {
  Tape tape;
  ValueId x;

  std::int32_t scope(std::string path, std::string module_class, std::int32_t parent) {
    Scope s;
    s.path = std::move(path);
    s.module_class = std::move(module_class);
    s.parent = parent;
    tape.scopes.push_back(s);
    return static_cast<std::int32_t>(tape.scopes.size() - 1);
  }

  ValueId value(std::string name, ValueKind kind, std::vector<std::int64_t> sizes) {
    TapeValue v;
    v.name = std::move(name);
    v.kind = kind;
    v.sizes = std::move(sizes);
    v.requires_grad = kind == ValueKind::parameter;
    return tape.add_value(v);
  }

  void input(std::vector<std::int64_t> sizes) {
    x = value("x", ValueKind::user_input, std::move(sizes));
    tape.inputs = {x};
  }

  ValueId call(std::string op, std::vector<Arg> args, std::int32_t at) {
    Call c;
    c.op = std::move(op);
    c.args = std::move(args);
    c.scope = at;
    c.outputs = {value("v", ValueKind::computed, {})};
    tape.calls.push_back(c);
    return c.outputs[0];
  }

  /// A square nn.Linear without bias.
  void linear(const std::string& path, std::int64_t width, std::int32_t parent) {
    const auto at = scope(path, "torch.nn.modules.linear.Linear", parent);
    const ValueId w = value(path + ".weight", ValueKind::parameter, {width, width});
    tape.parameters.push_back(w);
    x = call("aten::linear", {{x}, {w}}, at);
  }

  void gelu(std::int32_t at) { x = call("aten::gelu", {{x}}, at); }
};

/// `count` modules "blocks.<i>" of two square Linears, "up" and "down", with an activation between them.
inline TapeBuilder two_layer_blocks(int count, std::int64_t rows, std::int64_t width) {
  TapeBuilder b;
  const auto root = b.scope("", "Model", -1);
  b.input({rows, width});
  for (int i = 0; i < count; ++i) {
    const std::string path = "blocks." + std::to_string(i);
    const auto block = b.scope(path, "Block", root);
    b.linear(path + ".up", width, block);
    b.gelu(block);
    b.linear(path + ".down", width, block);
  }
  b.tape.outputs = {b.x};
  return b;
}

/// The same as a finished tape.
inline Tape two_layer_tape(int count, std::int64_t rows, std::int64_t width) {
  Tape tape = two_layer_blocks(count, rows, width).tape;
  mark_last_uses(tape);
  return tape;
}

}  // namespace memplan::testing
