// load_model of pipeline.h.
#include "estimators/frontends/detect.h"
#include "estimators/frontends/onnx/reader.h"
#include "estimators/frontends/onnx/wire.h"
#include "estimators/frontends/recording/reader.h"
#include "estimators/frontends/torch_export/reader.h"
#include "estimators/frontends/torchscript/reader.h"
#include "estimators/pipeline.h"
#include "estimators/setup/field.h"

namespace memplan {

Result<Model> load_model(const std::string& path, const std::vector<GivenInput>& inputs) {
  return catching([&] {
    const frontends::FileKind kind = frontends::detect(path);
    if (kind == frontends::FileKind::torch_script)
      return torchscript::read_script(torch_export::Archive(path), path, inputs);
    if (!inputs.empty() && (kind == frontends::FileKind::onnx || kind == frontends::FileKind::torch_export ||
                            kind == frontends::FileKind::recording))
      fail(ErrorKind::usage, "the file says itself what its inputs are", setting(Field::inputs),
           "set open dimensions with " + setting(Field::batch) + ", " + setting(Field::sequence) + " or " +
               setting(Field::dims, "NAME=N"));
    switch (kind) {
      case frontends::FileKind::onnx: {
        const onnx_format::MappedFile file(path);
        return onnx_format::read_model(file.bytes(), path);
      }
      case frontends::FileKind::recording:
        return recording::read_recording(torch_export::Archive(path), path);
      case frontends::FileKind::torch_export:
        return torch_export::read_archive(torch_export::Archive(path), path);
      default:
        frontends::refuse_without_graph(kind, path);
    }
  });
}

}  // namespace memplan
