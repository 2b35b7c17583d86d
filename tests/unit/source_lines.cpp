// Paths of source lines as every machine has them: rules about PyTorch's own modules look for "torch/nn/modules/…".
#include <doctest/doctest.h>

#include "estimators/frontends/onnx/scopes.h"

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
