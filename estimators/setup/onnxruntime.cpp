#include "estimators/setup/onnxruntime.h"

#include <fmt/format.h>

#include <charconv>

#include "estimators/setup/field.h"

namespace memplan {

namespace {

[[noreturn]] void bad_value(std::string_view name, std::string_view value, std::string_view use) {
  fail(ErrorKind::usage, fmt::format("'{}' is not a value of ONNX Runtime's option {}", value, name),
       setting(Field::runtime_option, fmt::format("{}={}", name, value)), fmt::format("use {}", use));
}

bool yes_or_no(std::string_view name, std::string_view value) {
  if (value == "1" || value == "true" || value == "True") return true;
  if (value == "0" || value == "false" || value == "False") return false;
  bad_value(name, value, "1 or 0");
}

Bytes plain_bytes(std::string_view name, std::string_view value) {
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (error != std::errc() || end != value.data() + value.size() || n <= 0)
    bad_value(name, value, "a number of bytes, as ONNX Runtime takes it");
  return Bytes(n);
}

template <const auto& table>
auto word(std::string_view name, std::string_view value) {
  const auto found = value_in(table, value);
  if (!found) bad_value(name, value, choices<table>);
  return *found;
}

struct Option {
  std::string_view name;
  void (*set)(OrtSetup&, std::string_view name, std::string_view value);
};

void moves_nothing(OrtSetup&, std::string_view, std::string_view) {}

constexpr std::array options{
    Option{"arena_extend_strategy", [](OrtSetup& s, auto n, auto v) { s.extend = word<arena_extend_names>(n, v); }},
    Option{"cudnn_conv_algo_search",
           [](OrtSetup& s, auto n, auto v) { s.conv_search = word<conv_search_names>(n, v); }},
    Option{"gpu_mem_limit", [](OrtSetup& s, auto n, auto v) { s.memory_limit = plain_bytes(n, v); }},
    Option{"initial_chunk_size_bytes", [](OrtSetup& s, auto n, auto v) { s.initial_chunk = plain_bytes(n, v); }},
    Option{"initial_growth_chunk_size_bytes", [](OrtSetup& s, auto n, auto v) { s.growth_chunk = plain_bytes(n, v); }},
    Option{"max_dead_bytes_per_chunk", [](OrtSetup& s, auto n, auto v) { s.max_dead = plain_bytes(n, v); }},
    Option{"enable_mem_pattern", [](OrtSetup& s, auto n, auto v) { s.memory_pattern = yes_or_no(n, v); }},
    Option{"enable_mem_reuse", [](OrtSetup& s, auto n, auto v) { s.memory_reuse = yes_or_no(n, v); }},
    Option{"session.use_device_allocator_for_initializers",
           [](OrtSetup&, auto n, auto v) {
             if (yes_or_no(n, v)) bad_value(n, v, "0; weights outside of the arena are not modelled");
           }},
    Option{"memory.enable_memory_arena_shrinkage",
           [](OrtSetup& s, auto n, auto v) {
             if (!v.starts_with("gpu:")) bad_value(n, v, "gpu:0");
             s.shrink = true;
           }},
    // The same figures with either value (docs/onnxruntime.md).
    Option{"cudnn_conv_use_max_workspace", moves_nothing},
    Option{"do_copy_in_default_stream", moves_nothing},
    Option{"device_id", moves_nothing},
};

std::string known_options() {
  std::string out;
  for (const Option& o : options) out += (out.empty() ? "" : ", ") + std::string(o.name);
  return out;
}

}  // namespace

void set_ort_option(OrtSetup& setup, std::string_view name, std::string_view value) {
  for (const Option& o : options)
    if (o.name == name) return o.set(setup, name, value);
  fail(ErrorKind::usage, fmt::format("ONNX Runtime's option {} is not modelled", name),
       setting(Field::runtime_option, fmt::format("{}={}", name, value)), "known options: " + known_options());
}

OrtPlace place_of_ort_option(std::string_view name) {
  if (name.starts_with("enable_mem_")) return OrtPlace::member;
  if (name.starts_with("session.")) return OrtPlace::session_entry;
  if (name.starts_with("memory.")) return OrtPlace::run_entry;
  return name.find("chunk") == name.npos ? OrtPlace::provider : OrtPlace::arena;
}

std::vector<std::pair<std::string, std::string>> ort_options(const OrtSetup& s) {
  const OrtSetup usual;
  std::vector<std::pair<std::string, std::string>> out;
  const auto bytes = [&](const char* name, Bytes value, Bytes otherwise) {
    if (value != otherwise) out.emplace_back(name, std::to_string(value.count));
  };
  if (s.extend != usual.extend) out.emplace_back("arena_extend_strategy", name_in(arena_extend_names, s.extend));
  if (s.conv_search != usual.conv_search)
    out.emplace_back("cudnn_conv_algo_search", name_in(conv_search_names, s.conv_search));
  if (s.memory_limit) out.emplace_back("gpu_mem_limit", std::to_string(s.memory_limit->count));
  bytes("initial_chunk_size_bytes", s.initial_chunk, usual.initial_chunk);
  bytes("initial_growth_chunk_size_bytes", s.growth_chunk, usual.growth_chunk);
  bytes("max_dead_bytes_per_chunk", s.max_dead, usual.max_dead);
  if (!s.memory_pattern) out.emplace_back("enable_mem_pattern", "0");
  if (!s.memory_reuse) out.emplace_back("enable_mem_reuse", "0");
  if (s.shrink) out.emplace_back("memory.enable_memory_arena_shrinkage", "gpu:0");
  return out;
}

}  // namespace memplan
