// What a user chooses about a session of ONNX Runtime and its CUDA provider.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimators/base/bytes.h"
#include "estimators/base/evidence.h"
#include "estimators/base/names.h"

namespace memplan {

/// How the arena grows.
enum class ArenaExtend : std::uint8_t { next_power_of_two, same_as_requested };
inline constexpr std::array arena_extend_names{
    Named<ArenaExtend>{"kNextPowerOfTwo", ArenaExtend::next_power_of_two},
    Named<ArenaExtend>{"kSameAsRequested", ArenaExtend::same_as_requested},
};

/// How cuDNN's algorithm of a convolution is chosen. EXHAUSTIVE and HEURISTIC take the same plan (docs/onnxruntime.md).
enum class ConvSearch : std::uint8_t { exhaustive, heuristic, fallback };
inline constexpr std::array conv_search_names{
    Named<ConvSearch>{"EXHAUSTIVE", ConvSearch::exhaustive},
    Named<ConvSearch>{"HEURISTIC", ConvSearch::heuristic},
    Named<ConvSearch>{"DEFAULT", ConvSearch::fallback},
};

struct OrtSetup {
  static constexpr std::string_view newest = "1.31";  ///< version that memplan knows
  ArenaExtend extend = ArenaExtend::next_power_of_two;
  ConvSearch conv_search = ConvSearch::exhaustive;
  std::optional<Bytes> memory_limit;    ///< of the arena; none: the device's
  Bytes initial_chunk = Bytes::mib(1);  ///< first region of kNextPowerOfTwo
  Bytes growth_chunk = Bytes::mib(2);   ///< next region of kNextPowerOfTwo after the arena shrank
  Bytes max_dead = Bytes::mib(128);     ///< a block is split when more than this would be left unused in it
  bool memory_pattern = true;           ///< from the second run on one block holds all activations
  bool memory_reuse = true;             ///< a buffer of the same shape is taken over
  bool shrink = false;                  ///< the arena gives back unused regions after every run
  /// A row of ort_profiles() (runtime/ort/versions/versions.h). choose_ort_version() there says which one.
  std::string version = std::string(newest);
  std::string version_why;                       ///< "as asked for"; reports put it behind the version
  Evidence version_evidence = Evidence::chosen;  ///< `assumed` where the one that runs has no row
  friend bool operator==(const OrtSetup&, const OrtSetup&) = default;
};

/// Sets one option by the name that ONNX Runtime has for it: of the CUDA provider ("arena_extend_strategy"), of
/// SessionOptions ("enable_mem_pattern"), of the arena ("initial_chunk_size_bytes") or an entry of a configuration
/// ("memory.enable_memory_arena_shrinkage"). Failure(usage) for names and values that it does not take, and for
/// options that are not modelled; one that does not move memory is taken and does nothing.
void set_ort_option(OrtSetup& setup, std::string_view name, std::string_view value);

/// Where ONNX Runtime takes an option: SessionOptions has members and entries, a run has entries, the arena has a
/// configuration of its own (OrtArenaCfg), and the rest belongs to the provider.
enum class OrtPlace : std::uint8_t { member, session_entry, run_entry, arena, provider };
OrtPlace place_of_ort_option(std::string_view name);

/// The options that differ from ONNX Runtime's defaults, as name and value.
std::vector<std::pair<std::string, std::string>> ort_options(const OrtSetup& setup);

}  // namespace memplan
