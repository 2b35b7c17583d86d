#include "estimators/frontends/onnx/made_of_lines.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "estimators/frontends/onnx/folded.h"

namespace memplan::onnx_format {

namespace {

using Lines = std::vector<const SignatureLine*>;

/// The parameter or buffer of a line that has no tensor in the file.
Arg make_lost(Emit& e, const SignatureLine& line, DType dtype, const Sizes& sizes) {
  return {e.values.missing(line.name) ? e.values.make_missing(line.name, dtype, sizes) : e.values.of_name(line.name)};
}

/// Parameters that were joined.
MadeOfLines joined(Emit& e, GraphValueId id, const Lines& lines) {
  const Sizes sizes = *e.inferred[id].sizes;
  const auto parts = joined_sizes(sizes, lines.size());
  Arg::List list;
  for (std::size_t i = 0; i < parts.size(); ++i)
    list.push_back(make_lost(e, *lines[i], *e.inferred[id].dtype, parts[i]));
  // One line alone was joined with what no parameter gave: in a dimension that is not told.
  const auto differ = parts.empty() ? sizes.end() : std::ranges::mismatch(sizes, parts[0]).in1;
  const std::int64_t d = differ == sizes.end() ? 0 : differ - sizes.begin();
  note(e.tape.notes, {{},
                      "parameters that the export joined; how large each is was worked out of all of them",
                      Evidence::told_by_pattern,
                      About::weights});
  return {e.call("aten::cat", {{std::move(list)}, {d}}, {}, e.name_of(id)), {}};
}

/// A layer's weight, standardized for each of its outputs.
MadeOfLines standardized(Emit& e, GraphValueId id, const Lines& lines) {
  const Sizes sizes = *e.inferred[id].sizes;
  const DType dtype = *e.inferred[id].dtype;
  const Arg rows = list_of({1, sizes[0], count_of(sizes) / std::max<std::int64_t>(sizes[0], 1)});
  Arg gain;
  const Arg weight{e.call("aten::view", {make_lost(e, *lines[0], dtype, sizes), rows})};
  if (lines.size() > 1) {
    Sizes each(sizes.size(), 1);
    each[0] = sizes[0];
    gain = {e.call("aten::mul.Tensor", {make_lost(e, *lines[1], dtype, each), {1.0}})};
    gain = {e.call("aten::view", {gain, list_of({-1})})};
  }
  const Arg made{e.call("aten::batch_norm", {weight, gain, {}, {}, {}, {true}, {0.0}, {1e-5}, {true}})};
  return {e.call("aten::view", {made, list_of(sizes)}, {}, e.name_of(id)), {}};
}

/// The weight of weight_norm, of a gain and a direction. The gain is taken to be of the first dimension, as it is
/// unless weight_norm is told of another.
MadeOfLines weight_normed(Emit& e, GraphValueId id, const Lines& lines) {
  const Sizes sizes = *e.inferred[id].sizes;
  const DType dtype = *e.inferred[id].dtype;
  Sizes each(sizes.size(), 1);
  if (!sizes.empty()) each[0] = sizes[0];
  const Arg gain = make_lost(e, *lines[0], dtype, each), direction = make_lost(e, *lines[1], dtype, sizes);
  return {e.call("aten::_weight_norm", {direction, gain, {std::int64_t{0}}}, {}, e.name_of(id)), {}};
}

/// A table and the numbers of what was looked up in it; the numbers may be worked out in the forward pass.
struct Table {
  Arg rows, numbers;
};

Table table_of(Emit& e, const Lines& lines, DType dtype, const Sizes& table, const Sizes& numbers) {
  const bool first = lines[0]->kind == "PARAMETER";
  const Arg rows = make_lost(e, *lines[first ? 0 : 1], dtype, table);
  if (lines.size() > 1) return {rows, make_lost(e, *lines[first ? 1 : 0], DType::int64, numbers)};
  return {rows, {e.call("aten::empty.memory_format", {list_of(numbers)}, {{"dtype", {DType::int64}}})}};
}

/// A table of distances whose columns were looked up, `biases[:, index]`: LeViT's has one for each position of the
/// keys (timm 1.0.31, models/levit.py: attention_biases).
MadeOfLines columns(Emit& e, GraphValueId id, const Lines& lines) {
  const Sizes sizes = *e.inferred[id].sizes, table{sizes[0], sizes[2]};
  const DType dtype = *e.inferred[id].dtype;
  const Table t = table_of(e, lines, dtype, table, {sizes[1], sizes[2]});
  return {e.call("aten::index.Tensor", {t.rows, {Arg::List{{}, t.numbers}}}, {}, e.name_of(id)),
          bytes_of(dtype, count_of(table))};
}

/// A table of relative positions that was looked up: a row for each pair of positions, or what became of them where
/// heads come first.
MadeOfLines looked_up(Emit& e, GraphValueId id, const Lines& lines, bool in_place) {
  const Sizes sizes = *e.inferred[id].sizes;
  const DType dtype = *e.inferred[id].dtype;
  const bool by_pair = op_of_name(e.name_of(id)) == "index";
  const std::int64_t positions = sizes.back(), heads = by_pair ? 0 : sizes[sizes.size() - 3];
  const Sizes pairs = by_pair ? sizes : Sizes{positions * positions, heads};
  Sizes table = pairs, numbers{pairs[0]};
  table[0] = rows_of_pairs(pairs[0]);
  if (lines.size() == 1) {
    // MViT's rows and columns: as many as there are distances between the positions of the finer side.
    table = {2 * std::max(sizes[0], sizes[1]) - 1, sizes[2]};
    numbers = {sizes[0], sizes[1]};
  }
  const Table t = table_of(e, lines, dtype, table, numbers);
  ValueId made = e.call("aten::index.Tensor", {t.rows, {Arg::List{t.numbers}}}, {}, e.name_of(id));
  if (!by_pair) {
    made = e.call("aten::view", {{made}, list_of({positions, positions, heads})});
    made = e.call("aten::permute", {{made}, list_of({2, 0, 1})});
    if (!in_place) made = e.call("aten::contiguous", {{made}});
    made = e.call("aten::view", {{made}, list_of(sizes)});
  }
  return {made, bytes_of(dtype, count_of(table))};
}

/// Rows of the table of another module that is called the same, "encoder.….relative_attention_bias.weight".
std::optional<std::int64_t> rows_of_namesake(const Emit& e, std::string_view path, std::int64_t features) {
  const std::string_view module = path.substr(0, path.rfind('.'));
  const std::string_view name = module.substr(module.rfind('.') == module.npos ? 0 : module.rfind('.'));
  const std::string end = std::string(name).append(path.substr(module.size()));
  for (const ValueId id : e.tape.parameters)
    if (const TapeValue& v = e.tape.values[static_cast<std::size_t>(id.index)];
        v.name.ends_with(end) && v.name != path && v.sizes.size() == 2 && v.sizes[1] == features)
      return v.sizes[0];
  return std::nullopt;
}

/// T5's biases of distances, heads first, […, heads, queries, keys]: of 32 buckets where no other table tells
/// (transformers 5, models/t5/configuration_t5.py: relative_attention_num_buckets).
MadeOfLines embedded(Emit& e, GraphValueId id, const Lines& lines) {
  const Sizes sizes = *e.inferred[id].sizes;
  const DType dtype = *e.inferred[id].dtype;
  const std::size_t n = sizes.size();
  const std::int64_t heads = sizes[n - 3], queries = sizes[n - 2], keys = sizes[n - 1];
  constexpr std::int64_t buckets = 32;
  const auto rows = rows_of_namesake(e, lines[0]->target, heads);
  const Sizes table{rows.value_or(buckets), heads};
  const Table t = table_of(e, lines, dtype, table, {queries, keys});
  ValueId made = e.call("aten::embedding", {t.rows, t.numbers}, {}, e.name_of(id));
  made = e.call("aten::permute", {{made}, list_of({2, 0, 1})});
  made = e.call("aten::view", {{made}, list_of(sizes)});
  return {made, rows ? Bytes() : bytes_of(dtype, count_of(table))};
}

}  // namespace

MadeOfLines make_of_lines(Emit& e, GraphValueId id, const Lines& lines, bool in_place) {
  const std::string name = e.name_of(id);
  const std::string_view op = op_of_name(name);
  if (op == "cat") return joined(e, id, lines);
  if (op == "mul") return weight_normed(e, id, lines);
  if (op == "view" || op == "reshape") return standardized(e, id, lines);
  if (op != "index" && lines.size() == 1) return embedded(e, id, lines);
  const bool by_column = op == "index" && lines.size() == 2 && e.inferred[id].sizes->size() == 3;
  return by_column ? columns(e, id, lines) : looked_up(e, id, lines, in_place && op == "permute");
}

}  // namespace memplan::onnx_format
