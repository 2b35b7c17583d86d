// A vector whose elements are found by the ids that refer to them, so that no cast stands at every use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace memplan {

/// An id of the tape or the graph: a struct with an `index`.
template <class Id>
concept TypedId = requires(Id id) {
  id.index;
};

/// std::vector that may also be indexed by a typed id or by the signed numbers that ids are. Like std::vector, it does
/// not look whether the element exists: readers check what they read (tape/check.h).
template <class T>
class Indexed : public std::vector<T> {
 public:
  using std::vector<T>::vector;
  using std::vector<T>::operator[];

  T& operator[](std::int32_t i) { return std::vector<T>::operator[](static_cast<std::size_t>(i)); }
  const T& operator[](std::int32_t i) const { return std::vector<T>::operator[](static_cast<std::size_t>(i)); }
  T& operator[](std::int64_t i) { return std::vector<T>::operator[](static_cast<std::size_t>(i)); }
  const T& operator[](std::int64_t i) const { return std::vector<T>::operator[](static_cast<std::size_t>(i)); }
  template <TypedId Id>
  T& operator[](Id id) {
    return std::vector<T>::operator[](static_cast<std::size_t>(id.index));
  }
  template <TypedId Id>
  const T& operator[](Id id) const {
    return std::vector<T>::operator[](static_cast<std::size_t>(id.index));
  }
};

}  // namespace memplan
