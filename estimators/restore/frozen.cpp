#include "estimators/restore/frozen.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/facts/libraries.h"
#include "estimators/restore/judging_networks.h"
#include "estimators/restore/passes.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// Whether nothing says which parameters are trained.
bool leaves_open(const Tape& tape) { return !tape.exported.tells_frozen && !tape.exported.recorded; }

/// Returns how many of them were trained before.
std::int64_t freeze(Tape& tape, const std::vector<ValueId>& parameters) {
  std::int64_t frozen = 0;
  for (const ValueId id : parameters) {
    TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
    frozen += v.requires_grad;
    v.requires_grad = false;
  }
  return frozen;
}

bool has_library_adapters(const Tape& tape) {
  return std::ranges::any_of(
      tape.scopes, [](const Scope& s) { return fact_of_class("trained_beside_adapters", s.module_class) != nullptr; });
}

}  // namespace

/// People name them as the library does: lora_A, lora_B, lora_down.
bool has_own_adapters(const Tape& tape) {
  const auto named = [&](ValueId id) {
    return tape.values[static_cast<std::size_t>(id.index)].name.find("lora_") != std::string::npos;
  };
  return !tape.exported.tells_frozen && std::ranges::any_of(tape.parameters, named) && !has_library_adapters(tape);
}

/// An ONNX file does not say which parameters are frozen. Where the model has adapters and the file freezes nothing,
/// their library's rule holds.
void freeze_beside_adapters(Tape& tape) {
  const auto value = [&](ValueId id) -> const TapeValue& { return tape.values[static_cast<std::size_t>(id.index)]; };
  const bool own = tape.reading.own_adapters && has_own_adapters(tape);
  if ((!own && !has_library_adapters(tape)) ||
      std::ranges::any_of(tape.parameters, [&](ValueId id) { return !value(id).requires_grad; }))
    return;
  const auto& trained = library_facts("trained_beside_adapters");
  std::vector<ValueId> beside;
  for (const ValueId id : tape.parameters) {
    const std::string_view name = value(id).name;
    if (std::ranges::none_of(trained, [&](const LibraryFact& f) { return name.find(f.detail) != name.npos; }))
      beside.push_back(id);
  }
  tape.recovered.push_back({"frozen parameters", "adapters, beside which all else is frozen", freeze(tape, beside),
                            Evidence::told_by_name, About::weights});
}

/// Constructors of some classes freeze what they make: positions that are computed, biases that an optimizer does not
/// move.
void freeze_by_class(Tape& tape) {
  std::map<std::string_view, std::string_view> classes;  // by path
  for (const Scope& s : tape.scopes) classes.emplace(s.path, s.module_class);
  std::vector<ValueId> made_frozen;
  for (const ValueId id : tape.parameters) {
    const std::string_view name = tape.values[static_cast<std::size_t>(id.index)].name;
    const auto root = classes.find("");
    bool of_class = root != classes.end() && fact_of_child("frozen", root->second, name);
    for (std::size_t dot = name.rfind('.'); !of_class && dot != name.npos && dot > 0; dot = name.rfind('.', dot - 1)) {
      const auto owner = classes.find(name.substr(0, dot));
      of_class = owner != classes.end() && fact_of_child("frozen", owner->second, name.substr(dot + 1));
    }
    if (of_class) made_frozen.push_back(id);
  }
  if (const std::int64_t frozen = freeze(tape, made_frozen); frozen > 0)
    tape.recovered.push_back({"frozen parameters", "classes whose constructors freeze them", frozen,
                              Evidence::told_by_name, About::weights});
}

