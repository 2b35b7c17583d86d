#include "estimators/onnxruntime/rewritten.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "estimators/base/error.h"
#include "estimators/base/hash.h"
#include "estimators/companion/process.h"
#include "estimators/companion/surroundings.h"
#include "estimators/companion/temporary_folder.h"
#include "estimators/frontends/onnx/reader.h"
#include "estimators/frontends/onnx/wire.h"
#include "estimators/onnxruntime/half.h"
#include "estimators/onnxruntime/protos.h"
#include "estimators/runtime/ort/optimize.h"
#include "onnx/onnx-ml.pb.h"

namespace memplan {

namespace embedded {
std::string_view onnxruntime_optimize_py();
}

namespace {

namespace fs = std::filesystem;
using ::onnx::ModelProto;

constexpr std::int64_t most_weights = std::int64_t{1} << 30;
constexpr std::chrono::seconds most_time{120};
/// Counts up with what this folder makes of an answer: what earlier ones kept is asked for again.
constexpr const char* revision = "2";

struct Place {
  std::string python, packages, version;
};

/// The first Python with a package onnxruntime or onnxruntime-gpu.
std::optional<Place> place_of(const std::vector<std::string>& known) {
  for (const std::string& python : known)
    for (const std::string& packages : package_folders(python))
      for (const std::string& info : matches(packages + "/onnxruntime*-*.dist-info")) {
        const std::string name = fs::path(info).stem().string(), version = name.substr(name.find('-') + 1);
        if (fs::exists(packages + "/onnxruntime/capi")) return Place{python, packages, version};
      }
  return std::nullopt;
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  out.close();
  if (!out) fail_input("a temporary file cannot be written", path, "set TMPDIR to a folder with room");
}

/// A file of zeros, which takes no blocks.
void write_zeros(const std::string& path, std::int64_t length) {
  write_file(path, "");
  if (truncate(path.c_str(), length) != 0)
    fail_input("a temporary file cannot be written", path, "set TMPDIR to a folder with room");
}

/// "97<tab>silu" for every node, behind the version.
std::map<std::string, std::int64_t> indices_in(std::istringstream& lines) {
  std::map<std::string, std::int64_t> out;
  for (std::string line; std::getline(lines, line);) {
    const auto tab = line.find('\t');
    std::int64_t index = 0;
    if (tab == std::string::npos) continue;
    if (std::from_chars(line.data(), line.data() + tab, index).ec == std::errc()) out[line.substr(tab + 1)] = index;
  }
  return out;
}

/// What is kept of answers: one file for each, which appears whole.
class Kept {
 public:
  Kept(const Place& place, const std::string& slim, RewriteLevel level) {
    StableHash hash;
    for (const std::string_view text : {std::string_view(revision), std::string_view(slim)}) hash.add(text);
    if (level == RewriteLevel::basic) hash.add("basic");
    if (const std::string folder = cache_folder("onnxruntime"); !folder.empty())
      path_ = fmt::format("{}/{}-{:016x}-{}.onnx", folder, place.version, hash.value(), slim.size());
  }
  std::optional<std::string> find() const {
    std::ifstream in(path_, std::ios::binary);
    if (path_.empty() || !in) return std::nullopt;
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  void keep(const std::string& bytes) const {
    if (!path_.empty()) keep_in_cache(path_, bytes);
  }

 private:
  std::string path_;
};

/// The rewritten model as bytes, weightless, with its nodes' indices; empty where `complaint` says why not.
std::string ask(const Place& place, const std::string& slim, RewriteLevel level, std::string& complaint) {
  ModelProto plain, asked;
  if (!plain.ParseFromString(slim)) return {};
  asked = plain;
  const auto widened = widen(asked);
  if (!widened) {
    complaint =
        "ONNX Runtime was not asked about the graph, which mixes single and half precision: memplan's own rules serve";
    return {};
  }
  const std::int64_t zeros = give_zeros(asked, most_weights);
  if (zeros < 0) return {};
  const TemporaryFolder folder;
  write_file(folder.path() + "/model.onnx", asked.SerializeAsString());
  write_zeros(folder.path() + "/weights", zeros);
  ProcessLimits limits;
  limits.time = most_time;
  const ProcessResult result =
      run_process({place.python, "-I", "-c", std::string(embedded::onnxruntime_optimize_py()), place.packages,
                   folder.path(), level == RewriteLevel::basic ? "BASIC" : "EXTENDED"},
                  "", {}, limits);
  std::istringstream lines(result.output);
  std::string version;
  if (result.end != ProcessResult::End::exited || !std::getline(lines, version) || version.starts_with("no: ")) {
    complaint = fmt::format("ONNX Runtime {} did not rewrite the graph ({}): memplan's own rules serve", place.version,
                            version.starts_with("no: ") ? version.substr(4)
                            : result.end == ProcessResult::End::timed_out
                                ? fmt::format("it took more than {} s", most_time.count())
                                : "it ended without an answer");
    return {};
  }
  ModelProto made;
  const std::string optimized = folder.path() + "/optimized.onnx";
  if (!made.ParseFromString(onnx_format::slim_model(onnx_format::MappedFile(optimized).bytes(), optimized))) return {};
  narrow(made, *widened);
  note_indices(made, indices_in(lines));
  put_back_functions(plain, made);
  return made.SerializeAsString();
}

}  // namespace

std::string installed_onnxruntime(const std::string& where) {
  if (where == "none") return {};
  const auto place = place_of(where == "auto" ? pythons() : std::vector<std::string>{where});
  return place ? place->version : std::string();
}

Rewritten rewritten_by_onnxruntime(const Model& plain, const std::function<std::string()>& slim_of,
                                   const std::string& where, RewriteLevel level) {
  Rewritten out;
  // What is followed exactly need not be asked for.
  const bool followed = level == RewriteLevel::extended && where == "auto" && ort::is_settled(plain.graphs.front());
  if (ort::saved_by_onnxruntime(plain.domains) || followed) return out;
  const auto place = place_of(where == "auto" ? pythons() : std::vector<std::string>{where});
  if (!place && where != "auto")
    fail(ErrorKind::usage, "this Python has no package onnxruntime", where,
         "name a Python that has it, or install it there: pip install onnxruntime");
  if (!place) return out;
  const std::string slim = slim_of();
  const Kept kept(*place, slim, level);
  std::string bytes = kept.find().value_or("");
  if (bytes.empty()) {
    bytes = ask(*place, slim, level, out.complaint);
    if (bytes.empty()) return out;
    kept.keep(bytes);
  }
  out.model = onnx_format::read_model(bytes, plain.path);
  out.model->format = fmt::format("{}, rewritten by ONNX Runtime {}", plain.format, place->version);
  out.model->rewritten_by = place->version;
  out.model->ir = plain.ir;
  out.model->file_bytes = plain.file_bytes;
  out.model->torch = plain.torch;
  return out;
}

}  // namespace memplan
