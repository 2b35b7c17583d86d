// The graph that an installed ONNX Runtime makes of a plain file: its optimizers are asked, not imitated.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "estimators/graph/graph.h"

namespace memplan {

struct Rewritten {
  std::optional<Model> model;  ///< none where no ONNX Runtime could be asked
  std::string complaint;       ///< why one that is there, or that somebody named, could not be asked; else empty
};

/// How far: `extended` is what a session runs, `basic` the graph whose nodes it places, which it fuses afterwards.
enum class RewriteLevel : std::uint8_t { extended, basic };

/// Has ONNX Runtime rewrite what `slim` gives, the bytes of slim_onnx (pipeline.h) that `plain` was read from, in a
/// child process that runs nothing of it but foldings of constants, on weights of zeros. The CPU provider serves: its
/// optimizers are the CUDA provider's but for some fusions, which are left out or undone. What came out is kept in the
/// user's cache folder. `where`: "auto" for the Pythons at hand, or a Python. Failure(usage) when that one has no
/// onnxruntime. Graphs with more weights than a GiB are not asked about.
Rewritten rewritten_by_onnxruntime(const Model& plain, const std::function<std::string()>& slim,
                                   const std::string& where, RewriteLevel level = RewriteLevel::extended);

/// The version of the package that would be asked, "1.31.1"; empty where there is none. Nothing is started.
std::string installed_onnxruntime(const std::string& where);

}  // namespace memplan
