// Memory for small objects that come and go by the hundred thousand.
#pragma once

#include <cstddef>
#include <new>

namespace memplan {

/// Base of a class whose freed objects are kept for the next ones of the same class: a run on paper makes and drops its
/// tensors and nodes in turn, and a general allocator would spend a third of the time on merging their pieces. Per
/// thread, which gives its pieces back when it ends. A piece may go back on another thread than it came from.
template <class T>
struct Pooled {
  static void* operator new(std::size_t size) {
    if (size != sizeof(T) || !free_list()) return ::operator new(size);
    Piece* piece = free_list();
    free_list() = piece->next;
    return piece;
  }
  static void operator delete(void* memory, std::size_t size) {
    if (size != sizeof(T) || ended()) {
      ::operator delete(memory);
      return;
    }
    thread_local AtEnd at_end;
    auto* piece = new (memory) Piece{free_list()};
    free_list() = piece;
  }
  /// What this thread keeps goes back: for where many more were made than any later run makes.
  static void give_back() {
    while (Piece* piece = free_list()) {
      free_list() = piece->next;
      ::operator delete(piece);
    }
  }

 private:
  struct Piece {
    Piece* next;
  };
  struct AtEnd {
    ~AtEnd() {
      give_back();
      ended() = true;
    }
  };
  static bool& ended() {
    thread_local bool is = false;
    return is;
  }
  static Piece*& free_list() {
    thread_local Piece* head = nullptr;
    return head;
  }
};

}  // namespace memplan
