#include "estimators/measured/pickle.h"

#include "estimators/base/error.h"

namespace memplan {

class PickleReader {
 public:
  PickleReader(std::string_view bytes, const PickleLimits& limits) : in_(bytes), limits_(limits) {}

  Pickle run() {
    if (in_.size() > limits_.bytes) fail_input("the pickle is larger than memplan reads");
    // None, True and False are shared, as in Python.
    none_ = add(Pickle::Kind::none, 0);
    false_ = add(Pickle::Kind::boolean, 0);
    true_ = add(Pickle::Kind::boolean, 1);
    while (!done_) step(byte());
    return std::move(out_);
  }

 private:
  using Value = Pickle::Value;
  using Kind = Pickle::Kind;

  [[noreturn]] static void damaged() {
    fail_input("the pickle is damaged or cut off", {}, "write it again with torch.cuda.memory._dump_snapshot");
  }

  unsigned char byte() {
    if (at_ >= in_.size()) damaged();
    return static_cast<unsigned char>(in_[at_++]);
  }
  std::uint64_t number(int bytes) {
    std::uint64_t n = 0;
    for (int i = 0; i < bytes; ++i) n |= static_cast<std::uint64_t>(byte()) << (8 * i);
    return n;
  }
  std::string_view take(std::uint64_t size) {
    if (size > in_.size() - at_) damaged();
    const std::string_view out = in_.substr(at_, size);
    at_ += size;
    return out;
  }

  Value add(Kind kind, std::int64_t payload) {
    if (out_.nodes_.size() >= limits_.values) fail_input("the pickle holds more values than memplan reads");
    out_.nodes_.push_back({kind, payload});
    return static_cast<Value>(out_.nodes_.size() - 1);
  }
  Value add_container(Kind kind, std::vector<Value> items) {
    out_.containers_.push_back(std::move(items));
    return add(kind, static_cast<std::int64_t>(out_.containers_.size() - 1));
  }
  void push(Value v) { stack_.push_back(v); }
  void push_text(std::string_view text) {
    out_.texts_.emplace_back(text);
    push(add(Kind::text, static_cast<std::int64_t>(out_.texts_.size() - 1)));
  }
  void push_integer(std::int64_t n) { push(add(Kind::integer, n)); }

  /// Little-endian two's complement of any length that fits 64 bits.
  void push_long(std::uint64_t size) {
    const std::string_view bytes = take(size);
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const auto b = static_cast<unsigned char>(bytes[i]);
      if (i < 8)
        n |= static_cast<std::uint64_t>(b) << (8 * i);
      else if (b != 0 && b != 0xff)
        fail_input("the pickle holds a number of more than 64 bits");
    }
    const bool negative = !bytes.empty() && (static_cast<unsigned char>(bytes.back()) & 0x80);
    if (negative && bytes.size() < 8) n |= ~std::uint64_t{0} << (8 * bytes.size());
    push_integer(static_cast<std::int64_t>(n));
  }

