#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "estimators/facts/libraries.h"
#include "estimators/restore/passes.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

struct Substitution {
  std::size_t first = 0, last = 0;  ///< tril(system, -1) to the sum with eye()
  ValueId system, inverse;
};

/// torch.eye() as an ONNX exporter folds it.
bool is_square_constant(const Call& call) {
  if (call.op != "aten::empty.memory_format" || call.args.empty()) return false;
  const auto* sizes = std::get_if<Arg::List>(&call.args[0].value);
  if (!sizes || sizes->size() != 2) return false;
  const auto* rows = std::get_if<std::int64_t>(&sizes->front().value);
  const auto* columns = std::get_if<std::int64_t>(&sizes->back().value);
  return rows && columns && *rows == *columns;
}

/// Layers may share what an exporter's optimizer worked out.
bool is_constant(const Call& call) {
  bool reads = false;
  for_each_value(call, [&](ValueId) { reads = true; });
  return !reads && call.outputs.size() == 1;
}

bool is_identity(const Call& call) { return call.op == "aten::eye" || is_square_constant(call); }

/// The strictly lower triangle is turned into the inverse row by row, and the identity is added at the end.
/// `identities` are the values before that may be one.
std::optional<Substitution> substitution_at(const Tape& tape, std::size_t first, std::set<std::int32_t> identities) {
  const Call& tril = tape.calls[first];
  const auto* diagonal = tril.args.size() > 1 ? std::get_if<std::int64_t>(&tril.args[1].value) : nullptr;
  if (tril.op != "aten::tril" || !diagonal || *diagonal != -1 || !fact_of_line("branches_while_traced", tril.source))
    return std::nullopt;
  Substitution s{first, first, value_at(tril, 0), {}};
  for (std::size_t i = first + 1; i < tape.calls.size() && !s.inverse.valid(); ++i) {
    const Call& call = tape.calls[i];
    if (call.scope != tril.scope || call.source != tril.source) return std::nullopt;
    if (is_identity(call)) identities.insert(call.outputs.at(0).index);
    if (call.op != "aten::add.Tensor") continue;
    for (std::size_t arg = 0; arg < 2; ++arg)
      if (const ValueId id = value_at(call, arg); id.valid() && identities.contains(id.index)) {
        s.last = i;
        s.inverse = call.outputs.at(0);
      }
  }
  if (!s.inverse.valid() || !s.system.valid()) return std::nullopt;
  // Of what the stretch makes only the inverse is read behind it, and only as the left operand of products.
  std::vector<bool> inside(tape.values.size(), false);
  for (std::size_t i = s.first; i <= s.last; ++i)
    for (ValueId id : tape.calls[i].outputs)
      if (id.valid() && !is_constant(tape.calls[i])) inside[static_cast<std::size_t>(id.index)] = true;
  for (std::size_t i = s.last + 1; i < tape.calls.size(); ++i) {
    const Call& call = tape.calls[i];
    bool other = false;
    for_each_value(call, [&](ValueId id) { other = other || inside[static_cast<std::size_t>(id.index)]; });
    if (other && (call.op != "aten::matmul" || value_at(call, 0) != s.inverse)) return std::nullopt;
  }
  return s;
}

/// The function works in fp32: `x.transpose(1, 2).to(torch.float32, memory_format=torch.contiguous_format)` of what it
/// is given, and the same back to the first argument's dtype at its end. An export in fp32 has neither.
class Widened {
 public:
  explicit Widened(Tape& tape) : tape_(tape) {}

