// Damaged archives of torch.export and files of weights: whatever they hold, reading ends with an estimate or an Error,
// in bounded time. The seeds are fixed; MEMPLAN_FUZZ_ROUNDS asks for more rounds than a test run has time for.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "estimators/frontends/torch_export/archive.h"
#include "estimators/pipeline.h"
#include "tests/unit/damage.h"
#include "tests/unit/scratch_archive.h"

using namespace memplan;
using nlohmann::json;

namespace {

int rounds(int usual) {
  const char* wanted = std::getenv("MEMPLAN_FUZZ_ROUNDS");
  return wanted ? std::atoi(wanted) : usual;
}

Members members_of(const std::string& name) {
  const torch_export::Archive archive(std::string(MEMPLAN_SOURCE_DIR) + "/data/models/" + name);
  Members out;
  for (const auto& m : archive.members()) out[m.name] = archive.read(m, 64 << 20);
  return out;
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// How far a file came.
struct Reached {
  int loaded = 0, replayed = 0, refused = 0;
};

void try_file(const std::string& path, const std::string& what, Reached& reached) {
  const auto begin = std::chrono::steady_clock::now();
  const auto model = load_model(path);
  if (!model.ok()) {
    ++reached.refused;
    CHECK_MESSAGE(model.error().kind == ErrorKind::input, what << ": " << model.error().what);
    CHECK_MESSAGE(!model.error().what.empty(), what);
  } else {
    ++reached.loaded;
    TrainingSetup setup;
    setup.batch = 2;
    setup.steps = 1;
    const auto tape = tape_of(*model, setup);
    if (!tape.ok()) {
      CHECK_MESSAGE(tape.error().kind != ErrorKind::internal, what << ": " << tape.error().what);
    } else {
      const auto steps = run_steps(*tape, setup, Device{});
      if (steps.ok())
        ++reached.replayed;
      else
        CHECK_MESSAGE(steps.error().kind != ErrorKind::internal, what << ": " << steps.error().what);
    }
  }
  CHECK_MESSAGE(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5), what);
}

/// A value of the document, chosen at random, the deeper the likelier.
json& anywhere(json& document, std::mt19937_64& random) {
  json* at = &document;
  while (at->is_structured() && !at->empty() && random() % 12 != 0) {
    auto it = at->begin();
    std::advance(it, static_cast<std::ptrdiff_t>(random() % at->size()));
    at = &*it;
  }
  return *at;
}

/// A valid document that says something else.
void change(json& document, std::mt19937_64& random) {
  json& place = anywhere(document, random);
  json copy;
  switch (random() % 10) {
    case 0:
      place = nullptr;
      break;
    case 1:
      place = -1;
      break;
    case 2:
      place = INT64_MAX;
      break;
    case 3:
      place = UINT64_MAX;
      break;
    case 4:
      place = "";
      break;
    case 5:
      place = json::array();
      break;
    case 6:
      place = json::object();
      break;
    case 7:
      place = 1e308;
      break;
    case 8:
      copy = anywhere(document, random);
      anywhere(document, random) = std::move(copy);
      break;
    default:
      if (place.is_array() && !place.empty())
        place.erase(random() % place.size());
      else if (place.is_number_integer())
        place = static_cast<std::int64_t>(random() % 7) - 2;
      else
        place = "x";
  }
}

}  // namespace

TEST_CASE("archives of torch.export whose graph says something else end in an error or an estimate, quickly") {
  std::mt19937_64 random(20241117);
  Reached reached;
  for (const char* name : {"pt2/mlp.pt2", "pt2/resnet18.pt2", "pt2/lstm_lm.pt2", "pt2/alexnet.pt2"}) {
    const Members whole = members_of(name);
    for (int round = 0; round < rounds(60); ++round) {
      Members members = whole;
      for (auto& [member, text] : members) {
        if (member.find("models/") == std::string::npos) continue;
        json document = json::parse(text);
        for (std::uint64_t k = 1 + random() % 3; k-- > 0;) change(document, random);
        text = document.dump();
      }
      const ScratchArchive file(members);
      try_file(file.path(), std::string(name) + " round " + std::to_string(round), reached);
    }
  }
  CHECK(reached.refused > 0);
  CHECK(reached.replayed > 0);
}

TEST_CASE("archives with damaged members or a damaged directory end in an error or an estimate, quickly") {
  std::mt19937_64 random(20241118);
  Reached reached;
  const Members whole = members_of("pt2/mlp.pt2");
  const ScratchArchive good(whole);
  const std::string bytes = bytes_of(good.path());
  for (int round = 0; round < 2 * rounds(60); ++round) {
    const std::string what = "mlp.pt2 round " + std::to_string(round);
    const ScratchFile file(damaged(bytes, random));
    try_file(file.path(), what, reached);
    // Damage before the archive is made passes its checksums.
    Members members = whole;
    auto chosen = members.begin();
    std::advance(chosen, static_cast<std::ptrdiff_t>(random() % members.size()));
    if (!chosen->second.empty()) chosen->second = damaged(chosen->second, random);
    const ScratchArchive sound(members);
    try_file(sound.path(), what + ", " + chosen->first, reached);
  }
  CHECK(reached.refused > 0);
  CHECK(reached.replayed > 0);
}

TEST_CASE("damaged files of weights are refused, quickly") {
  std::mt19937_64 random(20241119);
  Reached reached;
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[256,4],"data_offsets":[0,4096]},"b":{"dtype":"BF16","shape":[],"data_offsets":[4096,4098]}})";
  std::string tensors(8, '\0');
  tensors[0] = static_cast<char>(header.size());
  tensors += header + std::string(4098, '\0');
  const ScratchArchive saved({{"w/data.pkl", std::string("\x80\x02}q\x00.", 6)},
                              {"w/version", "3\n"},
                              {"w/data/0", std::string(2048, 'x')},
                              {"w/data/1", std::string(1024, 'x')}});
  const std::string zip = bytes_of(saved.path());
  for (int round = 0; round < 4 * rounds(60); ++round) {
    const ScratchFile a(damaged(tensors, random)), b(damaged(zip, random));
    try_file(a.path(), "safetensors round " + std::to_string(round), reached);
    try_file(b.path(), "torch.save round " + std::to_string(round), reached);
  }
  CHECK(reached.loaded == 0);  // there is no graph
}
