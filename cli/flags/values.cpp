#include "cli/flags/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "estimators/base/text.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/setup/field.h"
#include "estimators/setup/names.h"
#include "estimators/setup/optimizers.h"

namespace memplan::cli {

namespace {

[[noreturn]] void bad(std::string_view flag, std::string_view text, std::string hint) {
  fail(ErrorKind::usage, fmt::format("'{}' is not a value for {}", text, flag), std::string(flag), std::move(hint));
}

template <class T, std::size_t N>
T choose(std::string_view text, std::string_view flag, const std::array<Named<T>, N>& table) {
  if (const auto value = value_in(table, text)) return *value;
  std::string names;
  for (const Named<T>& row : table) names += (names.empty() ? "" : ", ") + std::string(row.name);
  bad(flag, text, "use one of " + names);
}

/// All of `text` as a number, or nothing.
bool read_double(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

bool read_integer(std::string_view text, std::int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::string lower(std::string_view text) {
  std::string s(text);
  for (char& c : s)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return s;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i == text.size() || (text[i] == separator && depth == 0)) {
      parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  return parts;
}

bool is_power_of_two(std::int64_t n) { return n > 0 && std::has_single_bit(static_cast<std::uint64_t>(n)); }

/// 16 entries for sizes from 1 MiB to 32 GiB and up. A key k (in MiB) sets the entry log2(k); the first key also
/// fills all lower entries, '>' fills what follows the last one written.
std::vector<std::int64_t> parse_divisions(std::string_view value, std::string_view flag) {
  constexpr std::string_view hint = "use a power of two, or a list such as [256:1,512:2,1024:4,>:8]";
  auto division = [&](std::string_view text) {
    std::int64_t n = 0;
    if (!read_integer(trim(text), n) || (n != 0 && !is_power_of_two(n))) bad(flag, value, std::string(hint));
    return n;
  };
  std::vector<std::int64_t> table(16, 0);
  if (value.empty() || value.front() != '[') {
    std::fill(table.begin(), table.end(), division(value));
    return table;
  }
  if (value.back() != ']') bad(flag, value, std::string(hint));
  std::size_t next = 0;
  bool first = true;
  for (std::string_view entry : split(value.substr(1, value.size() - 2), ',')) {
    const std::size_t colon = entry.find(':');
    if (colon == std::string_view::npos) bad(flag, value, std::string(hint));
    const std::string_view key = trim(entry.substr(0, colon));
    const std::int64_t n = division(entry.substr(colon + 1));
    if (key == ">") {
      std::fill(table.begin() + static_cast<std::ptrdiff_t>(next), table.end(), n);
      next = table.size();
    } else {
      std::int64_t mib = 0;
      if (!read_integer(key, mib) || !is_power_of_two(mib)) bad(flag, value, std::string(hint));
      const auto index = std::min<std::size_t>(std::countr_zero(static_cast<std::uint64_t>(mib)), table.size() - 1);
      if (first) std::fill(table.begin(), table.begin() + static_cast<std::ptrdiff_t>(index), n);
      table[index] = n;
      next = index + 1;
    }
    first = false;
  }
  return table;
}

}  // namespace

Bytes parse_size(std::string_view text, std::string_view flag) {
  constexpr std::array<std::pair<std::string_view, double>, 14> units{{{"kib", 0x1p10},
                                                                       {"mib", 0x1p20},
                                                                       {"gib", 0x1p30},
                                                                       {"tib", 0x1p40},
                                                                       {"kb", 1e3},
                                                                       {"mb", 1e6},
                                                                       {"gb", 1e9},
                                                                       {"tb", 1e12},
                                                                       {"ki", 0x1p10},
                                                                       {"mi", 0x1p20},
                                                                       {"gi", 0x1p30},
                                                                       {"ti", 0x1p40},
                                                                       {"b", 1},
                                                                       {"", 1}}};
  const std::string low = lower(trim(text));
  const std::size_t digits = std::min(low.find_first_not_of("0123456789."), low.size());
  double value = 0;
  const std::string_view unit = trim(std::string_view(low).substr(digits));
  for (const auto& [name, factor] : units) {
    if (unit != name) continue;
    if (!read_double(std::string_view(low).substr(0, digits), value)) break;
    const double bytes = value * factor;
    if (bytes >= 0x1p62) break;
    return Bytes(static_cast<std::int64_t>(std::llround(bytes)));
  }
  bad(flag, text, "give a size such as 512MiB, 4GiB (2^30), 80GB (10^9) or bytes");
}

std::int64_t parse_count(std::string_view text, std::string_view flag, std::int64_t least) {
  std::int64_t n = 0;
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  if (!read_integer(text, n) && digits) bad(flag, text, "the number is too large");
  if (!read_integer(text, n) || n < least) bad(flag, text, fmt::format("give a whole number of at least {}", least));
  return n;
}

GivenInput parse_input(std::string_view text, std::string_view flag) {
  const char* advice = "write NAME:DTYPE:SHAPE, such as x:float32:batch,3,224,224 or input_ids:int64:batch,512";
  const std::size_t last = text.rfind(':');
  if (last == std::string_view::npos) bad(flag, text, advice);
  const std::size_t first = text.rfind(':', last == 0 ? 0 : last - 1);
  const bool named = first != std::string_view::npos && first < last;
  GivenInput out;
  if (named) out.name = text.substr(0, first);
  const std::string_view type = text.substr(named ? first + 1 : 0, last - (named ? first + 1 : 0));
  const auto dtype = dtype_from_name(type);
  if (!dtype)
    bad(flag, text, fmt::format("'{}' is no element type; use PyTorch's names, such as float32 or int64", type));
  out.dtype = *dtype;
  for (std::size_t at = last + 1; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end + 1;
    Dim d;
    const bool letter =
        !word.empty() && (std::isalpha(static_cast<unsigned char>(word.front())) || word.front() == '_');
    if (!read_integer(word, d.size)) {
      d.size = -1;
      if (!letter ||
          !std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; }))
        bad(flag, text, advice);
      d.symbol = word;
    } else if (d.size < 0) {
      bad(flag, text, "sizes are numbers from 0 on, or names");
    }
    out.sizes.push_back(std::move(d));
  }
  return out;
}

double parse_number(std::string_view text, std::string_view flag) {
  double value = 0;
  if (!read_double(text, value) || value < 0) bad(flag, text, "give a number such as 0.9");
  return value;
}

AllocatorSetup parse_alloc_conf(std::string_view text, std::string_view flag) {
  AllocatorSetup setup;
  Bytes large_segment(profile_named(RuntimeSetup{}.version).allocator.large_segment);
  auto mib = [&](std::string_view key, std::string_view value) {
    std::int64_t n = 0;
    if (!read_integer(value, n) || n < 0) bad(flag, value, fmt::format("{} takes a whole number of MiB", key));
    return Bytes::mib(1) * n;
  };
  auto fraction = [&](std::string_view key, std::string_view value, bool one_allowed) {
    double x = 0;
    if (!read_double(value, x) || x <= 0 || x > 1 || (x == 1 && !one_allowed))
      bad(flag, value, fmt::format("{} takes a number between 0 and 1", key));
    return x;
  };
  const auto items = split(text, ',');
  // The other limits refer to the size of a large segment, wherever in the list it stands.
  for (std::string_view item : items)
    if (trim(item).starts_with("large_segment_size_mb:")) {
      setup.large_segment = large_segment = mib("large_segment_size_mb", trim(item.substr(item.find(':') + 1)));
      if (large_segment <= Bytes::mib(10) || large_segment > Bytes::gib(1024))
        bad(flag, item, "large_segment_size_mb must be greater than 10, and 1048576 (a tebibyte) at most");
    }
  for (std::string_view raw : items) {
    const std::string_view item = trim(raw);
    if (item.empty()) continue;
    const std::size_t colon = item.find(':');
    if (colon == std::string_view::npos)
      bad(flag, item, "write key:value pairs with commas between them, as in PYTORCH_ALLOC_CONF");
    const std::string_view key = trim(item.substr(0, colon)), value = trim(item.substr(colon + 1));
    if (key == "large_segment_size_mb") continue;  // read above
    if (key == "expandable_segments") {
      if (value != "True" && value != "False")
        bad(flag, item, "write expandable_segments:True or expandable_segments:False");
      setup.expandable_segments = value == "True";
    } else if (key == "max_split_size_mb") {
      setup.max_split_size = mib(key, value);
      if (*setup.max_split_size < large_segment)
        bad(flag, item, fmt::format("PyTorch wants max_split_size_mb of at least {}", large_segment.count >> 20));
    } else if (key == "max_non_split_rounding_mb") {
      setup.max_non_split_rounding = mib(key, value);
      if (*setup.max_non_split_rounding < large_segment)
        bad(flag, item,
            fmt::format("PyTorch wants max_non_split_rounding_mb of at least {}", large_segment.count >> 20));
    } else if (key == "garbage_collection_threshold") {
      setup.garbage_collection_threshold = fraction(key, value, false);
    } else if (key == "per_process_memory_fraction") {
      setup.memory_fraction = fraction(key, value, true);
    } else if (key == "roundup_power2_divisions") {
      setup.roundup_power2_divisions = parse_divisions(value, flag);
    } else if (key == "backend") {
      if (value != "native") bad(flag, item, "memplan models PyTorch's native allocator only; leave backend out");
    } else if (!key.starts_with("pinned_") && key != "release_lock_on_cudamalloc" &&
               key != "graph_capture_record_stream_reuse") {  // host memory, locking, CUDA graphs: no device bytes here
      bad(flag, key,
          "keys are expandable_segments, max_split_size_mb, max_non_split_rounding_mb, roundup_power2_divisions, "
          "garbage_collection_threshold, per_process_memory_fraction, large_segment_size_mb");
    }
  }
  return setup;
}

bool parse_yes_no(std::string_view text, std::string_view flag) { return choose(text, flag, yes_no_names); }

std::string parse_framework(std::string_view text) { return choose(text, "--for", framework_names); }

Mode parse_mode(std::string_view text) { return choose(text, setting(Field::mode), mode_names); }

Precision parse_precision(std::string_view text, Fp8& fp8) {
  const PrecisionChoice chosen = choose(text, setting(Field::precision), precision_names);
  fp8 = chosen.fp8;
  return chosen.precision;
}

OptimizerSetup parse_optimizer(std::string_view text) {
  const OptimizerChoice chosen = choose(text, setting(Field::optimizer), optimizer_names);
  OptimizerSetup setup;
  setup.kind = chosen.kind;
  setup.amsgrad = chosen.amsgrad;
  if (chosen.momentum) setup.momentum = 0.9;
  // torch.optim's defaults: AdamW decays, the others do not.
  if (!optimizer_model(setup.kind).decays) setup.weight_decay = 0;
  return setup;
}

OptimizerImpl parse_optimizer_impl(std::string_view text) {
  return choose(text, setting(Field::optimizer_impl), optimizer_impl_names);
}

Loss parse_loss(std::string_view text) { return choose(text, setting(Field::loss), loss_names); }

AttentionBackend parse_attention(std::string_view text) {
  return choose(text, setting(Field::attention), attention_names);
}

ZeroGrad parse_zero_grad(std::string_view text) { return choose(text, setting(Field::zero_grad), zero_grad_names); }

Sharding parse_zero_stage(std::string_view text) { return choose(text, setting(Field::zero), zero_stage_names); }

DType parse_floating(std::string_view text, std::string_view flag) { return choose(text, flag, floating_names); }

void parse_pipeline_schedule(std::string_view text, ParallelSetup& setup) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  setup.schedule = choose(text.substr(0, colon), setting(Field::pipeline_schedule), pipeline_schedule_names);
  if (setup.schedule == PipelineSchedule::interleaved || setup.schedule == PipelineSchedule::zbv)
    setup.virtual_stages = 2;
  if (colon < text.size())
    setup.virtual_stages = parse_count(text.substr(colon + 1), setting(Field::pipeline_schedule));
}

std::vector<std::int64_t> parse_split(std::string_view text) {
  std::vector<std::int64_t> blocks;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    blocks.push_back(parse_count(text.substr(at, comma - at), setting(Field::pipeline_split)));
    at = comma + 1;
  }
  return blocks;
}

}  // namespace memplan::cli
