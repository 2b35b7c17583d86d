#include "estimators/restore/casts.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>

#include "estimators/facts/libraries.h"
#include "estimators/restore/caller_argument.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

bool is_value(const Arg& a, ValueId id) {
  auto* v = std::get_if<ValueId>(&a.value);
  return v && *v == id;
}

void replace(Call& c, ValueId from, ValueId to) {
  replace_values(c, [&](ValueId id) { return Arg{id == from ? to : id}; });
}

enum class Rule : std::uint8_t { none, rms_norm, t5_norm, rotary, softmax, to_weight, noise, wide, like_sum };

/// What `detail` of the fact "casts" means (data/libraries/modules.json).
Rule rule_named(std::string_view detail) {
  static constexpr std::pair<std::string_view, Rule> names[] = {
      {"rms_norm", Rule::rms_norm}, {"t5_norm", Rule::t5_norm},     {"rotary", Rule::rotary},
      {"softmax", Rule::softmax},   {"to_weight", Rule::to_weight}, {"noise", Rule::noise},
      {"wide", Rule::wide},         {"like_sum", Rule::like_sum}};
  for (const auto& [name, rule] : names)
    if (name == detail) return rule;
  return Rule::none;
}

Rule rule_of(const Tape& tape, const Scope& s) {
  const LibraryFact* fact = nullptr;
  if (s.parent >= 0)
    fact = fact_of_child("casts", tape.scopes[static_cast<std::size_t>(s.parent)].module_class, s.path);
  if (!fact) fact = fact_of_class("casts", s.module_class);
  const Rule rule = fact ? rule_named(fact->detail) : Rule::none;
  // Norms of that name differ in where they cast; a file that says so is right.
  return (rule == Rule::rms_norm || rule == Rule::wide || rule == Rule::like_sum) && tape.exported.keeps_casts
             ? Rule::none
             : rule;
}

class Pass {
 public:
  explicit Pass(Tape& tape) : tape_(tape) {}

  void run() {
    std::vector<Rule> rules;
    for (const Scope& s : tape_.scopes) rules.push_back(rule_of(tape_, s));
    if (std::all_of(rules.begin(), rules.end(), [](Rule r) { return r == Rule::none; })) return;
    std::vector<Call> calls = std::exchange(tape_.calls, {});
    for (std::size_t i = 0; i < calls.size();) {
      // The calls of one pass through a module stand together.
      std::size_t end = i + 1;
      while (end < calls.size() && calls[end].scope == calls[i].scope) ++end;
      const Rule rule = calls[i].scope >= 0 ? rules[calls[i].scope] : Rule::none;
      std::vector<Call> body(std::make_move_iterator(calls.begin() + static_cast<std::ptrdiff_t>(i)),
                             std::make_move_iterator(calls.begin() + static_cast<std::ptrdiff_t>(end)));
      switch (shows_itself(rule, body) ? Rule::none : rule) {
        case Rule::none:
          put(std::move(body));
          break;
        case Rule::rms_norm:
          norm(std::move(body), true);
          break;
        case Rule::t5_norm:
          norm(std::move(body), false);
          break;
        case Rule::rotary:
          rotary(std::move(body));
          break;
        case Rule::softmax:
          softmax(std::move(body));
          break;
        case Rule::to_weight:
          to_weight(std::move(body));
          break;
        case Rule::noise:
          noise(std::move(body));
          break;
        case Rule::like_sum:
          like_sum(std::move(body));
          break;
        case Rule::wide:
          wide(std::move(body));
          break;
      }
      i = end;
    }
    rename_later();
    if (count_ > 0)
      tape_.recovered.push_back({"aten::to.dtype", "casts of the module's class, absent from an fp32 export", count_,
                                 Evidence::told_by_name, About::cast});
  }

 private:
  /// A RotaryEmbedding of the model's own whose lines the file shows: no decorator has switched autocast off.
  bool shows_itself(Rule rule, const std::vector<Call>& body) const {
    const Scope& s = tape_.scopes[static_cast<std::size_t>(std::max(body.front().scope, 0))];
    return rule == Rule::rotary && !s.module_class.starts_with("transformers") &&
           std::ranges::none_of(body, &std::string::empty, &Call::source);
  }

  void put(std::vector<Call> body) {
    for (Call& c : body) tape_.calls.push_back(std::move(c));
  }

