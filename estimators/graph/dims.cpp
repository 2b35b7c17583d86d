#include "estimators/graph/dims.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>

#include "estimators/graph/expression.h"
#include "estimators/graph/position_table.h"
#include "estimators/setup/field.h"
#include "estimators/setup/setup.h"

namespace memplan {

namespace {

bool is_identifier(std::string_view s) {
  return !s.empty() && !std::isdigit(static_cast<unsigned char>(s[0])) &&
         std::all_of(s.begin(), s.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

bool names_batch(std::string_view name) {
  const std::string n = lower_case(name);
  return n.find("batch") != std::string::npos || n == "n" || n == "b" || n == "bs" || n == "bsz";
}

bool names_sequence(std::string_view name) {
  const std::string n = lower_case(name);
  return n.find("seq") != std::string::npos || n == "s" || n == "t" || n == "length" || n == "tokens";
}

/// The free names of an expression.
std::vector<std::string> names_in(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    while (at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_')) ++at;
    const std::string_view word = text.substr(begin, at - begin);
    if (is_identifier(word) && !(at < text.size() && text[at] == '(')) out.emplace_back(word);
    if (at == begin) ++at;
  }
  return out;
}

std::string join_names(const std::vector<OpenDim>& dims) {
  std::string out;
  for (const OpenDim& d : dims) out += (out.empty() ? "" : ", ") + fmt::format("{} ({})", d.name, d.where);
  return out;
}

/// Inputs of a transformer that have one entry per token, as Hugging Face's models and the scripts around them call
/// them. torch.export gives each its own symbols where nothing in the graph makes them equal.
bool is_per_token(const GraphValue& v) {
  static constexpr std::string_view names[] = {"input_ids",      "labels",       "attention_mask",
                                               "token_type_ids", "position_ids", "segment_ids",
                                               "targets",        "target_ids",   "loss_mask"};
  return v.shape && v.shape->size() == 2 && v.dtype && !is_floating(*v.dtype) &&
         std::any_of(std::begin(names), std::end(names), [&](std::string_view n) {
           return v.name == n || (v.name.ends_with(n) && v.name[v.name.size() - n.size() - 1] == '_' &&
                                  v.name.find("decoder") == std::string::npos);
         });
}

auto find_dim(std::vector<OpenDim>& dims, const std::string& name) {
  return std::find_if(dims.begin(), dims.end(), [&](const OpenDim& d) { return d.name == name; });
}

/// Open dimensions of the inputs that have one entry per token stand for the same sizes, axis by axis.
void tie_token_inputs(const Graph& g, std::vector<OpenDim>& dims) {
  const GraphValue* first = nullptr;
  for (GraphValueId id : g.inputs) {
    const GraphValue& v = g.values[static_cast<std::size_t>(id)];
    if (!is_per_token(v)) continue;
    if (!first) {
      first = &v;
      continue;
    }
    for (std::size_t axis = 0; axis < 2; ++axis) {
      if (!(*first->shape)[axis].open() || !(*v.shape)[axis].open()) continue;
      const auto leader = find_dim(dims, dim_name(*first, axis)), other = find_dim(dims, dim_name(v, axis));
      if (leader == dims.end() || other == dims.end() || leader == other) continue;
      other->batch = leader->batch;
      other->sequence = leader->sequence;
      other->like = leader->name;
    }
  }
}

/// Images and their like: only how many there are is open.
bool is_of_samples(const GraphValue& v) {
  return v.shape && v.shape->size() > 2 && v.shape->front().open() &&
         std::none_of(v.shape->begin() + 1, v.shape->end(), [](const Dim& d) { return d.open(); });
}

/// Two views of the same samples, `forward(x_i, x_j)`, come in batches of one size: torch.export names their dimensions
/// apart where no op needs them to be equal.
void tie_samples(const Graph& g, std::vector<OpenDim>& dims) {
  const GraphValue* first = nullptr;
  for (GraphValueId id : g.inputs) {
    const GraphValue& v = g.values[static_cast<std::size_t>(id)];
    if (!is_of_samples(v)) continue;
    if (!first) {
      first = &v;
      continue;
    }
    const bool alike = v.dtype == first->dtype &&
                       std::equal(v.shape->begin() + 1, v.shape->end(), first->shape->begin() + 1, first->shape->end(),
                                  [](const Dim& a, const Dim& b) { return a.size == b.size; });
    const auto leader = find_dim(dims, dim_name(*first, 0)), other = find_dim(dims, dim_name(v, 0));
    if (!alike || leader == dims.end() || other == dims.end() || leader == other || !leader->batch || other->batch)
      continue;
    other->batch = true;
    other->like = leader->name;
  }
}

}  // namespace

std::optional<std::int64_t> fixed_batch(const Graph& g) {
  std::optional<std::int64_t> size;
  for (GraphValueId id : g.inputs) {
    const GraphValue& v = g.values[static_cast<std::size_t>(id)];
    if (!v.shape || v.shape->empty()) continue;
    const Dim& d = v.shape->front();
    if (d.open() || (size && *size != d.size)) return std::nullopt;
    size = d.size;
  }
  return size;
}

std::string dim_name(const GraphValue& value, std::size_t axis) {
  const Dim& d = (*value.shape)[axis];
  return d.symbol.empty() ? fmt::format("{}_dim{}", value.name, axis) : d.symbol;
}

std::vector<OpenDim> open_dims(const Graph& g) {
  std::vector<OpenDim> out;
  std::set<std::string> seen;
  bool first_input = true;
  for (GraphValueId id : g.inputs) {
    const GraphValue& v = g.values[static_cast<std::size_t>(id)];
    if (!v.shape) continue;
    const bool integer = v.dtype && is_integral(*v.dtype);
    for (std::size_t axis = 0; axis < v.shape->size(); ++axis) {
      if (!(*v.shape)[axis].open()) continue;
      const std::string symbol = dim_name(v, axis);
      for (const std::string& name : is_identifier(symbol) ? std::vector<std::string>{symbol} : names_in(symbol))
        if (seen.insert(name).second)
          out.push_back({name,
                         fmt::format("{}[{}]", v.name, axis),
                         names_batch(name) || (axis == 0 && first_input && !names_sequence(name)),
                         names_sequence(name) || (axis == 1 && integer && !names_batch(name)),
                         {},
                         name});
    }
    first_input = false;
  }
  // A name tells more than a place.
  const bool named_batch = std::any_of(out.begin(), out.end(), [](const OpenDim& d) { return names_batch(d.name); });
  const bool named_sequence =
      std::any_of(out.begin(), out.end(), [](const OpenDim& d) { return names_sequence(d.name); });
  for (OpenDim& d : out) {
    if (named_batch && !names_batch(d.name)) d.batch = false;
    if (named_sequence && !names_sequence(d.name)) d.sequence = false;
    if (d.batch) d.sequence = false;
    // An exporter that was told which is which knows best.
    if (const auto told = g.metadata.find("memplan.role." + d.name); told != g.metadata.end()) {
      d.batch = told->second == "batch";
      d.sequence = told->second == "sequence";
      d.shown = d.batch ? "batch" : d.sequence ? "seq" : d.name;
    }
  }
  tie_token_inputs(g, out);
  tie_samples(g, out);
  return out;
}

namespace {

/// The number that the file tells under a key; none where it tells none that can be a size.
std::optional<std::int64_t> told_size(const Graph& g, const std::string& key) {
  const auto told = g.metadata.find(key);
  if (told == g.metadata.end()) return std::nullopt;
  std::int64_t size = 0;
  const char* end = told->second.data() + told->second.size();
  const auto [stop, error] = std::from_chars(told->second.data(), end, size);
  return error == std::errc() && stop == end && size > 0 ? std::optional(size) : std::nullopt;
}

/// The first batch of a recording.
std::optional<std::int64_t> recorded_batch(const Graph& g) { return told_size(g, "memplan.batch"); }

}  // namespace

Symbols fixed_sizes(const Graph& graph) {
  constexpr std::string_view prefix = "memplan.fixed.";
  Symbols out;
  for (auto it = graph.metadata.lower_bound(std::string(prefix));
       it != graph.metadata.end() && it->first.starts_with(prefix); ++it)
    if (const auto size = told_size(graph, it->first)) out.emplace(it->first.substr(prefix.size()), *size);
  return out;
}

namespace {

/// Every dimension that the setup names is one of the model's, and its size can be one.
void check_names(const TrainingSetup& setup, const std::vector<OpenDim>& dims) {
  for (const auto& [name, size] : setup.dims) {
    if (std::none_of(dims.begin(), dims.end(), [&name = name](const OpenDim& d) { return d.name == name; }))
      fail(ErrorKind::usage, fmt::format("the model has no open dimension '{}'", name), setting(Field::dims, name),
           dims.empty() ? "all its dimensions are fixed in the file" : "its open dimensions are " + join_names(dims));
    if (size < 1)
      fail(ErrorKind::usage, fmt::format("dimension '{}' cannot be {}", name, size), setting(Field::dims, name),
           "give a positive number");
  }
}

/// The size of one dimension, from the first of these that says it: its own name, the one that it is like, batch or
/// sequence, the file; a batch that nobody says is 1.
std::optional<std::int64_t> size_of(const OpenDim& d, const Graph& g, const TrainingSetup& setup, const Symbols& fixed,
                                    DimBinding& all) {
  if (const auto it = setup.dims.find(d.name); it != setup.dims.end()) return it->second;
  if (const auto leader = all.sizes.find(d.like); leader != all.sizes.end()) return leader->second;
  if (d.batch && setup.batch) return setup.batch;
  if (d.sequence && setup.sequence) return setup.sequence;
  if (const auto of_file = fixed.find(d.name); of_file != fixed.end()) return of_file->second;
  if (const auto exported = told_size(g, "memplan.size." + d.name)) {
    note(all.notes, {{},
                     "open dimensions that nothing sets have the sizes of the arguments of memplan.export",
                     Evidence::proven_by_file,
                     About::shape});
    return exported;
  }
  if (!d.batch) return std::nullopt;
  const auto recorded = recorded_batch(g);
  const std::int64_t size = recorded.value_or(1);
  all.notes.push_back({"MP002",
                       fmt::format("the batch dimension '{}' is open and taken as {}{}; set it with {}", d.shown, size,
                                   recorded ? ", as it was recorded" : "", setting(Field::batch)),
                       Evidence::assumed, About::shape});
  return size;
}

/// A sequence that is all that stays open has the length of the model's position table.
void bind_sequence(const Graph& g, std::vector<OpenDim>& unbound, DimBinding& all) {
  if (unbound.size() != 1 || !unbound[0].sequence) return;
  const auto table = find_position_table(g);
  if (!table) return;
  all.sizes[unbound[0].name] = table->length;
  all.notes.push_back({"MP003",
                       fmt::format("the sequence dimension '{}' is open and taken as {}, the length of the "
                                   "model's position table {}; set it with {}",
                                   unbound[0].name, table->length, table->name, setting(Field::sequence)),
                       Evidence::assumed, About::shape});
  unbound.clear();
}

[[noreturn]] void refuse_open(const Model& model, const std::vector<OpenDim>& unbound) {
  std::string command = "memplan " + model.path;
  // One --seq says all sequences at once, where it can.
  if (std::any_of(unbound.begin(), unbound.end(), [](const OpenDim& d) { return d.sequence; }))
    command += " " + setting(Field::sequence, 512);
  for (const OpenDim& d : unbound)
    if (!d.sequence) command += " " + setting(Field::dims, fmt::format("{}=64", d.name));
  fail_input(fmt::format("the model has open dimensions that nothing fixes: {}", join_names(unbound)), model.path,
             "give their sizes, for example: " + command);
}

[[noreturn]] void refuse_size(const Model& model, Field field, const char* kind, std::int64_t size) {
  const Graph& g = model.graphs.front();
  const auto why = g.metadata.find(fmt::format("memplan.unfollowed.{}", kind));
  if (why != g.metadata.end())
    fail(ErrorKind::usage,
         fmt::format("the file fixes the {}, and it cannot be followed through {}", kind, why->second),
         setting(field, size), "export the model with a dynamic dimension, or leave the flag out");
  fail(ErrorKind::usage,
       fmt::format("{} has no dimension to apply to: the file fixes all of them", setting(field, size)), setting(field),
       model.recorded ? "record it again at batches that have that one among them, or leave the flag out"
                      : "export the model with a dynamic dimension, or leave the flag out");
}

bool has_input_of(const Graph& g, std::int64_t size) {
  return std::any_of(g.inputs.begin(), g.inputs.end(), [&](GraphValueId id) {
    const auto& shape = g.values[static_cast<std::size_t>(id)].shape;
    return shape && std::any_of(shape->begin(), shape->end(), [&](const Dim& d) { return d.size == size; });
  });
}

/// A batch and a sequence that are given have a dimension to go to, or are what the file has anyway.
void check_applied(const Model& model, const TrainingSetup& setup, const std::vector<OpenDim>& dims) {
  const Graph& g = model.graphs.front();
  const auto open = [&](bool OpenDim::*kind) {
    return std::any_of(dims.begin(), dims.end(), [&](const OpenDim& d) { return d.*kind; });
  };
  if (setup.batch && !open(&OpenDim::batch) && fixed_batch(g) != setup.batch)
    refuse_size(model, Field::batch, "batch", *setup.batch);
  if (setup.sequence && !open(&OpenDim::sequence) && !has_input_of(g, *setup.sequence))
    refuse_size(model, Field::sequence, "sequence", *setup.sequence);
  if (!setup.shortest_sequence) return;
  if (!setup.sequence || !open(&OpenDim::sequence))
    fail(ErrorKind::usage, setting(Field::shortest_sequence) + " needs an open sequence and its longest length",
         setting(Field::shortest_sequence), "give " + setting(Field::sequence, "N") + " too");
  if (*setup.shortest_sequence > *setup.sequence)
    fail(ErrorKind::usage,
         fmt::format("the shortest batch has {} tokens, the longest {}", *setup.shortest_sequence, *setup.sequence),
         setting(Field::shortest_sequence), "give a length of at most " + setting(Field::sequence));
}

}  // namespace

DimBinding bind_dims(const Model& model, const TrainingSetup& setup) {
  const Graph& g = model.graphs.front();
  const std::vector<OpenDim> dims = open_dims(g);
  check_names(setup, dims);
  DimBinding all;
  const Symbols fixed = fixed_sizes(g);
  std::vector<OpenDim> unbound;
  for (const OpenDim& d : dims) {
    if (const auto size = size_of(d, g, setup, fixed, all))
      all.sizes[d.name] = *size;
    else if (d.like.empty())
      unbound.push_back(d);
  }
  bind_sequence(g, unbound, all);
  for (const OpenDim& d : dims)
    if (const auto leader = all.sizes.find(d.like); leader != all.sizes.end())
      all.sizes.emplace(d.name, leader->second);
  if (!unbound.empty()) refuse_open(model, unbound);
  check_applied(model, setup, dims);
  for (const OpenDim& d : dims) {
    const bool given = setup.dims.contains(d.name) || (d.batch && setup.batch) || (d.sequence && setup.sequence);
    const bool of_file = !given && fixed.contains(d.name);
    BoundDim bound{d.shown, all.sizes.find(d.name)->second, !given && !of_file, of_file};
    // Inputs that are as large have one dimension for people, whatever the exporter calls theirs.
    if (std::none_of(all.bound.begin(), all.bound.end(),
                     [&](const BoundDim& b) { return b.name == bound.name && b.size == bound.size; }))
      all.bound.push_back(std::move(bound));
  }
  return all;
}

std::optional<std::int64_t> evaluate(const Dim& dim, const Symbols& symbols) {
  if (!dim.open()) return dim.size;
  if (dim.symbol.empty()) return std::nullopt;
  if (auto it = symbols.find(dim.symbol); it != symbols.end()) return it->second;
  const auto v = value_of_expression(dim.symbol, symbols);
  if (!v || *v != std::floor(*v) || *v < 0 || *v > 9e15) return std::nullopt;
  return static_cast<std::int64_t>(*v);
}

std::optional<std::vector<std::int64_t>> evaluate(const GraphValue& value, const Symbols& symbols) {
  if (!value.shape) return std::nullopt;
  std::vector<std::int64_t> out;
  out.reserve(value.shape->size());
  for (const Dim& d : *value.shape) {
    const auto size = evaluate(d, symbols);
    if (!size) return std::nullopt;
    out.push_back(*size);
  }
  return out;
}

}  // namespace memplan
