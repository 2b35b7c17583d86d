// data/libraries/modules.json and its reader.
#include "estimators/facts/libraries.h"

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

using namespace memplan;

TEST_CASE("every row about a library says what of, which fact, and where it was read") {
  std::ifstream in(std::string(MEMPLAN_SOURCE_DIR) + "/data/libraries/modules.json");
  const auto json = nlohmann::json::parse(in);
  for (const auto& row : json["rows"]) {
    CAPTURE(row.dump());
    CHECK(json["facts"].contains(row.at("fact")));
    CHECK(row.contains("class") != row.contains("function"));
    CHECK(row.contains("from"));
    CHECK(row.contains("to"));
    // "torch 2.11.0, torch/nn/modules/linear.py:53"
    CHECK(row.at("source").get<std::string>().starts_with(row.at("library").get<std::string>() + " "));
  }
}

TEST_CASE("the first row that holds of a class is found") {
  const LibraryFact* llama = fact_of_class("casts", "transformers.models.llama.modeling_llama.LlamaRMSNorm");
  REQUIRE(llama);
  CHECK(llama->detail == "rms_norm");
  CHECK(fact_of_class("casts", "torch.nn.modules.normalization.RMSNorm")->detail == "none");
  CHECK(fact_of_class("casts", "torch.nn.modules.linear.Linear") == nullptr);
  CHECK(fact_of_class("linear", "transformers.pytorch_utils.Conv1D")->detail == "transposed");
}

TEST_CASE("a fact about a child holds of that child, not of its owner") {
  const char* owner = "transformers.models.t5.modeling_t5.T5DenseActDense";
  REQUIRE(fact_of_child("casts", owner, "encoder.block.0.layer.1.DenseReluDense.wo"));
  CHECK(fact_of_child("casts", owner, "encoder.block.0.layer.1.DenseReluDense.wi") == nullptr);
  CHECK(fact_of_class("casts", owner) == nullptr);
}

TEST_CASE("functions are rows like classes") {
  const auto& masks = library_facts("masks_while_traced");
  REQUIRE(!masks.empty());
  CHECK(masks.front().function);
  CHECK(masks.front().library == "transformers");
}
