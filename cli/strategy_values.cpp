#include "cli/strategy_values.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/values.h"
#include "estimators/base/text.h"
#include "estimators/setup/names.h"

namespace memplan::cli {

namespace {

std::vector<std::string> words_of(const Parsed& parsed, std::string_view flag, char separator = ',') {
  std::vector<std::string> words;
  const auto it = parsed.values.find(flag);
  if (it == parsed.values.end()) return words;
  for (const std::string& value : it->second)
    for (std::size_t begin = 0; begin <= value.size();) {
      const std::size_t end = std::min(value.find(separator, begin), value.size());
      if (const std::string word(trim(std::string_view(value).substr(begin, end - begin))); !word.empty())
        words.push_back(word);
      begin = end + 1;
    }
  return words;
}

[[noreturn]] void bad_strategy(std::string_view flag, std::string_view word, std::string hint) {
  fail(ErrorKind::usage, fmt::format("'{}' is not a value for --{}", word, flag), fmt::format("--{}", flag),
       std::move(hint));
}

/// Runs `handle(key, value)` for every "key=value"; a word without '=' has an empty value.
template <class F>
void for_each_pair(const Parsed& parsed, std::string_view flag, F handle) {
  for (const std::string& word : words_of(parsed, flag)) {
    const std::size_t equals = word.find('=');
    handle(word.substr(0, equals), equals == std::string::npos ? std::string() : word.substr(equals + 1), word);
  }
}

void parse_checkpoint(const Parsed& parsed, TrainingSetup& s) {
  for (const std::string& word : words_of(parsed, "checkpoint")) {
    if (word == "optimal") {
      s.checkpoint_optimal = true;
    } else if (word.starts_with("optimal:")) {
      s.checkpoint_optimal = true;
      s.checkpoint_budget = parse_size(std::string_view(word).substr(8), "--checkpoint optimal");
      if (s.checkpoint_budget->count <= 0)
        bad_strategy("checkpoint", word, "give the bytes that the step may use, as in optimal:20GB");
    } else {
      for (std::string_view counted : {"every:", "groups:"})
        if (word.starts_with(counted))
          parse_count(std::string_view(word).substr(0, word.find('/')).substr(counted.size()),
                      fmt::format("--checkpoint {}", counted.substr(0, counted.size() - 1)));
      s.checkpoint.push_back(word);
    }
  }
  if (s.checkpoint_optimal && !s.checkpoint.empty())
    fail(ErrorKind::usage,
         fmt::format("--checkpoint optimal chooses the modules by itself, '{}' names them", s.checkpoint.front()),
         "--checkpoint", "give one of them");
  s.checkpoint_save = words_of(parsed, "checkpoint-save");
  if (!s.checkpoint_save.empty() && s.checkpoint.empty())
    fail(ErrorKind::usage, "--checkpoint-save says what checkpointed modules keep, and none is checkpointed",
         "--checkpoint-save", "add --checkpoint blocks");
}

void parse_offload(const Parsed& parsed, TrainingSetup& s) {
  for (const std::string& word : words_of(parsed, "offload")) {
    const auto member = value_in(offload_names, word);
    if (!member) bad_strategy("offload", word, "use activations, optimizer or parameters");
    s.offload.*(*member) = true;
  }
}

void parse_lora(const Parsed& parsed, std::string_view flag, TrainingSetup& s) {
  if (!parsed.has(flag)) return;
  if (s.lora) fail(ErrorKind::usage, "--lora and --qlora contradict each other", "--qlora", "give one of them");
  LoraSetup lora;
  lora.quantized = flag == "qlora";
  for_each_pair(parsed, flag, [&](const std::string& key, const std::string& value, const std::string& word) {
    if (key == "r") {
      lora.rank = parse_count(value, fmt::format("--{} r", flag));
    } else if (key == "dropout") {
      lora.dropout = parse_number(value, fmt::format("--{} dropout", flag));
      if (lora.dropout >= 1) bad_strategy(flag, word, "dropout is a share below 1");
    } else if (key == "targets" && !value.empty()) {
      std::size_t begin = 0;
      while (begin <= value.size()) {
        const std::size_t end = std::min(value.find('|', begin), value.size());
        if (end > begin) lora.targets.push_back(value.substr(begin, end - begin));
        begin = end + 1;
      }
    } else {
      bad_strategy(flag, word, fmt::format("write --{} r=16,targets=*.q_proj|*.v_proj,dropout=0.1", flag));
    }
  });
  s.lora = std::move(lora);
}

void parse_kv_cache(const Parsed& parsed, TrainingSetup& s) {
  if (!parsed.has("kv-cache")) return;
  KvCacheSetup cache;
  for_each_pair(parsed, "kv-cache", [&](const std::string& key, const std::string& value, const std::string& word) {
    if (key == "sequences")
      cache.sequences = parse_count(value, "--kv-cache sequences");
    else if (key == "length")
      cache.length = parse_count(value, "--kv-cache length");
    else if (key == "block")
      cache.block = parse_count(value, "--kv-cache block");
    else if (const auto dtype = value_in(kv_dtype_names, value); key == "dtype" && dtype)
      cache.dtype = *dtype;
    else
      bad_strategy("kv-cache", word,
                   "write --kv-cache sequences=8,length=4096 and, if wanted, dtype=bf16|fp16|fp32|fp8 and block=16");
  });
  if (cache.length == 0)
    fail(ErrorKind::usage, "--kv-cache needs the length of the sequences", "--kv-cache",
         "write --kv-cache sequences=8,length=4096");
  s.kv_cache = cache;
}

}  // namespace

std::vector<std::string> strategy_words(const TrainingSetup& s) {
  std::vector<std::string> words;
  auto joined = [](const std::vector<std::string>& parts, const char* between) {
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
    return text;
  };
  if (!s.checkpoint_save.empty()) words.push_back("checkpoint-save " + joined(s.checkpoint_save, ","));
  std::vector<std::string> offload;
  for (const auto& [name, member, also] : offload_names)
    if (s.offload.*member) offload.push_back(name);
  if (!offload.empty()) words.push_back("offload " + joined(offload, ","));
  if (s.lora) {
    std::string text = fmt::format("{} r={}", s.lora->quantized ? "qlora" : "lora", s.lora->rank);
    if (!s.lora->targets.empty()) text += ",targets=" + joined(s.lora->targets, "|");
    if (s.lora->dropout > 0) text += fmt::format(",dropout={:g}", s.lora->dropout);
    words.push_back(text);
  }
  if (s.kv_cache) {
    std::string text = fmt::format("kv-cache sequences={},length={}", s.kv_cache->sequences, s.kv_cache->length);
    if (s.kv_cache->dtype) text += fmt::format(",dtype={}", name_of(*s.kv_cache->dtype));
    if (s.kv_cache->block > 1) text += fmt::format(",block={}", s.kv_cache->block);
    words.push_back(text);
  }
  if (s.channels_last) words.push_back("channels-last");
  if (s.keep_loss_history) words.push_back("loss-history");
  if (s.empty_cache) words.push_back("empty-cache");
  return words;
}

void parse_strategies(const Parsed& parsed, TrainingSetup& s) {
  const bool training = s.mode == Mode::training;
  for (const char* flag : {"checkpoint", "checkpoint-save", "lora", "qlora"})
    if (!training && parsed.has(flag))
      fail(ErrorKind::usage, fmt::format("--{} changes a training step, and --mode is inference", flag),
           fmt::format("--{}", flag), "leave one of them out");
  if (training && parsed.has("kv-cache"))
    fail(ErrorKind::usage, "a training step keeps no cache of keys and values", "--kv-cache", "add --mode inference");
  parse_checkpoint(parsed, s);
  parse_offload(parsed, s);
  if (!training && (s.offload.activations || s.offload.optimizer))
    fail(ErrorKind::usage, "a forward pass without gradients keeps no activations and has no optimizer", "--offload",
         "use --offload parameters in inference");
  parse_lora(parsed, "lora", s);
  parse_lora(parsed, "qlora", s);
  parse_kv_cache(parsed, s);
  s.channels_last = parsed.has("channels-last");
  s.keep_loss_history = parsed.has("loss-history");
  s.empty_cache = parsed.has("empty-cache");
}

}  // namespace memplan::cli
