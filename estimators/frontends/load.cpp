// load_model of pipeline.h.
#include "estimators/frontends/detect.h"
#include "estimators/frontends/onnx/reader.h"
#include "estimators/frontends/onnx/wire.h"
#include "estimators/frontends/recording/attached.h"
#include "estimators/frontends/recording/reader.h"
#include "estimators/frontends/torch_export/reader.h"
#include "estimators/frontends/torchscript/reader.h"
#include "estimators/frontends/unpack.h"
#include "estimators/pipeline.h"
#include "estimators/setup/field.h"

namespace memplan {

namespace {

/// Graphs whose weights lie elsewhere, or nowhere, are a few MB; files beyond this have weights in them.
constexpr std::size_t most_unpacked = std::size_t{512} << 20;

Model read_onnx(std::string_view bytes, const std::string& path) {
  Model model = onnx_format::read_model(bytes, path);
  auto attached = model.metadata.extract(std::string(recording::attached_key));
  return attached ? recording::with_attached(open_fixed(std::move(model)), attached.mapped())
                  : open_fixed(std::move(model));
}

Model read_export(const torch_export::Archive& archive, const std::string& path) {
  Model model = open_fixed(torch_export::read_archive(archive, path));
  for (const auto& member : archive.members())
    if (member.name.ends_with(recording::attached_member) && member.bytes <= recording::most_attached)
      return recording::with_attached(std::move(model), archive.read(member, recording::most_attached));
  return model;
}

Model read_packed(const std::string& path) {
  const auto unpacked = frontends::unpack(path, most_unpacked);
  if (!unpacked) frontends::refuse_packed(path);
  const std::string& bytes = *unpacked;
  // Archives are read by their directory at the end of a file.
  const bool tar = bytes.size() > 262 && bytes.compare(257, 5, "ustar") == 0;
  if (bytes.starts_with("PK") || tar || path.ends_with(".tar.gz") || path.ends_with(".tgz") ||
      path.ends_with(".tar.zst"))
    frontends::refuse_packed(path);
  frontends::refuse_what_is_no_model(path, std::string_view(bytes).substr(0, 64));
  return read_onnx(bytes, path);
}

}  // namespace

Result<Model> load_model(const std::string& path, const std::vector<GivenInput>& inputs) {
  return catching([&] {
    const frontends::FileKind kind = frontends::detect(path);
    if (kind == frontends::FileKind::torch_script)
      return torchscript::read_script(torch_export::Archive(path), path, inputs);
    if (!inputs.empty() && (kind == frontends::FileKind::onnx || kind == frontends::FileKind::torch_export ||
                            kind == frontends::FileKind::recording || kind == frontends::FileKind::packed))
      fail(ErrorKind::usage, "the file says itself what its inputs are", setting(Field::inputs),
           "set open dimensions with " + setting(Field::batch) + ", " + setting(Field::sequence) + " or " +
               setting(Field::dims, "NAME=N"));
    switch (kind) {
      case frontends::FileKind::onnx: {
        const onnx_format::MappedFile file(path);
        return read_onnx(file.bytes(), path);
      }
      case frontends::FileKind::packed:
        return read_packed(path);
      case frontends::FileKind::recording:
        return recording::read_recording(torch_export::Archive(path), path);
      case frontends::FileKind::torch_export:
        return read_export(torch_export::Archive(path), path);
      default:
        frontends::refuse_without_graph(kind, path);
    }
  });
}

Result<std::string> slim_onnx(const std::string& path) {
  return catching([&] {
    if (const auto unpacked = frontends::unpack(path, most_unpacked)) return onnx_format::slim_model(*unpacked, path);
    return onnx_format::slim_model(onnx_format::MappedFile(path).bytes(), path);
  });
}

}  // namespace memplan