  ValueId cast(const Call& like, ValueId x, Arg to, const char* op) {
    TapeValue v;
    v.name = tape_.values[x.index].name + ".to";
    const ValueId out = tape_.add_value(std::move(v));
    Call c;
    c.op = op;
    c.args.push_back({x});
    if (!to.is_none()) c.args.push_back(std::move(to));
    c.outputs = {out};
    c.scope = like.scope;
    c.source = like.source;
    c.binding = like.binding;
    tape_.calls.push_back(std::move(c));
    ++count_;
    return out;
  }

  /// pow(x, 2) … mul(x, rsqrt) … mul(weight, ·)
  void norm(std::vector<Call> body, bool product_in_fp32) {
    ValueId x, wide, returned_like;
    const bool cast_at_end = product_in_fp32 && casts_result(body.back().source);
    for (Call& c : body) {
      if (c.op == "aten::pow.Tensor_Scalar" && !x.valid()) {
        x = value_at(c, 0);
        if (x.valid()) {
          wide = cast(c, x, {DType::float32}, "aten::to.dtype");
          // A statement of its own, whose name the product's statement binds again; or an argument: _norm(x.float()).
          if (product_in_fp32 && c.binding >= 0 && c.source.find(".float()") == std::string::npos)
            tape_.calls.back().binding = named("hidden_states", widened_);
        }
        replace(c, x, wide);
      } else if (x.valid() && product_in_fp32) {
        replace(c, x, wide);
      }
      if (c.source.find("weight.float()") != std::string::npos)
        if (const ValueId w = parameter_of(c); w.valid()) replace(c, w, cast(c, w, {DType::float32}, "aten::to.dtype"));
      const bool product =
          c.op == "aten::mul.Tensor" && x.valid() && (is_value(c.args.at(0), wide) || is_value(c.args.at(0), x));
      tape_.calls.push_back(c);
      if (!product) continue;
      if (cast_at_end) {
        returned_like = x;
        x = ValueId{};
        continue;
      }
      // The weight is the other operand of the product that follows.
      const Call& last = body.back();
      ValueId like = x;
      if (!product_in_fp32)
        for (std::size_t i = 0; i < 2; ++i)
          if (ValueId w = value_at(last, i); w.valid() && tape_.values[w.index].kind == ValueKind::parameter) like = w;
      // return self.weight * hidden_states.to(input_dtype): the name of the fp32 product lives until then.
      const ValueId narrow = cast(product_in_fp32 ? last : c, c.outputs.at(0), {like}, "aten::type_as");
      for (Call& later : body)
        if (&later > &c) replace(later, c.outputs[0], narrow);
      renamed_[c.outputs[0].index] = narrow;
      x = ValueId{};
    }
    if (!returned_like.valid()) return;
    Call last = body.back();
    if (last.source.find("return") == std::string::npos) {  // `return output.type_as(x)` is a line of its own
      if (returned_ < 0) returned_ = tape_.add_binding({});
      last.binding = returned_;
    }
    renamed_[last.outputs.at(0).index] = cast(last, last.outputs[0], {returned_like}, "aten::type_as");
  }

  /// A norm that multiplies by its weight in fp32 and casts what it returns, as those of OLMo 2 and Gemma do.
  static bool casts_result(std::string_view product) {
    return product.find("(self.weight * hidden_states).to(") != product.npos ||
           (product.find("weight.float()") != product.npos && product.find(".to(") == product.npos);
  }

  ValueId parameter_of(const Call& c) const {
    for (const Arg& a : c.args)
      if (const auto* id = std::get_if<ValueId>(&a.value); id && tape_.values[id->index].kind == ValueKind::parameter)
        return *id;
    return {};
  }

  /// The statements of RotaryEmbedding.forward, which its decorators keep out of the exporter's stack traces:
  ///   freqs = …; emb = torch.cat((freqs, freqs), dim=-1); cos = emb.cos() * scaling; sin = emb.sin() * scaling
  void bind_rotary_names(std::vector<Call>& body) {
    ValueId freqs;
    for (const Call& c : body)
      if (c.op == "aten::cat" && c.binding < 0 && !c.args.empty())
        if (auto* list = std::get_if<Arg::List>(&c.args[0].value);
            list && list->size() == 2 && std::holds_alternative<ValueId>((*list)[0].value))
          if (is_value((*list)[1], std::get<ValueId>((*list)[0].value))) freqs = std::get<ValueId>((*list)[0].value);
    if (!freqs.valid()) return;
    std::int32_t binding = named("freqs", freqs_);
    for (Call& c : body) {
      if (c.op == "aten::cat") binding = named("emb", emb_);
      if (c.op == "aten::cos") binding = named("cos", cos_);
      if (c.op == "aten::sin") binding = named("sin", sin_);
      if (c.binding < 0) c.binding = binding;
    }
  }

