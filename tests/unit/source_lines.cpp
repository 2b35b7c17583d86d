// Paths of source lines as every machine has them: rules about PyTorch's own modules look for "torch/nn/modules/…".
#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "estimators/frontends/onnx/call_frames.h"
#include "estimators/frontends/onnx/scopes.h"
#include "estimators/restore/statement.h"

using memplan::onnx_format::stack_lines;

TEST_CASE("what lies before the packages of a Python is left out, wherever that Python lies") {
  for (const char* packages : {"/srv/u/build/torch/lib/python3.11/site-packages/", "/usr/lib/python3/dist-packages/",
                               "/a/site-packages/x/site-packages/"}) {
    const auto lines =
        stack_lines(std::string("File \"/srv/u/torch/net.py\", line 3, in forward\n    y = self.a(x)\nFile \"") +
                    packages + "torch/nn/modules/linear.py\", line 9, in forward\n    return F.linear(input)");
    REQUIRE(lines.size() == 2);
    CHECK(lines[0] == "torch/net.py:3 y = self.a(x)");
    CHECK(lines[1] == "torch/nn/modules/linear.py:9 return F.linear(input)");
  }
}

// torch.export(strict=True): all frames, one of PyTorch's own in front, and none of PyTorch's modules.
TEST_CASE("of a strict trace the frames of forwards alone count") {
  const auto lines = stack_lines(
      "File \"/p/site-packages/torch/_dynamo/functional_export.py\", line 221, in forward\n"
      "    res = self._export_root(*args, **kwargs)\n"
      "File \"/p/site-packages/transformers/models/x/modeling_x.py\", line 9, in forward\n    h = layer(h)\n"
      "File \"/p/site-packages/transformers/modeling_layers.py\", line 121, in forward_with_checkpointing\n"
      "    return forward(self, *args, **kwargs)\n"
      "File \"/p/site-packages/transformers/models/x/modeling_x.py\", line 5, in forward\n    q = self.q(x)\n");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "transformers/models/x/modeling_x.py:9 h = layer(h)");
  CHECK(lines[1] == "transformers/models/x/modeling_x.py:5 q = self.q(x)");
  CHECK(stack_lines("File \"/s/m.py\", line 7, in helper\n    return x + 1\n").size() == 1);
}

TEST_CASE("modules of PyTorch without a frame get one, and no others do") {
  using Texts = std::vector<std::string>;
  using memplan::onnx_format::with_frames_of_torch;
  const std::string linear = "torch.nn.modules.linear.Linear", sequential = "torch.nn.modules.container.Sequential";
  const Texts root = {"m.py:3 y = self.net(x)"};
  CHECK(with_frames_of_torch(3, Texts{"m.M", sequential, linear}, root) ==
        Texts{root[0], "torch/nn/modules/container.py:0 input = module(input)",
              "torch/nn/modules/linear.py:0 return F.forward(input)"});
  CHECK(with_frames_of_torch(2, Texts{"m.M", linear, "aten.linear.default"}, root).size() == 2);
  CHECK(with_frames_of_torch(3, Texts{"m.M", "m.Block", linear}, root) == root);
}

TEST_CASE("what numbers a module is no tensor of a line") {
  using Names = std::vector<std::string_view>;
  CHECK(memplan::names_read("self.stages[s](x)") == Names{"x"});
  CHECK(memplan::names_read("self.up.convs[-(s + 1)](x, skip)") == Names{"x", "skip"});
  CHECK(memplan::names_read("self.table[index]") == Names{"index"});
  CHECK(memplan::names_read("skips[s](x)") == Names{"skips", "s", "x"});
}

// Speech2Text's positions: the first node in the module is a region without gradients, which torch.export gives no
// trace.
TEST_CASE("a module whose first node has no lines gets its caller's line from the next one") {
  using Texts = std::vector<std::string>;
  memplan::Tape tape;
  memplan::onnx_format::ScopeTracker scopes(tape);
  const Texts paths = {"", "embed"}, classes = {"M", "Embed"};
  const Texts first = {"m.py:1 x = self.embed(x)", "e.py:1 return f(x)"};
  const Texts second = {"m.py:2 y = self.embed(y)", "e.py:1 return f(x)"};
  std::string line;
  const auto at = scopes.enter(paths, classes, {}, line);
  CHECK(tape.scopes[static_cast<std::size_t>(at)].source.empty());
  CHECK(scopes.enter(paths, classes, first, line) == at);
  CHECK(tape.scopes[static_cast<std::size_t>(at)].source == "m.py:1 x = self.embed(x)");
  CHECK(scopes.enter(paths, classes, second, line) != at);  // another call of it
}
