// load_model of pipeline.h.
#include "estimators/frontends/onnx/reader.h"
#include "estimators/frontends/onnx/wire.h"
#include "estimators/pipeline.h"

namespace memplan {

Result<Model> load_model(const std::string& path) {
  return catching([&] {
    const onnx_format::MappedFile file(path);
    return onnx_format::read_model(file.bytes(), path);
  });
}

}  // namespace memplan
