// Errors that people can act on: what happened, where, and what to do next.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>
#include <variant>

namespace memplan {

/// The class of an error decides the exit code of the command line (docs/cli.md, "Exit codes").
enum class ErrorKind {
  usage,     ///< bad value, unknown GPU, contradictory setup                      -> 2
  input,     ///< file missing, corrupt, hostile, or with dimensions left open    -> 3
  baseline,  ///< baseline missing or made for other assumptions                  -> 4
  internal,  ///< a defect in memplan                                             -> 70
};

struct Error {
  ErrorKind kind = ErrorKind::internal;
  std::string what;   ///< one sentence: what is wrong
  std::string where;  ///< file, node or field (setup/field.h) that it concerns; may be empty
  std::string hint;   ///< what to do next; may be empty
};

/// Thrown inside the library where a value cannot be produced; every function of pipeline.h
/// catches it and returns the Error in its Result, so it never crosses the library's border.
class Failure : public std::exception {
 public:
  explicit Failure(Error error) : error_(std::move(error)) {}
  const Error& error() const { return error_; }
  const char* what() const noexcept override { return error_.what.c_str(); }

 private:
  Error error_;
};

[[noreturn]] inline void fail(ErrorKind kind, std::string what, std::string where = {}, std::string hint = {}) {
  throw Failure({kind, std::move(what), std::move(where), std::move(hint)});
}
[[noreturn]] inline void fail_input(std::string what, std::string where = {}, std::string hint = {}) {
  fail(ErrorKind::input, std::move(what), std::move(where), std::move(hint));
}

/// A value or the reason why there is none (std::expected is C++23).
template <class T>
class Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() { return std::get<0>(state_); }
  const T& value() const { return std::get<0>(state_); }
  const Error& error() const { return std::get<1>(state_); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }

 private:
  std::variant<T, Error> state_;
};

/// Runs `body` and turns a Failure (or any other exception) into the Error of a Result.
template <class F>
auto catching(F&& body) -> Result<decltype(body())> {
  try {
    return body();
  } catch (const Failure& failure) {
    return failure.error();
  } catch (const std::bad_alloc&) {
    return Error{ErrorKind::input, "not enough host memory to process this model", {}, "try a smaller model"};
  } catch (const std::exception& exception) {
    return Error{ErrorKind::internal, exception.what(), {}, "please report this with the command and the model"};
  }
}

}  // namespace memplan
