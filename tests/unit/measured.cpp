// Pickles of plain data and what is no such thing; snapshots; matching of event streams.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "estimators/base/error.h"
#include "estimators/measured/pickle.h"
#include "estimators/measured/snapshot.h"
#include "estimators/measured/streams.h"

using namespace memplan;
using namespace std::string_literals;

namespace {

std::string refusal(const std::string& bytes, const PickleLimits& limits = {}) {
  try {
    Pickle::parse(bytes, limits);
  } catch (const Failure& f) {
    CHECK(f.error().kind == ErrorKind::input);
    return f.error().what;
  }
  return {};
}

// python3 -c "import pickle,sys; sys.stdout.buffer.write(pickle.dumps({'a': [1, -2, 300, 2**40, None, True, 1.5], 'b':
// ('x', 'x')}, 4))" | xxd -i
const unsigned char plain[] = {0x80, 0x04, 0x95, 0x33, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x7d, 0x94,
                               0x28, 0x8c, 0x01, 0x61, 0x94, 0x5d, 0x94, 0x28, 0x4b, 0x01, 0x4a, 0xfe, 0xff,
                               0xff, 0xff, 0x4d, 0x2c, 0x01, 0x8a, 0x06, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01,
                               0x4e, 0x88, 0x47, 0x3f, 0xf8, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x65, 0x8c,
                               0x01, 0x62, 0x94, 0x8c, 0x01, 0x78, 0x94, 0x68, 0x04, 0x86, 0x94, 0x75, 0x2e};

nlohmann::json event(const char* action, std::int64_t size, std::int64_t address) {
  return {{"action", action}, {"size", size}, {"addr", address}, {"stream", 0}};
}

std::vector<Life> lives(std::initializer_list<std::int64_t> sizes) {
  std::vector<Life> out;
  for (std::int64_t s : sizes) out.push_back({s, -1, -1, -1, -1});
  return out;
}

}  // namespace

TEST_CASE("a pickle of plain data is read as Python reads it") {
  const std::string bytes(reinterpret_cast<const char*>(plain), sizeof plain);
  const Pickle p = Pickle::parse(bytes);
  Pickle::Value a{}, b{};
  REQUIRE(p.find(p.root(), "a", a));
  REQUIRE(p.find(p.root(), "b", b));
  REQUIRE(p.items(a).size() == 7);
  CHECK(p.integer(p.items(a)[0]) == 1);
  CHECK(p.integer(p.items(a)[1]) == -2);
  CHECK(p.integer(p.items(a)[2]) == 300);
  CHECK(p.integer(p.items(a)[3]) == std::int64_t{1} << 40);
  CHECK(p.kind(p.items(a)[4]) == Pickle::Kind::none);
  CHECK(p.kind(p.items(a)[5]) == Pickle::Kind::boolean);
  CHECK(p.kind(p.items(a)[6]) == Pickle::Kind::real);
  REQUIRE(p.items(b).size() == 2);
  CHECK(p.text(p.items(b)[1]) == "x");
  // Cut anywhere it is damaged, and says so.
  for (std::size_t n = 0; n < bytes.size(); ++n) CHECK_FALSE(refusal(bytes.substr(0, n)).empty());
}

TEST_CASE("a pickle that asks for code is refused, whatever the way") {
  // os.system("…") by GLOBAL and REDUCE, by STACK_GLOBAL, by INST, by OBJ, by NEWOBJ, by BUILD, by extensions, by
  // persistent ids
  for (const std::string& bytes :
       {"\x80\x02"
        "cos\nsystem\nX\x02\0\0\0ls\x85R."s,
        "\x80\x04\x8c\x02os\x8c\x06system\x93."s, "\x80\x02(ios\nsystem\n."s, "\x80\x02(oR."s, "\x80\x02)\x81."s,
        "\x80\x02}b."s, "\x80\x02\x82\x01."s, "\x80\x02Pid\n."s, "\x80\x02]Q."s, "\x80\x04)}\x92."s})
    CHECK(refusal(bytes).find("code") != std::string::npos);
}