  Value pop() {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= floor) damaged();
    const Value v = stack_.back();
    stack_.pop_back();
    return v;
  }
  Value top() const {
    if (stack_.empty() || stack_.size() <= (marks_.empty() ? 0 : marks_.back())) damaged();
    return stack_.back();
  }
  std::vector<Value> pop_to_mark() {
    if (marks_.empty()) damaged();
    const std::size_t begin = marks_.back();
    marks_.pop_back();
    if (begin > stack_.size()) damaged();
    std::vector<Value> items(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin);
    return items;
  }
  void append(const std::vector<Value>& items, Kind kind) {
    const Value target = top();
    if (out_.kind(target) != kind || (kind == Kind::dict && items.size() % 2)) damaged();
    appended_ += items.size();
    // The same values may be appended over and over from the memo.
    if (appended_ > limits_.values) fail_input("the pickle holds more values than memplan reads");
    auto& list = out_.containers_[static_cast<std::size_t>(out_.nodes_[target].payload)];
    list.insert(list.end(), items.begin(), items.end());
  }
  void remember(std::uint64_t index) {
    // Every place of the memo takes a byte of the file to fill.
    if (index > in_.size()) damaged();
    if (memo_.size() <= index) memo_.resize(index + 1, unset);
    memo_[index] = top();
  }
  void recall(std::uint64_t index) {
    if (index >= memo_.size() || memo_[index] == unset) damaged();
    push(memo_[index]);
  }
  void push_tuple(std::size_t n) {
    std::vector<Value> items(n);
    for (std::size_t i = n; i-- > 0;) items[i] = pop();
    appended_ += n;
    push(add_container(Kind::tuple, std::move(items)));
  }

  void step(unsigned char op) {
    if (stack_.size() > limits_.values) fail_input("the pickle holds more values than memplan reads");
    switch (op) {
      case 0x80:
        if (byte() > 5) fail_input("the pickle is of a protocol that memplan does not know");
        return;
      case 0x95:
        number(8);
        return;  // FRAME: a hint for readers of streams
      case '.':
        out_.root_ = pop();
        done_ = true;
        return;
      case '(':
        if (marks_.size() >= limits_.depth) fail_input("the pickle is nested deeper than memplan reads");
        marks_.push_back(stack_.size());
        return;
      case '0':
        pop();
        return;
      case '1':
        pop_to_mark();
        return;
      case 'N':
        push(none_);
        return;
      case 0x88:
        push(true_);
        return;
      case 0x89:
        push(false_);
        return;
      case 'J':
        push_integer(static_cast<std::int32_t>(number(4)));
        return;
      case 'K':
        push_integer(static_cast<std::int64_t>(number(1)));
        return;
      case 'M':
        push_integer(static_cast<std::int64_t>(number(2)));
        return;
      case 0x8a:
        push_long(number(1));
        return;
      case 0x8b:
        push_long(number(4));
        return;
      case 'G': {
        const std::string_view raw = take(8);
        std::uint64_t bits = 0;
        for (char c : raw) bits = bits << 8 | static_cast<unsigned char>(c);
        push(add(Kind::real, static_cast<std::int64_t>(bits)));
        return;
      }
      case 0x8c:
      case 'C':
      case 'U':
        push_text(take(number(1)));
        return;
      case 'X':
      case 'B':
      case 'T':
        push_text(take(number(4)));
        return;
      case 0x8d:
      case 0x8e:
        push_text(take(number(8)));
        return;
      case ']':
        push(add_container(Kind::list, {}));
        return;
      case '}':
        push(add_container(Kind::dict, {}));
        return;
      case ')':
        push(add_container(Kind::tuple, {}));
        return;
      case 0x85:
        push_tuple(1);
        return;
      case 0x86:
        push_tuple(2);
        return;
      case 0x87:
        push_tuple(3);
        return;
      case 't':
        push_counted(Kind::tuple);
        return;
      case 'l':
        push_counted(Kind::list);
        return;
      case 'd':
        push_counted(Kind::dict);
        return;
      case 'a': {
        const Value v = pop();
        append({v}, Kind::list);
        return;
      }
      case 'e': {
        const auto items = pop_to_mark();
        append(items, Kind::list);
        return;
      }
      case 's': {
        const Value v = pop(), k = pop();
        append({k, v}, Kind::dict);
        return;
      }
      case 'u': {
        const auto items = pop_to_mark();
        append(items, Kind::dict);
        return;
      }
      case 'h':
        recall(number(1));
        return;
      case 'j':
        recall(number(4));
        return;
      case 'q':
        remember(number(1));
        return;
      case 'r':
        remember(number(4));
        return;
      case 0x94:
        remember(memo_.size());
        return;
      case 'c':
      case 0x93:
      case 'R':
      case 'b':
      case 'i':
      case 'o':
      case 0x81:
      case 0x92:
      case 0x82:
      case 0x83:
      case 0x84:
      case 'P':
      case 'Q':
        fail_input("the pickle asks for code to be run, and memplan runs none", {},
                   "a memory snapshot of torch.cuda.memory._dump_snapshot holds plain data only");
      default:
        damaged();
    }
  }
  void push_counted(Kind kind) {
    std::vector<Value> items = pop_to_mark();
    if (kind == Kind::dict && items.size() % 2) damaged();
    appended_ += items.size();
    if (appended_ > limits_.values) fail_input("the pickle holds more values than memplan reads");
    push(add_container(kind, std::move(items)));
  }

  static constexpr Value unset = ~Value{0};
  std::string_view in_;
  PickleLimits limits_;
  std::size_t at_ = 0, appended_ = 0;
  bool done_ = false;
  Pickle out_;
  std::vector<Value> stack_, memo_;
  std::vector<std::size_t> marks_;
  Value none_ = 0, false_ = 0, true_ = 0;
};

Pickle Pickle::parse(std::string_view bytes, const PickleLimits& limits) { return PickleReader(bytes, limits).run(); }

std::int64_t Pickle::integer(Value v) const {
  const Kind k = kind(v);
  if (k != Kind::integer && k != Kind::boolean) fail_input("the pickle has something else where a number belongs");
  return nodes_[v].payload;
}

const std::string& Pickle::text(Value v) const {
  if (kind(v) != Kind::text) fail_input("the pickle has something else where a text belongs");
  return texts_[static_cast<std::size_t>(nodes_[v].payload)];
}

bool Pickle::find(Value dict, std::string_view key, Value& out) const {
  if (kind(dict) != Kind::dict) return false;
  const std::vector<Value>& list = items(dict);
  bool found = false;
  // The last one wins, as in Python.
  for (std::size_t i = 0; i + 1 < list.size(); i += 2)
    if (kind(list[i]) == Kind::text && text(list[i]) == key) out = list[i + 1], found = true;
  return found;
}

}  // namespace memplan