  /// The statement "name = …", the same for all modules of the tape; `known` keeps it.
  std::int32_t named(const char* name, std::int32_t& known) {
    if (known < 0) known = tape_.add_binding({name});
    return known;
  }

  void rotary(std::vector<Call> body) {
    bind_rotary_names(body);
    Scope& scope = tape_.scopes[static_cast<std::size_t>(body.front().scope)];
    if (scope.binding < 0) scope.binding = named("position_embeddings", embeddings_);
    // inv_freq.float() on the way in, cos.to(x.dtype) and sin.to(x.dtype) on the way out, autocast off between.
    std::vector<ValueId> results;
    for (Call& c : body) {
      c.no_autocast = true;
      for (Arg& a : c.args)
        if (auto* v = std::get_if<ValueId>(&a.value); v && tape_.values[v->index].kind == ValueKind::buffer) {
          const bool matmul = c.op == "aten::matmul" || c.op == "aten::bmm";
          if (!matmul && c.op != "aten::mul.Tensor") continue;
          a.value = cast(c, *v, {DType::float32}, "aten::to.dtype");
        }
      tape_.calls.push_back(c);
      const bool result =
          (c.op == "aten::mul.Tensor" || c.op == "aten::cos" || c.op == "aten::sin") && !used_in(body, c);
      if (result) results.push_back(c.outputs.at(0));
    }
    Call last = body.back();
    if (returned_ < 0) returned_ = tape_.add_binding({});  // return cos.to(dtype=x.dtype), sin.to(dtype=x.dtype)
    last.binding = returned_;
    const ValueId like = first_argument(tape_, scope);
    for (const ValueId& r : results)
      renamed_[r.index] =
          like.valid() ? cast(last, r, {like}, "aten::type_as") : cast(last, r, {}, "memplan::to_default_dtype");
  }

  void softmax(std::vector<Call> body) {
    ValueId heads;
    for (Call& c : body) {
      if (c.op == "aten::transpose.int") heads = c.outputs.at(0);
      // position_bias = torch.zeros(…, dtype=query_states.dtype)
      if (c.op == "aten::zeros" && heads.valid())
        for (auto& [name, arg] : c.kwargs)
          if (name == "dtype") arg.value = heads;
      if (c.op != "aten::softmax.int") {
        for (auto& [from, to] : renamed_) replace(c, ValueId{from}, to);
        tape_.calls.push_back(std::move(c));
        continue;
      }
      const ValueId scores = value_at(c, 0);
      const ValueId wide = cast(c, scores, {DType::float32}, "aten::to.dtype");
      replace(c, scores, wide);
      tape_.calls.push_back(c);
      renamed_[c.outputs.at(0).index] = cast(c, c.outputs.at(0), {scores}, "aten::type_as");
    }
  }

  /// hidden_states = hidden_states.to(self.wo.weight.dtype) in the frame that calls wo.
  void to_weight(std::vector<Call> body) {
    for (Call& c : body) {
      if (c.op == "aten::linear" && c.args.size() > 1)
        if (const ValueId x = value_at(c, 0), w = value_at(c, 1); x.valid() && w.valid()) {
          Call caller = c;
          caller.scope = tape_.scopes[static_cast<std::size_t>(c.scope)].parent;
          caller.source.clear();
          caller.binding = named("hidden_states", narrowed_);
          replace(c, x, cast(caller, x, {w}, "aten::type_as"));
        }
      tape_.calls.push_back(std::move(c));
    }
  }

  /// noise = torch.empty(size, dtype=input.dtype), whose product with the input follows. ONNX nodes have random numbers
  /// instead, which are compared with the probability and converted.
  void noise(std::vector<Call> body) {
    ValueId input;
    for (const Call& c : body)
      if (c.op == "aten::mul.Tensor") input = value_at(c, 0);
    for (Call& c : body) {
      if (!input.valid()) break;
      if (c.op == "aten::empty.memory_format" || c.op == "aten::full" || c.op == "aten::rand")
        for (auto& [name, arg] : c.kwargs)
          if (name == "dtype") arg.value = input;
      if (c.op == "memplan::to_default_dtype") {
        c.op = "aten::type_as";
        c.args = {c.args[0], {input}};
        c.kwargs.clear();
      }
    }
    put(std::move(body));
  }

