// What torch.export's strict mode leaves out of an archive's signature: tensors that no op reads.
#include <doctest/doctest.h>

#include "estimators/frontends/torch_export/stored_weights.h"
#include "estimators/restore/passes.h"

using namespace memplan;

namespace {

torch_export::InputSpec weight(const char* target, std::int32_t name) {
  return {torch_export::InputKind::parameter, name, target, {}};
}

constexpr const char* config = R"({"config": {
  "a.weight": {"path_name": "weight_0", "is_param": true, "tensor_meta": {"dtype": 7, "sizes": [{"as_int": 4}]}},
  "unread.weight": {"path_name": "weight_1", "is_param": true,
    "tensor_meta": {"dtype": 7, "sizes": [{"as_int": 64}, {"as_int": 32}]}},
  "b.weight": {"path_name": "weight_2", "is_param": true, "tensor_meta": {"dtype": 7, "sizes": [{"as_int": 8}]}}}})";

Tape rotary(bool strict) {
  Tape tape;
  tape.exported.strict = strict;
  Scope s;
  s.path = "rotary_emb";
  s.module_class = "transformers.models.llama.modeling_llama.LlamaRotaryEmbedding";
  tape.scopes.push_back(s);
  TapeValue v;
  v.name = "rotary_emb.inv_freq";
  v.kind = ValueKind::buffer;
  v.dtype = DType::float32;
  v.sizes = {32};
  tape.buffers.push_back(tape.add_value(v));
  return tape;
}

}  // namespace

TEST_CASE("weights that the signature lacks come from the archive's table, in the order of the state_dict") {
  torch_export::Program p;
  p.names.resize(2);
  p.inputs = {weight("b.weight", 0), weight("a.weight", 1)};
  read_stored_weights(config, "m.pt2", p);
  REQUIRE(p.inputs.size() == 3);
  CHECK(p.inputs[0].target == "a.weight");
  CHECK(p.inputs[1].target == "unread.weight");
  CHECK(p.inputs[2].target == "b.weight");
  const auto& meta = p.names[static_cast<std::size_t>(p.inputs[1].name)].tensor;
  REQUIRE(meta);
  REQUIRE(meta->sizes.size() == 2);
  CHECK(meta->sizes[0].size == 64);
}

TEST_CASE("a signature that lists all weights stays as it is") {
  torch_export::Program p;
  p.names.resize(3);
  p.inputs = {weight("a.weight", 2), weight("unread.weight", 1), weight("b.weight", 0)};
  read_stored_weights(config, "m.pt2", p);
  REQUIRE(p.inputs.size() == 3);
  CHECK(p.inputs[0].name == 2);
  CHECK(p.names.size() == 3);
}

// transformers 5.23, models/llama/modeling_llama.py:87
TEST_CASE("a strict file's rotary embedding has the buffer that no op reads, and a note says what may be missing") {
  Tape tape = rotary(true);
  add_unread_buffers(tape);
  REQUIRE(tape.buffers.size() == 2);
  CHECK(tape.values[static_cast<std::size_t>(tape.buffers[1].index)].name == "rotary_emb.original_inv_freq");
  REQUIRE(tape.notes.size() == 1);
  CHECK(tape.notes[0].code == "MP004");
  Tape other = rotary(false);
  add_unread_buffers(other);
  CHECK(other.buffers.size() == 1);
  CHECK(other.notes.empty());
}