  /// The calls of one line of one module, which the call at `inside` is one of.
  void run(std::size_t inside) {
    const auto& calls = tape_.calls;
    const auto same = [&](std::size_t i) {
      return calls[i].scope == calls[inside].scope && calls[i].source == calls[inside].source;
    };
    std::size_t first = inside, last = inside;
    while (first > 0 && same(first - 1)) --first;
    while (last + 1 < calls.size() && same(last + 1)) ++last;
    const ValueId query = value_at(calls[first], 0), result = calls[last].outputs.at(0);
    if (!query.valid() || calls[last].op != "aten::transpose.int") return;
    std::vector<Call> out;
    std::map<std::int32_t, ValueId> instead;
    bool turns = false, works = false;
    for (std::size_t i = first; i <= last; ++i) {
      Call call = calls[i];
      replace(call, instead);
      const bool turn = call.op == "aten::transpose.int";
      turns = turns || turn;
      works = works || (turns && !turn);
      out.push_back(call);
      if (turn && !works) instead[call.outputs[0].index] = cast(out, call, "aten::to.dtype", {DType::float32});
    }
    instead = {{result.index, cast(out, calls[last], "aten::to.other", {query})}};
    for (std::size_t i = last + 1; i < calls.size(); ++i) replace(tape_.calls[i], instead);
    for (ValueId& id : tape_.outputs)
      if (id == result) id = instead.at(result.index);
    const auto begin = tape_.calls.begin() + static_cast<std::ptrdiff_t>(first);
    const auto at = tape_.calls.erase(begin, begin + static_cast<std::ptrdiff_t>(last - first + 1));
    tape_.calls.insert(at, std::make_move_iterator(out.begin()), std::make_move_iterator(out.end()));
  }

 private:
  static void replace(Call& call, const std::map<std::int32_t, ValueId>& instead) {
    replace_values(call, [&](ValueId id) {
      const auto it = instead.find(id.index);
      return Arg{it == instead.end() ? id : it->second};
    });
  }

  ValueId cast(std::vector<Call>& out, const Call& of, const char* op, Arg to) {
    Call call;
    call.op = op;
    call.args = {{of.outputs[0]}, std::move(to), {false}, {false}, {std::string("contiguous_format")}};
    call.scope = of.scope, call.source = of.source, call.binding = of.binding;
    TapeValue v;
    v.name = tape_.values[static_cast<std::size_t>(of.outputs[0].index)].name + ".to";
    call.outputs = {tape_.add_value(std::move(v))};
    out.push_back(call);
    return call.outputs[0];
  }

  Tape& tape_;
};

}  // namespace

void recover_triangular_solves(Tape& tape) {
  std::int64_t count = 0;
  std::set<std::int32_t> identities;
  std::set<std::int32_t> constants;  // of the stretches
  std::vector<ValueId> systems;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    if (is_identity(tape.calls[i])) identities.insert(tape.calls[i].outputs.at(0).index);
    if (tape.calls[i].op != "aten::tril") continue;
    const auto s = substitution_at(tape, i, identities);
    if (!s) continue;
    const auto begin = tape.calls.begin() + static_cast<std::ptrdiff_t>(s->first);
    const auto end = tape.calls.begin() + static_cast<std::ptrdiff_t>(s->last) + 1;
    systems.push_back(s->system);
    for (auto call = begin; call != end; ++call) {
      if (is_constant(*call)) constants.insert(call->outputs[0].index);
      if (is_identity(*call)) identities.insert(call->outputs[0].index);
    }
    tape.calls.erase(std::stable_partition(begin, end, is_constant), end);
    for (Call& call : tape.calls)
      if (call.op == "aten::matmul" && value_at(call, 0) == s->inverse) {
        call.op = "aten::linalg_solve_triangular";
        call.args = {{s->system}, call.args.at(1), {false}, {true}, {true}};
        ++count;
      }
  }
  for (const Call& call : tape.calls) for_each_value(call, [&](ValueId id) { constants.erase(id.index); });
  std::erase_if(tape.calls,
                [&](const Call& call) { return is_constant(call) && constants.contains(call.outputs[0].index); });
  if (!tape.exported.keeps_casts)
    for (const ValueId system : systems) {
      const auto solve = std::ranges::find_if(tape.calls, [&](const Call& call) {
        return call.op == "aten::linalg_solve_triangular" && value_at(call, 0) == system;
      });
      if (solve != tape.calls.end()) Widened(tape).run(static_cast<std::size_t>(solve - tape.calls.begin()));
    }
  if (count > 0)
    tape.recovered.push_back({"aten::linalg_solve_triangular",
                              "the inverse that a library builds row by row while it is exported", count,
                              Evidence::told_by_source_line, About::branch});
}

}  // namespace memplan
