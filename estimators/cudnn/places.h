// Where cuDNN may be installed: with the PyTorch wheels of the Pythons at hand.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace memplan {

struct CudnnPlace {
  std::string python;   ///< a Python that can load it
  std::string library;  ///< libcudnn.so.9
};

/// Places whose cuDNN is of `version`, "9.19", as the names of packages and files say, the likeliest first: that
/// of the Python that $MEMPLAN_PYTHON (the Python module sets it) or $MEMPLAN_TORCH_PYTHON names, else those of
/// $VIRTUAL_ENV, $CONDA_PREFIX and python3 on PATH. Only folders are looked at, nothing is started.
std::vector<CudnnPlace> cudnn_places(std::string_view version);

/// The library that somebody named, a file or its folder, with the first Python at hand. No element: there is no
/// Python. Failure(usage) when it names no libcudnn.
std::vector<CudnnPlace> named_cudnn(const std::string& path);

}  // namespace memplan
