// What kind of file this is, told by its contents: extensions lie, ".pt" alone stands for three formats.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace memplan::frontends {

enum class FileKind : std::uint8_t {
  onnx,           ///< or anything else: the ONNX reader says what is wrong with it
  torch_export,   ///< .pt2 archive
  recording,      ///< archive of memplan.record
  torch_script,   ///< zip of torch.jit.save
  state_dict,     ///< zip of torch.save
  legacy_pickle,  ///< torch.save before 1.6, or any pickle
  safetensors,
  gguf,
  folder,  ///< a directory
  other_zip,
  packed,  ///< gzip, Zstandard and the like
};

/// Reads the first bytes, and of a zip archive its directory. Failure(input) where the file cannot be read.
FileKind detect(const std::string& path);

/// Fails with what a file of weights says: bytes of parameters and of their training state, and that activations need
/// a graph. Never reads a tensor and never parses a pickle.
[[noreturn]] void refuse_without_graph(FileKind kind, const std::string& path);

/// Fails with what the file is where it begins (64 bytes say it) like something else that people name by mistake: a
/// script, a configuration, a report of memplan, an image, a pointer of Git LFS. Returns where it may be a model.
void refuse_what_is_no_model(const std::string& path, std::string_view head);

/// What to try where there is no file of this name: names of the Hugging Face Hub are told.
std::string what_to_do_without_file(const std::string& path);

/// Whether a file that begins with these bytes (16 of them say it) is compressed as a whole.
bool is_packed(std::string_view head);

bool is_gzip(const std::string& path);
bool is_zstandard(const std::string& path);

/// Fails with the command that unpacks the file.
[[noreturn]] void refuse_packed(const std::string& path);

}  // namespace memplan::frontends
