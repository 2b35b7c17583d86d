#include "tests/fuzz/mutate.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

namespace memplan::fuzz {

namespace {

using Json = nlohmann::ordered_json;

std::size_t below(Random& random, std::size_t n) { return static_cast<std::size_t>(random() % n); }

constexpr std::array<std::int64_t, 16> edges{0,  1,   -1,  2,   3,     7,          8,          64,
                                             -2, 255, 256, 512, 65536, 2147483647, 4294967296, INT64_MAX};

/// The places of a document, its root left out.
void collect(Json& at, std::vector<Json*>& all) {
  if (!at.is_structured()) return;
  for (Json& member : at) {
    all.push_back(&member);
    collect(member, all);
  }
}

void change(Json& at, Random& random, const std::vector<Json*>& all) {
  switch (random() % 6) {
    case 0:
      at = edges[below(random, edges.size())];
      return;
    case 1:
      at = Json(*all[below(random, all.size())]);
      return;
    case 2:
      at = nullptr;
      return;
    case 3:
      if (at.is_array() && !at.empty()) at.push_back(Json(at[below(random, at.size())]));
      return;
    case 4:
      if (at.is_array() && !at.empty())
        at.erase(at.begin() + static_cast<std::ptrdiff_t>(below(random, at.size())));
      else if (at.is_object() && !at.empty())
        at.erase(std::next(at.begin(), static_cast<std::ptrdiff_t>(below(random, at.size()))));
      return;
    default:
      if (at.is_number_integer())
        at = static_cast<std::int64_t>(static_cast<std::uint64_t>(at.get<std::int64_t>()) + random() % 5 - 2);
      else if (at.is_string())
        at = at.get<std::string>() + (random() % 2 ? "_" : ".0");
  }
}

/// A field of a message as the wire has it: its key, and what stands behind it.
struct Field {
  std::uint64_t key = 0;
  std::string payload;  ///< without the length
};

std::optional<std::uint64_t> varint(std::string_view& in) {
  std::uint64_t v = 0;
  for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    v |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (!(byte & 0x80)) return v;
  }
  return std::nullopt;
}

void put_varint(std::string& out, std::uint64_t v) {
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  out += static_cast<char>(v);
}

/// The fields of a message; none where the bytes are not a message.
std::optional<std::vector<Field>> fields_of(std::string_view in) {
  std::vector<Field> out;
  while (!in.empty()) {
    const auto key = varint(in);
    if (!key || *key >> 3 == 0) return std::nullopt;
    Field f{*key, {}};
    std::uint64_t length = 0;
    switch (*key & 7) {
      case 0: {
        const std::string_view before = in;
        if (!varint(in)) return std::nullopt;
        length = before.size() - in.size();
        in = before;
        break;
      }
      case 1:
        length = 8;
        break;
      case 2: {
        const auto told = varint(in);
        if (!told) return std::nullopt;
        length = *told;
        break;
      }
      case 5:
        length = 4;
        break;
      default:
        return std::nullopt;
    }
    if (length > in.size()) return std::nullopt;
    f.payload = in.substr(0, length);
    in.remove_prefix(length);
    out.push_back(std::move(f));
  }
  return out;
}

std::string written(const std::vector<Field>& fields) {
  std::string out;
  for (const Field& f : fields) {
    put_varint(out, f.key);
    if ((f.key & 7) == 2) put_varint(out, f.payload.size());
    out += f.payload;
  }
  return out;
}

void change(Field& f, Random& random) {
  if ((f.key & 7) == 0) {
    f.payload.clear();
    put_varint(f.payload, static_cast<std::uint64_t>(edges[below(random, edges.size())]));
  } else if (!f.payload.empty() && random() % 2) {
    f.payload[below(random, f.payload.size())] ^= static_cast<char>(1 << random() % 8);
  } else if ((f.key & 7) == 2) {
    f.payload.resize(below(random, f.payload.size() + 1));
  }
}

}  // namespace

std::string mutated_json(const std::string& text, Random& random) {
  Json document = Json::parse(text, nullptr, false);
  if (document.is_discarded()) return {};
  std::vector<Json*> all;
  collect(document, all);
  if (all.empty()) return {};
  change(*all[below(random, all.size())], random, all);
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string mutated_protobuf(const std::string& bytes, Random& random) {
  auto fields = fields_of(bytes);
  if (!fields || fields->empty()) return {};
  const std::size_t at = below(random, fields->size());
  Field& f = (*fields)[at];
  // Deeper three times out of four, where there is a message inside.
  if ((f.key & 7) == 2 && random() % 4 != 0)
    if (const std::string inside = mutated_protobuf(f.payload, random); !inside.empty()) {
      f.payload = inside;
      return written(*fields);
    }
  switch (random() % 4) {
    case 0:
      fields->erase(fields->begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 1:
      fields->insert(fields->begin() + static_cast<std::ptrdiff_t>(below(random, fields->size())), Field(f));
      break;
    case 2:
      std::swap(f.payload, (*fields)[below(random, fields->size())].payload);
      break;
    default:
      change(f, random);
  }
  return written(*fields);
}

}  // namespace memplan::fuzz
