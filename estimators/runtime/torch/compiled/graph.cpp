#include "estimators/runtime/torch/compiled/graph.h"

#include <algorithm>
#include <unordered_map>

#include "estimators/base/error.h"

namespace memplan::compiled {

namespace {

// Pointwise ops are recomputable as torch.Tag.pointwise says, others where get_default_op_list has them.
constexpr OpRow op_rows[] = {
    {"input", Kind::input, false},
    {"getitem", Kind::piece, true},
    // views; those that the partitioner does not know as views count as computed
    {"view", Kind::view, true},
    {"permute", Kind::view, true},
    {"expand", Kind::view, true},
    {"slice", Kind::view, true},
    {"select", Kind::view, true},
    {"squeeze", Kind::view, true},
    {"unsqueeze", Kind::view, true},
    {"as_strided", Kind::view, true},
    {"split", Kind::view, true},
    {"diagonal", Kind::view, false},
    {"unfold", Kind::view, false},
    {"unbind", Kind::view, false},
    {"view_as_complex", Kind::view, false},
    {"view_as_real", Kind::view, false},
    // reductions
    {"sum", Kind::reduction, true},
    {"mean", Kind::reduction, true},
    {"amax", Kind::reduction, true},
    {"amin", Kind::reduction, false},
    {"max", Kind::reduction, true},
    {"min", Kind::reduction, true},
    {"var", Kind::reduction, true},
    {"var_mean", Kind::reduction, true},
    {"any", Kind::reduction, true},
    {"argmax", Kind::reduction, true},
    {"argmin", Kind::reduction, false},
    {"prod", Kind::reduction, false},
    {"all", Kind::reduction, false},
    {"cumsum", Kind::reduction, false},
    {"_low_memory_max_pool_with_offsets", Kind::reduction, false},
    {"avg_pool2d", Kind::pointwise, false},
    {"avg_pool2d_backward", Kind::pointwise, false},
    {"_adaptive_avg_pool2d", Kind::kernel, false},
    {"_adaptive_avg_pool2d_backward", Kind::kernel, false},
    {"max_pool2d_with_indices_backward", Kind::pointwise, false},
    // computed where they are read, but not twice
    {"embedding", Kind::pointwise, false},
    {"cat", Kind::pointwise, false},
    {"constant_pad_nd", Kind::pointwise, false},
    {"slice_scatter", Kind::pointwise, false},
    {"select_scatter", Kind::pointwise, false},
    {"flip", Kind::pointwise, false},
    {"scalar_tensor", Kind::pointwise, true},
    {"fma", Kind::pointwise, false},
    {"repeat", Kind::pointwise, false},
    {"inductor_seeds", Kind::kernel, false},
    {"inductor_lookup_seed", Kind::pointwise, false},
    {"inductor_random", Kind::random, false},
    // kernels
    {"mm", Kind::kernel, false, true},
    {"addmm", Kind::kernel, false, true},
    {"bmm", Kind::kernel, false, true},
    {"convolution", Kind::kernel, false, true},
    {"convolution_backward", Kind::kernel, false, true},
    {"_scaled_dot_product_efficient_attention", Kind::kernel, false, true},
    {"_scaled_dot_product_efficient_attention_backward", Kind::kernel, false},
    {"_scaled_dot_product_flash_attention", Kind::kernel, false, true},
    {"_scaled_dot_product_flash_attention_backward", Kind::kernel, false},
    {"_scaled_dot_product_cudnn_attention", Kind::kernel, false},
    {"_scaled_dot_product_cudnn_attention_backward", Kind::kernel, false},
    {"index_put", Kind::reduction, false},
    {"scatter", Kind::reduction, false},
    {"scatter_add", Kind::reduction, false},
    {"sort", Kind::kernel, false},
    {"topk", Kind::kernel, false},
    {"guessed", Kind::kernel, false},
    {"to_layout", Kind::reduction, false},
    {"copy_", Kind::effect, false},
};

/// Whatever is pointwise and recomputable needs no row of its own: its name is all that tells it from others.
constexpr OpRow pointwise_rows[] = {
    {"add"},
    {"sub"},
    {"mul"},
    {"div"},
    {"neg"},
    {"exp"},
    {"expm1"},
    {"log"},
    {"log1p"},
    {"log2"},
    {"sqrt"},
    {"rsqrt"},
    {"reciprocal"},
    {"tanh"},
    {"sigmoid"},
    {"relu"},
    {"erf"},
    {"sin"},
    {"cos"},
    {"pow"},
    {"abs"},
    {"sign"},
    {"sgn"},
    {"where"},
    {"gt"},
    {"ge"},
    {"lt"},
    {"le"},
    {"eq"},
    {"ne"},
    {"logical_not"},
    {"logical_and"},
    {"logical_or"},
    {"bitwise_and"},
    {"bitwise_or"},
    {"bitwise_not"},
    {"bitwise_xor"},
    {"minimum"},
    {"maximum"},
    {"clamp_min"},
    {"clamp_max"},
    {"convert_element_type"},
    {"clone"},
    {"full"},
    {"iota"},
    {"index"},
    {"gather"},
    {"isnan"},
    {"isinf"},
    {"floor"},
    {"ceil"},
    {"round"},
    {"trunc"},
    {"remainder"},
    {"fmod"},
    {"lerp"},
    {"atan2"},
    {"atan"},
    {"floor_divide"},
    {"_low_memory_max_pool_offsets_to_indices"},
    {"guessed_pointwise"},
    {"scalar"},
    {"empty"},
};

std::unordered_map<std::string_view, const OpRow*> indexed_ops() {
  std::unordered_map<std::string_view, const OpRow*> index;
  for (const OpRow& row : op_rows) index.emplace(row.name, &row);
  for (const OpRow& row : pointwise_rows) index.emplace(row.name, &row);
  return index;
}

}  // namespace

const OpRow& op_row(std::string_view name) {
  static const auto index = indexed_ops();
  const auto found = index.find(name);
  if (found == index.end()) fail(ErrorKind::internal, "no op of joint graphs is called " + std::string(name));
  return *found->second;
}

std::vector<std::vector<NodeId>> readers_of(const JointGraph& graph) {
  std::vector<std::vector<NodeId>> readers(graph.nodes.size());
  for (NodeId id = 0; static_cast<std::size_t>(id) < graph.nodes.size(); ++id)
    for (const NodeId in : graph.at(id).inputs) {
      auto& of = readers[static_cast<std::size_t>(in)];
      if (of.empty() || of.back() != id) of.push_back(id);
    }
  return readers;
}

}  // namespace memplan::compiled
