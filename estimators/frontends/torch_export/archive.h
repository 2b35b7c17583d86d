// A zip archive opened for its table of contents. Only members that are asked for by name are read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace memplan::torch_export {

/// More members than any real archive has: one per weight.
constexpr std::int64_t max_members = 1'000'000;

class Archive {
 public:
  struct Member {
    std::string name;
    std::int64_t bytes = 0;   ///< uncompressed, as the directory says
    std::int64_t stored = 0;  ///< as it lies in the file, compressed or not
    std::int64_t index = 0;
    std::uint32_t crc = 0;  ///< CRC-32 of the contents; 0: not told
  };

  /// Failure(input) for a file that is not a whole zip archive, and for hostile directories: names that leave the
  /// archive ("../x", "/x"), the same name twice, more than `max_members` members.
  explicit Archive(const std::string& path);

  /// One that is in memory; `where` names it in errors. The bytes are copied.
  Archive(std::string_view bytes, const std::string& where);

  const std::vector<Member>& members() const { return members_; }
  /// None: null.
  const Member* find(std::string_view name) const;

  /// The contents of a member. Failure(input) when they are longer than `limit` bytes, encrypted or damaged.
  std::string read(const Member& member, std::int64_t limit) const;

 private:
  /// The directory of an open archive.
  void list();

  std::shared_ptr<void> zip_;
  std::string path_;
  std::vector<Member> members_;  ///< by name
};

}  // namespace memplan::torch_export
