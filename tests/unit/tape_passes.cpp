#include <doctest/doctest.h>

#include "estimators/restore/lifetimes.h"
#include "estimators/restore/passes.h"
#include "estimators/restore/statement.h"
#include "estimators/setup/setup.h"

using namespace memplan;

namespace {

/// A tape written call by call; values are told by name.
struct Passes {
  Tape tape;
  std::int32_t scope(const char* path, const char* module_class, std::int32_t parent, const char* source = "") {
    Scope s;
    s.path = path;
    s.module_class = module_class;
    s.parent = parent;
    s.source = source;
    tape.scopes.push_back(s);
    return static_cast<std::int32_t>(tape.scopes.size() - 1);
  }
  ValueId value(const char* name, ValueKind kind = ValueKind::computed) {
    TapeValue v;
    v.name = name;
    v.kind = kind;
    return tape.add_value(v);
  }
  ValueId call(const char* op, std::vector<Arg> args, std::int32_t scope, const char* source, const char* name) {
    Call c;
    c.op = op;
    c.args = std::move(args);
    c.scope = scope;
    c.source = source;
    c.outputs = {value(name)};
    tape.calls.push_back(c);
    return c.outputs[0];
  }
  /// Index of the call after which the value is gone, -1 when it stays.
  int gone_after(ValueId id) const {
    for (std::size_t i = 0; i < tape.calls.size(); ++i)
      for (ValueId u : tape.calls[i].last_uses)
        if (u == id) return static_cast<int>(i);
    return -1;
  }
};

}  // namespace

TEST_CASE("a line of Python is taken apart into its targets") {
  const auto names = [](const char* text) { return parse_statement(text).targets; };
  CHECK(names("a.py:1 out = self.conv(x)") == std::vector<std::vector<std::string_view>>{{"out"}});
  CHECK(names("a.py:1 q, k = f(x)") == std::vector<std::vector<std::string_view>>{{"q", "k"}});
  CHECK(names("a.py:1 a = b = f(x)") == std::vector<std::vector<std::string_view>>{{"a"}, {"b"}});
  CHECK(names("a.py:1 (h, c) = f(x)") == std::vector<std::vector<std::string_view>>{{"h", "c"}});
  CHECK(names("a.py:1 x: Tensor = f(y=2)") == std::vector<std::vector<std::string_view>>{{"x"}});
  CHECK(names("a.py:1 return f(x, dim=1)").empty());
  CHECK(names("a.py:1 assert x == y").empty());
  CHECK(names("a.py:1 f(mode='a=b')").empty());
  CHECK(parse_statement("a.py:1 out += identity").augmented == '+');
  CHECK(parse_statement("a.py:1 out += identity").targets.front().front() == "out");
  CHECK(parse_statement("a.py:1 x **= 2").augmented == 0);
}

TEST_CASE("a name holds its tensor until it is bound again, a temporary goes with its last use") {
  // def forward(self, x): y = relu(x + x); y = exp(y); return y * y
  Passes b;
  const auto root = b.scope("", "M", -1);
  const ValueId x = b.value("x", ValueKind::user_input);
  const ValueId sum = b.call("aten::add.Tensor", {{x}, {x}}, root, "m.py:1 y = relu(x + x)", "sum");
  const ValueId y1 = b.call("aten::relu", {{sum}}, root, "m.py:1 y = relu(x + x)", "y1");
  const ValueId y2 = b.call("aten::exp", {{y1}}, root, "m.py:2 y = exp(y)", "y2");
  const ValueId out = b.call("aten::mul.Tensor", {{y2}, {y2}}, root, "m.py:3 return y * y", "out");
  b.tape.outputs = {out};
  mark_last_uses(b.tape);
  CHECK(b.gone_after(sum) == 1);
  CHECK(b.gone_after(y1) == 2);
  CHECK(b.gone_after(y2) == 3);
  CHECK(b.gone_after(out) == -1);
}

TEST_CASE("an argument lives until the module that got it returns") {
  // block: h = self.a(x); return self.b(h)   with b: t = exp(x); u = t * 2; return u + 1
  Passes b;
  const auto root = b.scope("", "M", -1);
  const auto block = b.scope("b", "B", root, "m.py:2 return self.b(h)");
  const ValueId x = b.value("x", ValueKind::user_input);
  const ValueId h = b.call("aten::relu", {{x}}, root, "m.py:1 h = self.a(x)", "h");
  const ValueId t = b.call("aten::exp", {{h}}, block, "b.py:1 t = exp(x)", "t");
  const ValueId u = b.call("aten::mul.Tensor", {{t}, {std::int64_t{2}}}, block, "b.py:2 u = t * 2", "u");
  const ValueId out = b.call("aten::add.Tensor", {{u}, {std::int64_t{1}}}, block, "b.py:3 return u + 1", "out");
  b.tape.outputs = {out};
  mark_last_uses(b.tape);
  CHECK(b.gone_after(h) == 3);  // b's argument tuple, although b read it first
  CHECK(b.gone_after(t) == 3);  // a name of b that is not bound again
  CHECK(b.gone_after(u) == 3);
}