TEST_CASE("hostile pickles stop at a limit") {
  CHECK_FALSE(refusal("\x80\x02" + std::string(100000, '(')).empty());  // marks without end
  CHECK_FALSE(refusal("\x80\x02]h\x07."s).empty());                     // what was never remembered
  CHECK_FALSE(refusal("\x80\x02r\xff\xff\xff\xff."s).empty());          // a place of the memo far beyond the file
  CHECK_FALSE(refusal("\x80\x02X\xff\xff\xff\x7f."s).empty());          // a text longer than the file
  CHECK_FALSE(refusal("\x80\x02\x8e\xff\xff\xff\xff\xff\xff\xff\xff."s).empty());
  CHECK_FALSE(refusal("\x80\x02" + std::string(2000, 'N') + ".", {1000, 1 << 20, 64}).empty());
  // A list that is appended to itself doubles nothing but references, and those are counted.
  std::string doubling = "\x80\x02]q\0"s;
  for (int i = 0; i < 40; ++i) doubling += "(h\0h\0h\0h\0e"s;
  CHECK(Pickle::parse(doubling + ".").items(0 + Pickle::parse(doubling + ".").root()).size() == 160);
  CHECK_FALSE(refusal(doubling + ".", {100, 1 << 20, 64}).empty());
  CHECK_FALSE(refusal("\x80\x02(KKu."s).empty());  // a dict of odd length, with no dict
  CHECK_FALSE(refusal("\x80\x02\x8a\x0a" + std::string(10, '\x11') + ".").empty());
}

TEST_CASE("pickles with flipped bytes never crash") {
  std::mt19937 random(7);
  const std::string bytes(reinterpret_cast<const char*>(plain), sizeof plain);
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string changed = bytes;
    for (int k = 0; k < 3; ++k) changed[random() % changed.size()] = static_cast<char>(random());
    read += refusal(changed, {10000, 1 << 20, 64}).empty();
  }
  CHECK(read > 0);
  CHECK(read < 20000);
}

TEST_CASE("a snapshot's peak is found in its trace, levels before it rolled back from its end") {
  // 100 bytes were there before the trace; the peak is 100 + 50 + 30.
  const nlohmann::json j{
      {"segments",
       {{{"device", 0},
         {"address", 1000},
         {"total_size", 4096},
         {"allocated_size", 1024},
         {"stream", 0},
         {"blocks",
          {{{"address", 1000}, {"size", 512}, {"requested_size", 100}, {"state", "active_allocated"}},
           {{"address", 1512}, {"size", 512}, {"requested_size", 50}, {"state", "active_allocated"}},
           {{"address", 2024}, {"size", 3072}, {"requested_size", 0}, {"state", "inactive"}}}}}}},
      {"device_traces",
       {{event("segment_alloc", 2048, 3000), event("alloc", 50, 1512), event("alloc", 30, 2024),
         event("free_requested", 30, 2024), event("free_completed", 30, 2024), event("segment_free", 2048, 3000)}}}};
  const Measurement m = measurement_from_snapshot(snapshot_from_json(j), "s");
  CHECK(m.peak.requested->count == 180);
  CHECK(m.peak.reserved->count == 6144);
  CHECK_FALSE(m.peak.allocated.has_value());
  REQUIRE(m.largest_at_peak.size() == 3);
  CHECK(m.largest_at_peak[0].bytes == 100);
  CHECK(m.events.empty());  // it is not the whole run
}

TEST_CASE("a snapshot without a trace says what it cannot know") {
  const nlohmann::json j{
      {"segments",
       {{{"device", 1}, {"total_size", 4096}, {"allocated_size", 1024}, {"blocks", nlohmann::json::array()}}}},
      {"device_traces", nlohmann::json::array()}};
  const Measurement m = measurement_from_snapshot(snapshot_from_json(j), "s");
  CHECK_FALSE(m.peak.requested.has_value());
  CHECK(m.peak.reserved->count == 4096);
  REQUIRE(m.notes.size() == 1);
}

TEST_CASE("streams of allocations: insertions and changes are told apart") {
  const auto p = lives({1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(partners(p, lives({1, 2, 3, 4, 5, 6, 7, 8, 9})) == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(partners(p, lives({1, 2, 99, 3, 4, 5, 6, 7, 8, 9})) ==
        std::vector<std::int32_t>{0, 1, -1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(partners(p, lives({1, 3, 4, 5, 6, 7, 8, 9})) == std::vector<std::int32_t>{0, 2, 3, 4, 5, 6, 7, 8});
  CHECK(partners(p, lives({1, 2, 33, 4, 5, 6, 7, 8, 9})) == std::vector<std::int32_t>{0, 1, -1, 3, 4, 5, 6, 7, 8});
}
