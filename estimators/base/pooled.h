// Memory for small objects that come and go by the hundred thousand.
#pragma once

#include <cstddef>
#include <new>

namespace memplan {

/// Base of a class whose freed objects are kept for the next ones of the same class: a run on paper makes and drops its
/// tensors and nodes in turn, and a general allocator would spend a third of the time on merging their pieces. Per
/// thread; the pieces stay with the thread until it ends.
template <class T>
struct Pooled {
  static void* operator new(std::size_t size) {
    if (size != sizeof(T) || !free_list()) return ::operator new(size);
    Piece* piece = free_list();
    free_list() = piece->next;
    return piece;
  }
  static void operator delete(void* memory, std::size_t size) {
    if (size != sizeof(T)) {
      ::operator delete(memory);
      return;
    }
    auto* piece = new (memory) Piece{free_list()};
    free_list() = piece;
  }

 private:
  struct Piece {
    Piece* next;
  };
  static Piece*& free_list() {
    thread_local Piece* head = nullptr;
    return head;
  }
};

}  // namespace memplan
