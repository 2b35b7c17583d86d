// load_model of pipeline.h.
#include "estimators/frontends/detect.h"
#include "estimators/frontends/onnx/reader.h"
#include "estimators/frontends/onnx/wire.h"
#include "estimators/frontends/torch_export/reader.h"
#include "estimators/pipeline.h"

namespace memplan {

Result<Model> load_model(const std::string& path) {
  return catching([&] {
    switch (const frontends::FileKind kind = frontends::detect(path)) {
      case frontends::FileKind::onnx: {
        const onnx_format::MappedFile file(path);
        return onnx_format::read_model(file.bytes(), path);
      }
      case frontends::FileKind::torch_export: return torch_export::read_archive(torch_export::Archive(path), path);
      default: frontends::refuse_without_graph(kind, path);
    }
  });
}

}  // namespace memplan
