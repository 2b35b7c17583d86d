#include "cli/flags/strategy_values.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/flags/values.h"
#include "estimators/setup/bitsandbytes.h"
#include "estimators/setup/field.h"
#include "estimators/setup/names.h"

namespace memplan::cli {

namespace {

[[noreturn]] void bad_strategy(const std::string& flag, std::string_view word, std::string hint) {
  fail(ErrorKind::usage, fmt::format("'{}' is not a value for {}", word, flag), flag, std::move(hint));
}

/// Runs `handle(key, value)` for every "key=value"; a word without '=' has an empty value.
template <class F>
void for_each_pair(const Given& given, F handle) {
  for (const std::string& word : given.words()) {
    const std::size_t equals = word.find('=');
    handle(word.substr(0, equals), equals == std::string::npos ? std::string() : word.substr(equals + 1), word);
  }
}

void require_training(const Given& given, const Options& o) {
  if (o.setup.mode != Mode::training)
    fail(ErrorKind::usage,
         fmt::format("{} changes a training step, and {} is inference", given.name(), setting(Field::mode)),
         given.name(), "leave one of them out");
}

}  // namespace

void parse_checkpoint(const Given& given, Options& o) {
  require_training(given, o);
  TrainingSetup& s = o.setup;
  for (const std::string& word : given.words()) {
    if (word == "optimal") {
      s.checkpoint_optimal = true;
    } else if (word.starts_with("optimal:")) {
      s.checkpoint_optimal = true;
      s.checkpoint_budget = parse_size(std::string_view(word).substr(8), setting(Field::checkpoint, "optimal"));
      if (s.checkpoint_budget->count <= 0)
        bad_strategy(given.name(), word, "give the bytes that the step may use, as in optimal:20GB");
    } else {
      for (std::string_view counted : {"every:", "groups:"})
        if (word.starts_with(counted))
          parse_count(std::string_view(word).substr(0, word.find('/')).substr(counted.size()),
                      setting(Field::checkpoint, counted.substr(0, counted.size() - 1)));
      s.checkpoint.push_back(word);
    }
  }
  if (s.checkpoint_optimal && !s.checkpoint.empty())
    fail(ErrorKind::usage,
         fmt::format("{} chooses the modules by itself, '{}' names them", setting(Field::checkpoint, "optimal"),
                     s.checkpoint.front()),
         setting(Field::checkpoint), "give one of them");
}

void parse_checkpoint_save(const Given& given, Options& o) {
  require_training(given, o);
  TrainingSetup& s = o.setup;
  s.checkpoint_save = given.words();
  if (!s.checkpoint_save.empty() && s.checkpoint.empty())
    fail(ErrorKind::usage,
         setting(Field::checkpoint_save) + " says what checkpointed modules keep, and none is checkpointed",
         setting(Field::checkpoint_save), "add " + setting(Field::checkpoint, "blocks"));
}

void parse_offload(const Given& given, Options& o) {
  TrainingSetup& s = o.setup;
  for (const std::string& word : given.words()) {
    const auto member = value_in(offload_names, word);
    if (!member) bad_strategy(given.name(), word, "use activations, optimizer or parameters");
    s.offload.*(*member) = true;
  }
  if (s.mode == Mode::inference && (s.offload.activations || s.offload.optimizer))
    fail(ErrorKind::usage, "a forward pass without gradients keeps no activations and has no optimizer",
         setting(Field::offload), "use " + setting(Field::offload, "parameters") + " in inference");
}

void parse_lora(const Given& given, Options& o) {
  require_training(given, o);
  TrainingSetup& s = o.setup;
  const std::string flag = given.name();
  if (s.lora)
    fail(ErrorKind::usage, setting(Field::lora) + " and " + setting(Field::lora_quantized) + " contradict each other",
         setting(Field::lora_quantized), "give one of them");
  LoraSetup lora;
  lora.quantized = given.flag.name == "qlora";
  for_each_pair(given, [&](const std::string& key, const std::string& value, const std::string& word) {
    if (key == "r") {
      lora.rank = parse_count(value, flag + " r");
    } else if (key == "dropout") {
      lora.dropout = parse_number(value, flag + " dropout");
      if (lora.dropout >= 1) bad_strategy(flag, word, "dropout is a share below 1");
    } else if (key == "targets" && !value.empty()) {
      std::size_t begin = 0;
      while (begin <= value.size()) {
        const std::size_t end = std::min(value.find('|', begin), value.size());
        if (end > begin) lora.targets.push_back(value.substr(begin, end - begin));
        begin = end + 1;
      }
    } else if (key == "bitsandbytes" && lora.quantized && bitsandbytes_keeps_inputs(value)) {
      lora.bitsandbytes = value;
    } else {
      bad_strategy(flag, word, fmt::format("write {} r=16,targets=*.q_proj|*.v_proj,dropout=0.1", flag));
    }
  });
  s.lora = std::move(lora);
}

void parse_kv_cache(const Given& given, Options& o) {
  if (o.setup.mode == Mode::training)
    fail(ErrorKind::usage, "a training step keeps no cache of keys and values", setting(Field::kv_cache),
         "add " + setting(Field::mode, "inference"));
  KvCacheSetup cache;
  for_each_pair(given, [&](const std::string& key, const std::string& value, const std::string& word) {
    if (key == "sequences")
      cache.sequences = parse_count(value, setting(Field::kv_cache, "sequences"));
    else if (key == "length")
      cache.length = parse_count(value, setting(Field::kv_cache, "length"));
    else if (key == "block")
      cache.block = parse_count(value, setting(Field::kv_cache, "block"));
    else if (const auto dtype = value_in(kv_dtype_names, value); key == "dtype" && dtype)
      cache.dtype = *dtype;
    else
      bad_strategy(given.name(), word,
                   "write " + setting(Field::kv_cache, "sequences=8,length=4096") +
                       " and, if wanted, dtype=bf16|fp16|fp32|fp8 and block=16");
  });
  if (cache.length == 0)
    fail(ErrorKind::usage, setting(Field::kv_cache) + " needs the length of the sequences", setting(Field::kv_cache),
         "write " + setting(Field::kv_cache, "sequences=8,length=4096"));
  o.setup.kv_cache = cache;
}

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
    if (!s.lora->bitsandbytes.empty()) text += ",bitsandbytes=" + s.lora->bitsandbytes;
    words.push_back(text);
  }
  if (s.kv_cache) {
    std::string text = fmt::format("kv-cache sequences={},length={}", s.kv_cache->sequences, s.kv_cache->length);
    if (s.kv_cache->dtype) text += fmt::format(",dtype={}", name_of(*s.kv_cache->dtype));
    if (s.kv_cache->block > 1) text += fmt::format(",block={}", s.kv_cache->block);
    words.push_back(text);
  }
  if (s.shortest_sequence) words.push_back(fmt::format("seq-from {}", *s.shortest_sequence));
  if (s.channels_last) words.push_back("channels-last");
  if (s.keep_loss_history) words.push_back("loss-history");
  if (s.empty_cache) words.push_back("empty-cache");
  if (s.compile) words.push_back("compile");
  if (s.activation_memory_budget < 1)
    words.push_back(fmt::format("activation-memory-budget {:g}", s.activation_memory_budget));
  return words;
}

}  // namespace memplan::cli