TEST_CASE("a loop binds its name anew in every turn") {
  // out = zeros; for e in experts: out = out + gate * e   (two ops per turn, three turns)
  Passes b;
  const auto root = b.scope("", "M", -1);
  const ValueId gate = b.value("gate", ValueKind::user_input);
  const ValueId zeros = b.call("aten::zeros_like", {{gate}}, root, "m.py:1 out = torch.zeros_like(x)", "zeros");
  std::vector<ValueId> sums{zeros};
  const char* line = "m.py:3 out = out + gate * e";
  for (int turn = 0; turn < 3; ++turn) {
    const ValueId product = b.call("aten::mul.Tensor", {{gate}, {gate}}, root, line, "product");
    sums.push_back(b.call("aten::add.Tensor", {{sums.back()}, {product}}, root, line, "sum"));
  }
  b.tape.outputs = {sums.back()};
  mark_last_uses(b.tape);
  CHECK(b.gone_after(zeros) == 2);
  CHECK(b.gone_after(sums[1]) == 4);
  CHECK(b.gone_after(sums[2]) == 6);
}

TEST_CASE("the results of a line go to its targets in order") {
  Passes b;
  const auto root = b.scope("", "M", -1);
  const auto attention = b.scope("a", "A", root, "m.py:1 x, _ = self.a(x)");
  const ValueId in = b.value("in", ValueKind::user_input);
  const ValueId x = b.call("aten::relu", {{in}}, attention, "a.py:1 return x, None", "x");
  const ValueId y = b.call("aten::exp", {{x}}, root, "m.py:2 x = exp(x)", "y");
  const ValueId out = b.call("aten::tanh", {{y}}, root, "m.py:3 return tanh(x)", "out");
  b.tape.outputs = {out};
  mark_last_uses(b.tape);
  CHECK(b.gone_after(x) == 1);  // bound to x, not to the name that is never bound again
}

TEST_CASE("in-place ops come back from the line, from the class and from the file") {
  Passes b;
  const auto root = b.scope("", "torchvision.models.resnet.ResNet", -1);
  const auto block = b.scope("layer1.0", "torchvision.models.resnet.BasicBlock", root);
  const auto relu = b.scope("layer1.0.relu", "torch.nn.modules.activation.ReLU", block);
  const auto other = b.scope("head.act", "torch.nn.modules.activation.ReLU", root);
  const ValueId in = b.value("in", ValueKind::user_input);
  const ValueId a = b.call("aten::tanh", {{in}}, block, "r.py:1 out = tanh(x)", "a");
  const ValueId sum = b.call("aten::add.Tensor", {{a}, {in}}, block, "r.py:2 out += identity", "sum");
  const ValueId r = b.call("aten::relu", {{sum}}, relu, "act.py:1 return F.relu(input, inplace=self.inplace)", "r");
  const ValueId r2 = b.call("aten::relu", {{r}}, other, "act.py:1 return F.relu(input, inplace=self.inplace)", "r2");
  b.tape.outputs = {r2};
  Tape listed = b.tape;
  recover_inplace(b.tape, "");
  CHECK(b.tape.calls[1].op == "aten::add_.Tensor");
  CHECK(b.tape.calls[2].op == "aten::relu_");
  CHECK(b.tape.calls[3].op == "aten::relu");  // no rule knows the class around it
  recover_inplace(listed, "head.act other.path");
  CHECK(listed.calls[3].op == "aten::relu_");
}

TEST_CASE("an input of the model is never changed in place") {
  Passes b;
  const auto root = b.scope("", "M", -1);
  const ValueId in = b.value("in", ValueKind::user_input);
  b.tape.outputs = {b.call("aten::add.Tensor", {{in}, {in}}, root, "m.py:1 x += x", "sum")};
  recover_inplace(b.tape, "");
  CHECK(b.tape.calls[0].op == "aten::add.Tensor");
}

TEST_CASE("a mask that only tracing builds goes; one that an input tells stays") {
  for (const bool from_input : {false, true}) {
    Passes b;
    const auto root = b.scope("model", "M", -1);
    const char* line = "transformers/x.py:1 causal_mask = create_causal_mask(";
    const ValueId q = b.value("q", ValueKind::user_input);
    const ValueId padding = b.value("attention_mask", ValueKind::user_input);
    const ValueId positions = b.call("aten::arange", {{std::int64_t{4}}}, root, line, "positions");
    ValueId mask = b.call("aten::le.Tensor", {{positions}, {positions}}, root, line, "mask");
    if (from_input) mask = b.call("aten::bitwise_and.Tensor", {{mask}, {padding}}, root, line, "both");
    const ValueId out = b.call("aten::scaled_dot_product_attention", {{q}, {q}, {q}, {mask}}, root,
                               "transformers/x.py:2 a = f(", "out");
    b.tape.outputs = {out};
    recover_causal_masks(b.tape);
    const Call& attention = b.tape.calls.back();
    CHECK(attention.args[3].is_none() == !from_input);
    CHECK(b.tape.calls.size() == (from_input ? 4u : 1u));
    if (!from_input) CHECK(std::get<bool>(attention.args[5].value));
  }
}

TEST_CASE("dropped paths pass their input through in inference") {
  Passes b;
  const auto root = b.scope("", "M", -1);
  const auto drop = b.scope("sd", "torchvision.ops.stochastic_depth.StochasticDepth", root);
  const ValueId in = b.value("in", ValueKind::user_input);
  const ValueId noise = b.call("aten::empty.memory_format", {{Arg::List{{std::int64_t{2}}}}}, drop, "", "noise");
  const ValueId product = b.call("aten::mul.Tensor", {{in}, {noise}}, drop, "", "product");
  b.tape.outputs = {b.call("aten::relu", {{product}}, root, "", "out")};
  enter_inference(b.tape, Precision::fp32);
  REQUIRE(b.tape.calls.size() == 1);
  CHECK(std::get<ValueId>(b.tape.calls[0].args[0].value) == in);
}
