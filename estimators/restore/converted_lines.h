// Lines of Python that convert what they make.
#pragma once

#include <string>
#include <string_view>

namespace memplan {

/// What a line converts its whole result to.
struct ConvertedTo {
  std::string name;   ///< "v" of `q = rotate(q, rope).type_as(v)` and of `return rotate(q).to(v.dtype)`
  bool fp32 = false;  ///< `return self.head(x).float()`
  bool norm = false;  ///< `ret = super().forward(v.float())` of a norm that has no later line: `return ret.type_as(v)`
  explicit operator bool() const { return fp32 || !name.empty(); }
};

/// `source` is "file.py:12 text", as in Call::source. Nothing where the line converts only a part of its result.
ConvertedTo converted_to(std::string_view source);

}  // namespace memplan
