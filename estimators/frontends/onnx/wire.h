// Opening an ONNX file without its weights.
//
// protobuf copies every byte of a message, so a 100 GB model would need 100 GB. This walks the wire format of the
// mapped file instead and copies everything but large tensor contents; their pages are never touched.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace memplan::onnx_format {

/// Contents of a tensor longer than this are dropped, because shape arithmetic never needs them. Integer tensors
/// may be index tables that a graph computes with, so they may be longer: 4096 int64.
constexpr std::size_t kept_tensor_bytes = 4096;
constexpr std::size_t kept_integer_bytes = 32768;
/// Messages nested deeper than this are refused (protobuf itself stops at 100; an If costs three levels).
constexpr int max_nesting = 60;
/// Key of the TensorProto metadata entry that says how many bytes of contents were dropped.
constexpr std::string_view dropped_key = "memplan.dropped_bytes";

/// A file mapped into memory, read only. Failure(input) when it cannot be opened, is empty or not a regular file.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::string_view bytes() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A serialized ModelProto without large tensor contents and without training_info. Each tensor that lost its
/// contents carries their length under `dropped_key`. Failure(input) with the offset where the bytes are not a valid
/// message; `where` names the file in it. Small messages are copied unseen: protobuf checks them afterwards.
std::string slim_model(std::string_view bytes, const std::string& where);

/// Whether slim_model() would leave nothing out: the bytes can be read as they are. Failure as of slim_model().
bool is_slim(std::string_view bytes, const std::string& where);

/// Descends into every message that slim_model knows and fails with the offset of the first damage, for a precise
/// error after protobuf has refused a file.
void check_model(std::string_view bytes, const std::string& where);

}  // namespace memplan::onnx_format
