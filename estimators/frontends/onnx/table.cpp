#include "estimators/frontends/onnx/table.h"

#include <string>
#include <unordered_map>

namespace memplan::onnx_format {

const OpRow* find_op(const GraphNode& node) {
  static const std::unordered_map<std::string_view, const OpRow*> table = [] {
    std::unordered_map<std::string_view, const OpRow*> t;
    for (const Rows& family :
         {elementwise_rows(), unary_rows(), view_rows(), slice_rows(), window_rows(), shape_rows(), product_rows(),
          layer_rows(), reduction_rows(), indexing_rows(), recurrent_rows(), attention_rows(), loss_rows()})
      for (const OpRow& row : family) t.emplace(row.op, &row);
    return t;
  }();
  const auto it = node.domain.empty() ? table.find(node.op_type) : table.find(node.domain + "::" + node.op_type);
  return it == table.end() ? nullptr : it->second;
}

}  // namespace memplan::onnx_format
