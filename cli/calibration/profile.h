// What `memplan calibrate` measured of this machine's card: a file for each, ~/.config/memplan/gpus/CARD.toml, that
// people may read and edit. Later estimates for the card take it (measured.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "estimators/base/bytes.h"

namespace memplan::cli {

using Figures = std::vector<std::pair<std::string, Bytes>>;

struct CardProfile {
  std::string card;  ///< key in memplan's table, or a word made of the name where the table does not have it
  std::string name;  ///< as CUDA says it
  std::string date;  ///< "2026-11-22"
  std::string driver, torch, cuda, cudnn, nccl;
  std::string loading;   ///< CUDA_MODULE_LOADING
  std::string platform;  ///< "linux", "wsl"
  int sm = 0, multiprocessors = 0, threads_per_multiprocessor = 0;
  Bytes total;      ///< cudaMemGetInfo
  Bytes smi_total;  ///< nvidia-smi; 0: not told
  Bytes free;       ///< with this process's context, before it took anything
  /// Beside PyTorch's segments: what any step has loaded; convolutions and attention too; every library.
  Bytes least, usual, most;
  Figures growth;       ///< likewise after each library, in the order of their first use
  Figures nccl_growth;  ///< what NCCL added to that, with one rank
  Figures asked;        ///< what PyTorch's allocator and cuBLAS ask for: "block", "granularity", "cublas"
  bool real() const { return driver != "emulated"; }
};

/// Where the profile of a card lies; empty where neither XDG_CONFIG_HOME nor HOME names a folder.
std::string profile_path(const std::string& card);

/// Whether a text may name a profile: lower-case letters, digits and dashes.
bool is_card_word(const std::string& text);

std::string profile_text(const CardProfile& profile);

/// Failure(usage), with the line, where the file cannot be read, is no TOML, lacks a key, has one that no profile has,
/// or a figure that no card can have.
CardProfile read_profile(const std::string& path);

}  // namespace memplan::cli