  /// x + self.pos_embed.to(x.dtype)
  void like_sum(std::vector<Call> body) {
    for (Call& c : body) {
      const ValueId x = value_at(c, 0), w = value_at(c, 1);
      if (c.op == "aten::add.Tensor" && x.valid() && w.valid() && tape_.values[w.index].kind == ValueKind::parameter)
        replace(c, w, cast(c, w, {x}, "aten::type_as"));
      tape_.calls.push_back(std::move(c));
    }
  }

  /// norm(x.float(), …, weight.float(), …).to(x.dtype)
  void wide(std::vector<Call> body) {
    ValueId x, widened;
    for (Call& c : body) {
      for (const ValueId id : {value_at(c, 0)})
        if (!x.valid() && id.valid() && tape_.values[id.index].kind != ValueKind::parameter) {
          x = id;
          widened = cast(c, x, {DType::float32}, "aten::to.dtype");
        }
      replace(c, x, widened);
      if (const ValueId w = parameter_of(c); w.valid()) replace(c, w, cast(c, w, {DType::float32}, "aten::to.dtype"));
      tape_.calls.push_back(std::move(c));
    }
    const Call last = tape_.calls.back();
    if (x.valid() && !last.outputs.empty())
      renamed_[last.outputs[0].index] = cast(last, last.outputs[0], {x}, "aten::type_as");
  }

  static bool used_in(const std::vector<Call>& body, const Call& producer) {
    const ValueId made = producer.outputs.at(0);
    for (const Call& c : body)
      for (const Arg& a : c.args) {
        if (is_value(a, made)) return true;
        if (auto* list = std::get_if<Arg::List>(&a.value))
          if (std::any_of(list->begin(), list->end(), [&](const Arg& x) { return is_value(x, made); })) return true;
      }
    return false;
  }

  /// Uses outside of the module take the cast result.
  void rename_later() {
    for (Call& c : tape_.calls) {
      if (c.op == "aten::type_as" || c.op == "memplan::to_default_dtype") continue;
      replace_values(c, [&](ValueId id) {
        const auto it = renamed_.find(id.index);
        return Arg{it == renamed_.end() ? id : it->second};
      });
    }
    for (ValueId& out : tape_.outputs)
      if (auto it = renamed_.find(out.index); it != renamed_.end()) out = it->second;
  }

  Tape& tape_;
  std::unordered_map<std::int32_t, ValueId> renamed_;
  std::int64_t count_ = 0;
  // Statements of modules whose lines are not in the file.
  std::int32_t widened_ = -1, narrowed_ = -1, freqs_ = -1, emb_ = -1, cos_ = -1, sin_ = -1, embeddings_ = -1,
               returned_ = -1;
};

}  // namespace

void restore_casts(Tape& tape) { Pass(tape).run(); }

bool has_restored_casts(const Tape& tape, std::int32_t scope) {
  return scope >= 0 && rule_of(tape, tape.scopes[static_cast<std::size_t>(scope)]) != Rule::none;
}

void follow_model_dtype(Tape& tape, Precision precision) {
  const DType dtype = precision == Precision::bf16   ? DType::bfloat16
                      : precision == Precision::fp16 ? DType::float16
                                                     : DType::float32;
  if (dtype == DType::float32) return;
  static const std::set<std::string_view> factories{
      "empty",         "zeros",     "ones",      "full",     "rand",     "randn",
      "scalar_tensor", "new_empty", "new_zeros", "new_ones", "new_full", "empty_like",
      "zeros_like",    "ones_like", "full_like", "arange",   "eye"};
  std::int64_t count = 0;
  for (Call& call : tape.calls) {
    if (call.op.rfind("aten::", 0) != 0 || !factories.count(std::string_view(call.op).substr(6, call.op.find('.') - 6)))
      continue;
    if (call.source.find("float32") != std::string::npos || call.source.find(".float()") != std::string::npos ||
        call.no_autocast)
      continue;
    for (auto& [name, arg] : call.kwargs)
      if (name == "dtype" && std::holds_alternative<DType>(arg.value) && std::get<DType>(arg.value) == DType::float32) {
        arg.value = dtype;
        ++count;
      }
  }
  if (count > 0)
    tape.recovered.push_back({"dtype of new tensors", "x.dtype, which the export wrote as float32", count,
                              Evidence::told_by_source_line, About::cast});
}

}  // namespace memplan
