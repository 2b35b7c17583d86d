// Targets that parse texts and headers, each on a few files of memplan.
#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "estimators/base/base64.h"
#include "estimators/base/glob.h"
#include "estimators/base/shell.h"
#include "estimators/frontends/gguf.h"
#include "estimators/frontends/onnx/fx_text.h"
#include "estimators/frontends/onnx/wire.h"
#include "estimators/frontends/safetensors.h"
#include "estimators/frontends/torch_export/expression.h"
#include "estimators/frontends/torch_export/json_text.h"
#include "estimators/graph/expression.h"
#include "estimators/measured/snapshot.h"
#include "estimators/restore/statement.h"
#include "estimators/tape/tape_text.h"
#include "tests/fuzz/targets.h"

namespace memplan::fuzz {

namespace {

void expect(bool holds, const char* what) {
  if (!holds) throw Finding(what);
}

bool lies_in(std::string_view part, std::string_view whole) {
  return part.empty() || (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

/// The bytes of an ONNX file alone, before protobuf sees them.
void fuzz_wire(std::string_view bytes) {
  expect_told([&] {
    const std::string slim = onnx_format::slim_model(bytes, "model.onnx");
    expect(slim.size() <= bytes.size() + 64 * (bytes.size() / 4 + 1), "the slim message is longer than its file");
    onnx_format::check_model(bytes, "model.onnx");
  });
}

/// What comes behind the four letters.
void fuzz_gguf(std::string_view bytes) {
  std::istringstream in("GGUF" + std::string(bytes));
  expect_told([&] {
    const auto found = frontends::read_gguf(in, bytes.size() + 4, "model.gguf");
    double sum = 0;
    for (const auto& [type, of_type] : found.by_type) sum += of_type;
    expect(found.bytes >= 0 && found.bytes < 1e30 && sum >= found.bytes * 0.999 && sum <= found.bytes * 1.001,
           "bytes that are none");
  });
}

/// The header with its right length.
void fuzz_safetensors(std::string_view bytes) {
  std::string file;
  for (std::size_t i = 0; i < 8; ++i) file += static_cast<char>(bytes.size() >> 8 * i & 255);
  std::istringstream in(file.append(bytes));
  expect_told([&] {
    const auto found = frontends::read_safetensors(in, bytes.size() + 8, "model.safetensors");
    expect(found.bytes >= 0 && found.bytes < 1e30, "bytes that are none");
  });
}

int depth_of(const nlohmann::json& json) {
  int deepest = 0;
  if (json.is_structured())
    for (const auto& member : json) deepest = std::max(deepest, depth_of(member));
  return deepest + (json.is_structured() ? 1 : 0);
}

/// What is let through is JSON of this depth at most, or no JSON at all.
void fuzz_json(std::string_view bytes) {
  std::string text(bytes);
  expect_told([&] {
    torch_export::tame_json(text, 16, "model.json");
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_discarded()) expect(depth_of(json) <= 16, "deeper JSON than promised");
  });
}

/// Sizes of symbolic shapes, of both exporters.
void fuzz_size(std::string_view text) {
  static const Symbols symbols{{"batch", 2}, {"s0", 4}, {"s1", 7}, {"s77", 3}, {"seq", 128}};
  expect_told([&] {
    value_of_expression(torch_export::infix(text), symbols);
    value_of_expression(text, symbols);
  });
}

void fuzz_fx(std::string_view text) {
  expect_told([&] {
    std::map<std::string_view, ValueId> names;
    onnx_format::FxText out;
    const auto intern = [&](std::string_view name) {
      expect(lies_in(name, text), "a name outside of the text");
      return names.emplace(name, ValueId{static_cast<std::int32_t>(names.size())}).first->second;
    };
    if (onnx_format::parse_fx(text, intern, out)) onnx_format::op_of_target(out.target);
    onnx_format::fx_name(text);
    for (const std::string_view word : onnx_format::parse_python_strings(text))
      expect(lies_in(word, text), "a string outside of the text");
  });
}

void fuzz_statement(std::string_view text) {
  expect_told([&] {
    const Statement statement = parse_statement(text);
    expect(lies_in(statement.value, text), "a value outside of the text");
    for (const auto& names : statement.targets)
      for (const std::string_view name : names) expect(!name.empty() && lies_in(name, text), "a name that is none");
  });
}

void fuzz_snapshot(std::string_view bytes) {
  expect_told([&] { measurement_from_snapshot(snapshot_from_pickle(bytes), "snapshot.pickle"); });
}

/// What is read and written once says the same from then on.
void fuzz_tape_text(std::string_view text) {
  const auto tape = catching([&] { return from_text(text); });
  if (!tape) return expect_told(tape.error());
  const std::string once = to_text(*tape);
  const auto again = catching([&] { return from_text(once); });
  if (!again) throw Finding("what was written cannot be read: " + again.error().what + "\n" + once);
  if (to_text(*again) != once) throw Finding("what was written reads differently:\n" + once);
}

/// By the table of the textbook: reached[j] says whether the pattern's first j letters match what was seen of the text.
bool globs(std::string_view text, std::string_view glob) {
  std::vector<bool> reached(glob.size() + 1);
  reached[0] = true;
  for (std::size_t j = 0; j < glob.size() && glob[j] == '*'; ++j) reached[j + 1] = true;
  for (const char c : text) {
    std::vector<bool> next(glob.size() + 1);
    for (std::size_t j = 0; j < glob.size(); ++j)
      next[j + 1] = glob[j] == '*' ? next[j] || reached[j + 1] : reached[j] && (glob[j] == '?' || glob[j] == c);
    reached = std::move(next);
  }
  return reached.back();
}

/// `word` as a POSIX shell reads it, where it is letters, quoted runs and escaped quotes.
std::string unquoted(std::string_view word) {
  std::string out;
  bool quoted = false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word[i] == '\'')
      quoted = !quoted;
    else if (word[i] == '\\' && !quoted && i + 1 < word.size())
      out += word[++i];
    else
      out += word[i];
  }
  return quoted ? "an open quote" : out;
}

/// Two lines, or one of them twice: helpers that texts of models go through.
void fuzz_texts(std::string_view bytes) {
  const std::size_t end = bytes.find('\n');
  const std::string_view first = bytes.substr(0, end), second = end == bytes.npos ? first : bytes.substr(end + 1);
  expect_told([&] {
    expect(matches_glob(first, second) == globs(first, second), "a glob matches what it should not, or the reverse");
    expect(from_base64(to_base64(first)) == std::string(first), "base64 gives back something else");
    from_base64(second);
    expect(first.empty() || unquoted(shell_word(first)) == first, "a shell reads another word");
  });
}

constexpr std::size_t kib = 1024;
constexpr std::array table{
    Target{"wire", Grammar::protobuf, fuzz_wire, 16 * kib},
    Target{"snapshot", Grammar::bytes, fuzz_snapshot, 16 * kib},
    Target{"allocator", Grammar::bytes, fuzz_allocator, 2 * kib},
    Target{"gguf", Grammar::bytes, fuzz_gguf, kib},
    Target{"safetensors", Grammar::json, fuzz_safetensors, kib},
    Target{"json", Grammar::json, fuzz_json, kib},
    Target{"size", Grammar::bytes, fuzz_size, kib},
    Target{"fx", Grammar::bytes, fuzz_fx, kib},
    Target{"statement", Grammar::bytes, fuzz_statement, kib},
    Target{"tape_text", Grammar::bytes, fuzz_tape_text, 4 * kib},
    Target{"texts", Grammar::bytes, fuzz_texts, 128},
};

}  // namespace

std::span<const Target> parser_targets() { return table; }

}  // namespace memplan::fuzz
