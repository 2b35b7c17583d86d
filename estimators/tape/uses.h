// The values that calls read, lists included: one walk for all who ask or replace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan {

/// Calls `f(ValueId)` for every value in an argument, in order.
template <class F>
void for_each_value(const Arg& arg, F&& f) {
  if (const auto* id = std::get_if<ValueId>(&arg.value))
    f(*id);
  else if (const auto* list = std::get_if<Arg::List>(&arg.value))
    for (const Arg& item : *list) for_each_value(item, f);
}

/// The same for all arguments of a call, positional ones first.
template <class F>
void for_each_value(const Call& call, F&& f) {
  for (const Arg& arg : call.args) for_each_value(arg, f);
  for (const auto& [name, arg] : call.kwargs) for_each_value(arg, f);
}

/// Whether one of the call's arguments is the value.
inline bool reads_value(const Call& call, ValueId value) {
  bool found = false;
  for_each_value(call, [&](ValueId id) { found = found || id == value; });
  return found;
}

/// The value that is a call's argument; invalid where there is none, or something else.
inline ValueId value_at(const Call& call, std::size_t i) {
  const auto* id = i < call.args.size() ? std::get_if<ValueId>(&call.args[i].value) : nullptr;
  return id ? *id : ValueId{};
}

/// `weight` of `layers.0.weight`.
inline std::string_view leaf_of(std::string_view name) { return name.substr(name.rfind('.') + 1); }

/// The parameter or buffer of that name, or null.
inline const TapeValue* stored_tensor(const Tape& tape, std::string_view name) {
  for (const auto* list : {&tape.parameters, &tape.buffers})
    for (const ValueId id : *list)
      if (const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)]; v.name == name) return &v;
  return nullptr;
}

/// How often calls and the tape's outputs read each value.
inline std::vector<int> count_reads(const Tape& tape) {
  std::vector<int> reads(tape.values.size(), 0);
  const auto count = [&](ValueId id) {
    if (id.valid()) ++reads[static_cast<std::size_t>(id.index)];
  };
  for (const Call& call : tape.calls) for_each_value(call, count);
  for (ValueId id : tape.outputs) count(id);
  return reads;
}

/// By value: the call that makes it; -1: none does.
inline std::vector<std::int32_t> makers_of(const Tape& tape) {
  std::vector<std::int32_t> maker(tape.values.size(), -1);
  for (std::size_t i = 0; i < tape.calls.size(); ++i)
    for (const ValueId id : tape.calls[i].outputs)
      if (id.valid()) maker[static_cast<std::size_t>(id.index)] = static_cast<std::int32_t>(i);
  return maker;
}

/// By value: the last call that reads it; as many as the tape has where the program returns it, -1 where nothing reads
/// it.
inline std::vector<std::int32_t> last_readers(const Tape& tape) {
  std::vector<std::int32_t> last(tape.values.size(), -1);
  for (std::size_t i = 0; i < tape.calls.size(); ++i)
    for_each_value(tape.calls[i],
                   [&](ValueId id) { last[static_cast<std::size_t>(id.index)] = static_cast<std::int32_t>(i); });
  for (const ValueId id : tape.outputs)
    if (id.valid()) last[static_cast<std::size_t>(id.index)] = static_cast<std::int32_t>(tape.calls.size());
  return last;
}

/// Puts the Arg that `f(ValueId)` returns in the place of every value.
template <class F>
void replace_values(Arg& arg, F&& f) {
  if (const auto* id = std::get_if<ValueId>(&arg.value))
    arg = f(*id);
  else if (auto* list = std::get_if<Arg::List>(&arg.value))
    for (Arg& item : *list) replace_values(item, f);
}

template <class F>
void replace_values(Call& call, F&& f) {
  for (Arg& arg : call.args) replace_values(arg, f);
  for (auto& [name, arg] : call.kwargs) replace_values(arg, f);
}

}  // namespace memplan
