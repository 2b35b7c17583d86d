#include "memplan_torch/script_file.h"

#include <caffe2/serialize/file_adapter.h>
#include <caffe2/serialize/inline_container.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <torch/csrc/jit/serialization/import.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "memplan_torch/commands.h"

namespace memplan::torch_side {

namespace {

/// Records of tensors above this size are not read; those below may be constants that the program computes with.
constexpr std::uint64_t small_record = 64;

/// LibTorch's unpickler runs no Python, but a module may have TorchScript code that runs while it is loaded.
void limit_memory() {
  const rlimit limit{rlim_t{64} << 30, rlim_t{64} << 30};
  setrlimit(RLIMIT_AS, &limit);
}

/// The file with holes: reads inside of one succeed and leave the buffer as it is. LibTorch does not check sums.
class FileWithHoles : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit FileWithHoles(const std::string& path) : file_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat s {};
    if (file_ < 0 || fstat(file_, &s) != 0) throw Refusal("input", "the file cannot be opened", path);
    size_ = static_cast<std::size_t>(s.st_size);
  }
  ~FileWithHoles() override { close(file_); }
  FileWithHoles(const FileWithHoles&) = delete;
  FileWithHoles& operator=(const FileWithHoles&) = delete;

  void dig(std::uint64_t begin, std::uint64_t end) { holes_.emplace_back(begin, end); }
  void done_digging() { std::sort(holes_.begin(), holes_.end()); }
  std::uint64_t bytes_read() const { return read_; }

  size_t size() const override { return size_; }
  size_t read(uint64_t at, void* to, size_t n, const char*) const override {
    const auto after = std::upper_bound(holes_.begin(), holes_.end(), std::pair{at, UINT64_MAX});
    if (after != holes_.begin() && at + n <= std::prev(after)->second) return n;
    std::size_t got = 0;
    while (got < n) {
      const ssize_t r = pread(file_, static_cast<char*>(to) + got, n - got, static_cast<off_t>(at + got));
      if (r <= 0) break;
      got += static_cast<std::size_t>(r);
    }
    read_ += got;
    return got;
  }

 private:
  int file_;
  std::size_t size_ = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> holes_;
  mutable std::uint64_t read_ = 0;
};

/// LibTorch's messages may begin with an empty line.
std::string first_line(const std::string& text) {
  const auto begin = text.find_first_not_of("\n ");
  return begin == std::string::npos ? "it gives no reason" : text.substr(begin, text.find('\n', begin) - begin);
}

/// LibTorch's parser, type checker and unpickler recurse: what is nested deeply enough ends at the stack's end, and a
/// damaged file may run into other bounds. The answer of the process is then this one.
void say_so_when_libtorch_crashes() {
  static char stack[1 << 16];
  stack_t other{};
  other.ss_sp = stack;
  other.ss_size = sizeof stack;
  sigaltstack(&other, nullptr);
  struct sigaction action {};
  action.sa_flags = SA_ONSTACK;
  action.sa_handler = [](int) {
    // Only what a signal handler may call.
    constexpr char text[] =
        R"({"error": {"kind": "input", "what": "LibTorch crashes on this TorchScript file: it is damaged, or nested too deeply", "hint": "save it again, or use torch.export.save"}})"
        "\n";
    [[maybe_unused]] const ssize_t n = write(STDOUT_FILENO, text, sizeof text - 1);
    _exit(1);
  };
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigaction(signal, &action, nullptr);
}

}  // namespace

ScriptFile open_script(const std::string& path) {
  limit_memory();
  say_so_when_libtorch_crashes();
  const auto file = std::make_shared<FileWithHoles>(path);
  ScriptFile out;
  try {
    {
      caffe2::serialize::PyTorchStreamReader archive(file);
      for (const std::string& name : archive.getAllRecords()) {
        if (name.rfind("data/", 0) != 0 && name.rfind("constants/", 0) != 0) continue;
        const std::uint64_t n = archive.getRecordSize(name);
        if (n <= small_record) continue;
        const std::uint64_t at = archive.getRecordOffset(name);
        file->dig(at, at + n);
      }
    }
    file->done_digging();
    // On the CPU, whatever device it was saved from: storages are allocated and never touched.
    out.module = torch::jit::load(file, c10::kCPU);
  } catch (const Refusal&) {
    throw;
  } catch (const std::exception& e) {
    throw Refusal("input", "LibTorch cannot load this TorchScript file: " + first_line(e.what()), path,
                  "save it with this PyTorch's torch.jit.save, or use torch.export.save");
  }
  out.bytes_read = file->bytes_read();
  return out;
}

}  // namespace memplan::torch_side