namespace {

/// Parts of names of networks that are run and not trained, as people write them.
bool names_frozen(std::string_view module) {
  constexpr std::string_view words[] = {
      "teacher",    "target", "ema",           "frozen",      "reference", "ref",     "vgg",    "vgg16",    "vgg19",
      "perceptual", "lpips",  "pretrained",    "static",      "fixed",     "old",     "shadow", "momentum", "netD",
      "D",          "disc",   "discriminator", "spectrogram", "logmel",    "melspec", "stft",   "istft"};
  for (std::size_t i = 0; i <= module.size();) {
    const std::size_t end = std::min(module.find('_', i), module.size());
    if (std::ranges::find(words, module.substr(i, end - i)) != std::end(words)) return true;
    i = end + 1;
  }
  return false;
}

/// Of a parameter: one of the modules around it.
bool in_frozen_name(std::string_view parameter) {
  for (std::size_t i = 0, dot = parameter.find('.'); dot != parameter.npos; i = dot + 1, dot = parameter.find('.', i))
    if (names_frozen(parameter.substr(i, dot - i))) return true;
  return false;
}

const TapeValue& value_of(const Tape& tape, ValueId id) { return tape.values[static_cast<std::size_t>(id.index)]; }

bool is_library(const Tape& tape) {
  const auto root = std::ranges::find(tape.scopes, std::string(), &Scope::path);
  return root != tape.scopes.end() &&
         std::ranges::any_of(std::array<std::string_view, 3>{"torchvision.", "timm.", "transformers."},
                             [&](std::string_view library) { return root->module_class.starts_with(library); });
}

/// `encoder` of `model.encoder.features.0.weight`: the part up to a module with such a name; empty where there is none.
std::string_view image_network(std::string_view parameter) {
  constexpr std::array<std::string_view, 6> words{"encoder",   "backbone", "cnn",
                                                  "extractor", "resnet",   "feature_extractor"};
  for (std::size_t i = 0, dot = parameter.find('.'); dot != parameter.npos; i = dot + 1, dot = parameter.find('.', i))
    if (std::ranges::find(words, parameter.substr(i, dot - i)) != words.end()) return parameter.substr(0, dot);
  return {};
}

/// Paths, each with a dot behind it, of the largest modules whose batch norms all evaluate, in a model where others
/// train.
std::set<std::string> evaluated_networks(const Tape& tape) {
  if (!leaves_open(tape)) return {};
  std::vector<std::string> evaluating, training;
  for (const Call& call : tape.calls) {
    constexpr std::size_t mode = 5;
    const auto* trains = call.op == "aten::batch_norm" && call.args.size() > mode && call.scope >= 0
                             ? std::get_if<bool>(&call.args[mode].value)
                             : nullptr;
    if (trains)
      (*trains ? training : evaluating).push_back(tape.scopes[static_cast<std::size_t>(call.scope)].path + ".");
  }
  std::set<std::string> found;
  for (const std::string& path : training.empty() ? training : evaluating)
    for (auto dot = path.find('.'); dot != path.npos; dot = path.find('.', dot + 1)) {
      const std::string network = path.substr(0, dot + 1);
      if (std::ranges::any_of(training, [&](const std::string& other) { return other.starts_with(network); })) continue;
      found.insert(network);
      break;
    }
  return found;
}

/// Whether a parameter stands in one of the modules whose paths, with a dot behind them, these are.
bool is_in_one_of(const std::set<std::string>& modules, std::string_view parameter) {
  return std::ranges::any_of(modules, [&](const std::string& m) { return parameter.starts_with(m); });
}

/// Parameters of networks that stay in evaluation mode.
std::vector<ValueId> evaluated(const Tape& tape) {
  const std::set<std::string> networks = evaluated_networks(tape);
  std::vector<ValueId> found;
  for (const ValueId id : tape.parameters)
    if (is_in_one_of(networks, value_of(tape, id).name)) found.push_back(id);
  return found;
}

/// Parameters that may have come trained.
std::vector<ValueId> pretrained(const Tape& tape) {
  if (!leaves_open(tape) || is_library(tape)) return {};
  std::set<std::string_view> tables;  // paths of embeddings
  for (const Scope& s : tape.scopes)
    if (s.module_class == "torch.nn.modules.sparse.Embedding") tables.insert(s.path);
  constexpr std::array<std::int64_t, 4> widths{50, 100, 200, 300};
  const auto is_kernel = [](const TapeValue& v) { return v.sizes.size() == 4; };
  std::set<std::string_view> shifts;  // paths of 1x1 convolutions of colours: MeanShift of EDSR
  for (const ValueId id : tape.parameters)
    if (const TapeValue& v = value_of(tape, id); v.sizes == std::vector<std::int64_t>{3, 3, 1, 1})
      shifts.insert(std::string_view(v.name).substr(0, v.name.rfind('.')));
  const bool kernels_outside = std::ranges::any_of(tape.parameters, [&](ValueId id) {
    const TapeValue& v = value_of(tape, id);
    return is_kernel(v) && image_network(v.name).empty();
  });
  std::map<std::string_view, double> balance;  // elements of kernels less those of other parameters
  for (const ValueId id : tape.parameters) {
    const TapeValue& v = value_of(tape, id);
    balance[image_network(v.name)] +=
        std::accumulate(v.sizes.begin(), v.sizes.end(), is_kernel(v) ? 1.0 : -1.0, std::multiplies<>());
  }
  // An encoder beside a decoder of convolutions is trained with it; a backbone may be frozen below any head.
  const auto may_come_trained = [&](std::string_view network) {
    return !network.empty() && (!kernels_outside || !network.ends_with("encoder")) && balance.at(network) > 0;
  };
  std::vector<ValueId> found;
  for (const ValueId id : tape.parameters) {
    const TapeValue& v = value_of(tape, id);
    const std::string_view network = image_network(v.name), name = v.name;
    const bool table = v.sizes.size() == 2 && tables.count(name.substr(0, name.rfind('.'))) > 0 &&
                       std::ranges::find(widths, v.sizes[1]) != widths.end();
    const std::string_view leaf = leaf_of(name);
    const bool places = leaf.starts_with("pos_") || leaf.starts_with("positional") || leaf == "pe";
    const bool shift = shifts.contains(name.substr(0, name.rfind('.'))) || (leaf == "scale" && v.sizes.empty());
    if (v.requires_grad && (table || places || shift || may_come_trained(network))) found.push_back(id);
  }
  return found.size() < tape.parameters.size() ? found : std::vector<ValueId>();
}

/// Parameters of networks that people run and do not train: by their names, or since they judge what others make.
std::vector<ValueId> not_trained(const Tape& tape) {
  const std::set<std::string> judges = is_library(tape) ? std::set<std::string>() : judging_networks(tape);
  std::vector<ValueId> found;
  for (const ValueId id : tape.parameters) {
    const TapeValue& v = value_of(tape, id);
    if (v.requires_grad && (is_in_one_of(judges, v.name) || in_frozen_name(v.name))) found.push_back(id);
  }
  return found;
}

}  // namespace

bool has_evaluated_networks(const Tape& tape) { return !evaluated_networks(tape).empty(); }

bool has_pretrained(const Tape& tape) { return !pretrained(tape).empty(); }

bool has_frozen_names(const Tape& tape) {
  if (!leaves_open(tape)) return false;
  // Where all of it had such a name, nothing would be trained.
  const std::size_t count = not_trained(tape).size();
  return count > 0 && count < tape.parameters.size();
}

void freeze_by_name(Tape& tape) {
  const std::int64_t frozen = tape.reading.evaluated_frozen ? freeze(tape, evaluated(tape)) : 0;
  if (frozen > 0)
    tape.recovered.push_back({"frozen parameters", "networks that stay in evaluation mode while the model trains",
                              frozen, Evidence::told_by_pattern, About::weights});
  if (tape.reading.pretrained) freeze(tape, pretrained(tape));
  if (tape.reading.frozen_names) freeze(tape, not_trained(tape));
}

}  // namespace memplan
