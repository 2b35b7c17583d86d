#include "estimators/base/text_file.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace memplan {

std::string text_of_file(const std::string& path, ErrorKind kind, const std::string& hint) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 65536> buffer{};
  // Not by iterators, which throw exceptions of their own, nor by getline, which takes an error for the end.
  while (file.read(buffer.data(), buffer.size()), file.gcount() > 0)
    text.append(buffer.data(), static_cast<std::size_t>(file.gcount()));
  if (!file.is_open() || file.bad())
    fail(kind, fmt::format("the file cannot be read: {}", std::strerror(errno ? errno : EIO)), path, hint);
  return text;
}

}  // namespace memplan
