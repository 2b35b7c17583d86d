#include "estimators/frontends/gguf.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "estimators/base/error.h"

namespace memplan::frontends {

namespace {

constexpr GgufType types[] = {
    {0, "f32", 1, 4},         {1, "f16", 1, 2},         {2, "q4_0", 32, 18},      {3, "q4_1", 32, 20},
    {6, "q5_0", 32, 22},      {7, "q5_1", 32, 24},      {8, "q8_0", 32, 34},      {9, "q8_1", 32, 36},
    {10, "q2_K", 256, 84},    {11, "q3_K", 256, 110},   {12, "q4_K", 256, 144},   {13, "q5_K", 256, 176},
    {14, "q6_K", 256, 210},   {15, "q8_K", 256, 292},   {16, "iq2_xxs", 256, 66}, {17, "iq2_xs", 256, 74},
    {18, "iq3_xxs", 256, 98}, {19, "iq1_s", 256, 50},   {20, "iq4_nl", 32, 18},   {21, "iq3_s", 256, 110},
    {22, "iq2_s", 256, 82},   {23, "iq4_xs", 256, 136}, {24, "i8", 1, 1},         {25, "i16", 1, 2},
    {26, "i32", 1, 4},        {27, "i64", 1, 8},        {28, "f64", 1, 8},        {29, "iq1_m", 256, 56},
    {30, "bf16", 1, 2},       {34, "tq1_0", 256, 54},   {35, "tq2_0", 256, 66},   {39, "mxfp4", 32, 17},
    {40, "nvfp4", 64, 36},
};

constexpr std::uint32_t string_value = 8, array_value = 9;

/// Bytes of a metadata value of this kind; 0 for those that say their length themselves.
int width_of(std::uint32_t kind) {
  constexpr int widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kind < std::size(widths) ? widths[kind] : -1;
}

class Header {
 public:
  Header(std::istream& in, std::uint64_t bytes, const std::string& path) : path_(path), in_(in), left_(bytes) {}

  GgufInventory read() {
    take(4);
    // Files of version 1 have narrower counts; nothing has written them since August 2023.
    const std::uint64_t version = number(4);
    if (version < 2 || version > 3)
      fail_input(fmt::format("the GGUF file has version {}; 2 and 3 are known", version), path_);
    const std::uint64_t tensors = number(8), pairs = number(8);
    for (std::uint64_t i = 0; i < pairs; ++i) {
      text();
      skip_value(static_cast<std::uint32_t>(number(4)));
    }
    GgufInventory out;
    for (std::uint64_t i = 0; i < tensors; ++i) tensor(out);
    return out;
  }

 private:
  [[noreturn]] void ends() const {
    fail_input("the GGUF file ends within its header", path_, "it is damaged or incomplete: download it again");
  }

  void take(std::uint64_t bytes) {
    if (bytes > left_) ends();
    left_ -= bytes;
    if (!in_.ignore(static_cast<std::streamsize>(bytes))) ends();
  }

  std::uint64_t number(int bytes) {
    unsigned char b[8] = {};
    if (static_cast<std::uint64_t>(bytes) > left_ || !in_.read(reinterpret_cast<char*>(b), bytes)) ends();
    left_ -= static_cast<std::uint64_t>(bytes);
    std::uint64_t n = 0;
    for (int i = bytes - 1; i >= 0; --i) n = n << 8 | b[i];
    return n;
  }

  std::string text() {
    const std::uint64_t length = number(8);
    // What the file does not hold is no reason to take memory for it; names that are longer than the format allows are
    // cut.
    if (length > left_) ends();
    std::string out(static_cast<std::size_t>(std::min<std::uint64_t>(length, 65536)), '\0');
    if (!in_.read(out.data(), static_cast<std::streamsize>(out.size()))) ends();
    left_ -= out.size();
    take(length - out.size());
    return out;
  }

  void skip_value(std::uint32_t kind) {
    if (kind == string_value) return void(text());
    if (kind != array_value) return take(static_cast<std::uint64_t>(known(kind)));
    const auto inner = static_cast<std::uint32_t>(number(4));
    const std::uint64_t count = number(8);
    if (inner == string_value) {
      for (std::uint64_t i = 0; i < count; ++i) take(number(8));
      return;
    }
    const auto width = static_cast<std::uint64_t>(known(inner));
    if (width == 0 || count > left_ / width) ends();
    take(count * width);
  }

  int known(std::uint32_t kind) const {
    const int width = width_of(kind);
    if (width <= 0)
      fail_input(fmt::format("the GGUF header has a value of an unknown kind ({})", kind), path_,
                 "the file is damaged");
    return width;
  }

  void tensor(GgufInventory& out) {
    const std::string name = text().substr(0, 200);
    const std::uint64_t dims = number(4);
    if (dims > 8)
      fail_input(fmt::format("the tensor '{}' has {} dimensions; GGUF has 4 at most", name, dims), path_,
                 "the file is damaged");
    double elements = 1;
    std::uint64_t row = 1;
    for (std::uint64_t d = 0; d < dims; ++d) {
      const std::uint64_t size = number(8);
      if (d == 0) row = size;
      elements *= static_cast<double>(size);
    }
    const auto id = static_cast<std::uint32_t>(number(4));
    number(8);  // where its data begin
    const GgufType* type = gguf_type(id);
    if (!type)
      fail_input(fmt::format("the tensor '{}' has a format that memplan does not know: number {}", name, id), path_,
                 "a newer memplan may know it");
    if (!(elements <= 1e15))
      fail_input(fmt::format("the tensor '{}' has more elements than any device holds", name), path_,
                 "the file is damaged");
    if (row % static_cast<std::uint64_t>(type->block) != 0)
      fail_input(fmt::format("rows of {} weights of the tensor '{}' are no whole blocks of {} ({})", row, name,
                             type->block, type->name),
                 path_, "the file is damaged");
    const double bytes = elements / static_cast<double>(type->block) * static_cast<double>(type->bytes);
    ++out.tensors;
    out.elements += elements;
    out.bytes += bytes;
    out.by_type[type->name] += bytes;
  }

  const std::string& path_;
  std::istream& in_;
  std::uint64_t left_;
};

}  // namespace

const GgufType* gguf_type(std::uint32_t id) {
  for (const GgufType& t : types)
    if (t.id == id) return &t;
  return nullptr;
}

const GgufType* gguf_type(const std::string& name) {
  for (const GgufType& t : types)
    if (t.name == name) return &t;
  return nullptr;
}

GgufInventory read_gguf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::error_code ec;
  const auto bytes = std::filesystem::file_size(path, ec);
  if (ec || !in) fail_input("the GGUF file cannot be read", path);
  return read_gguf(in, bytes, path);
}

GgufInventory read_gguf(std::istream& in, std::uint64_t bytes, const std::string& path) {
  return Header(in, bytes, path).read();
}

}  // namespace memplan::frontends
