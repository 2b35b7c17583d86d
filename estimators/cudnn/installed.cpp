#include "estimators/cudnn/installed.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>

#include "estimators/companion/companion.h"
#include "estimators/companion/conversation.h"
#include "estimators/cudnn/answers.h"
#include "estimators/cudnn/places.h"

namespace memplan {

namespace embedded {
std::string_view cudnn_ask_py();
}

namespace {

using std::chrono::milliseconds;

constexpr milliseconds to_start{20000}, to_answer{10000};

/// cudnnDataType_t.
std::optional<int> cudnn_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return 0;
    case DType::float64:
      return 1;
    case DType::float16:
      return 2;
    case DType::bfloat16:
      return 9;
    default:
      return std::nullopt;
  }
}

/// The numbers that emulated_gpu_convolution_workspace() takes.
std::string question_of(const ConvProblem& p, ConvPass pass, int type, bool onnxruntime) {
  std::string out;
  const auto say = [&](std::int64_t n) { out += (out.empty() ? "" : " ") + std::to_string(n); };
  const int dimensions = p.input.size() - 2;
  const auto say_all = [&](const Dims& d, int from) {
    for (int i = 0; i < dimensions; ++i) say(d[from + i]);
  };
  for (const std::int64_t n : {static_cast<std::int64_t>(pass), std::int64_t{type}, std::int64_t{p.channels_last},
                               std::int64_t{onnxruntime}, std::int64_t{dimensions}, p.input[0], p.input[1]})
    say(n);
  say_all(p.input, 2);
  say(p.weight[0]);
  say_all(p.weight, 2);
  say_all(p.padding, 0);
  say_all(p.stride, 0);
  say_all(p.dilation, 0);
  say(p.groups);
  return out;
}

/// The emulated card that is described to cuDNN. A size without a card is on one like the H100; of cards before Turing
/// the emulated GPU has none.
std::string card_of(const Device& device) {
  constexpr int oldest = 75;
  if (device.sm() < oldest) return {};
  const std::string key = device.key.substr(0, device.key.find('+'));
  const auto& known = devices();
  return std::any_of(known.begin(), known.end(), [&](const Device& d) { return d.key == key; }) ? key : "h100-80gb";
}

}  // namespace

struct InstalledCudnn::State {
  /// One version of cuDNN that speaks of one card.
  struct Speaker {
    explicit Speaker(const std::string& name) : answers(name) {}
    CudnnAnswers answers;
    std::unique_ptr<Conversation> child;
    bool looked_for = false;
  };
  std::vector<CudnnPlace> named;
  bool is_named = false;
  std::string complaint;
  std::map<std::string, Speaker> speakers;  ///< by version and card
  mutable std::mutex lock;

  void start(Speaker& speaker, const std::string& card, std::string_view version);
};

InstalledCudnn::InstalledCudnn(std::string where) : state_(std::make_unique<State>()) {
  if (where.empty()) return;
  state_->is_named = true;
  state_->named = named_cudnn(where);
  if (state_->named.empty()) state_->complaint = "cuDNN is asked by a Python, and there is no python3 on PATH";
}

InstalledCudnn::~InstalledCudnn() = default;

void InstalledCudnn::State::start(Speaker& speaker, const std::string& card, std::string_view version) {
  speaker.looked_for = true;
  const std::string emulated = find_emulated_gpu();
  if (emulated.empty()) {
    if (is_named) complaint = "cuDNN is asked under the emulated GPU, which is not installed";
    return;
  }
  for (const CudnnPlace& place : is_named ? named : cudnn_places(version)) {
    // Nothing of the user's own environment may be preloaded before it or configure it.
    auto child = std::make_unique<Conversation>(
        std::vector<std::string>{place.python, "-I", "-c", std::string(embedded::cudnn_ask_py()), place.library},
        std::vector<std::pair<std::string, std::string>>{
            {"LD_PRELOAD", emulated}, {"EMULATED_GPU", card}, {"EMULATED_GPU_CUDNN", ""}});
    const auto said = child->hear(to_start);
    if (said && said->starts_with(std::string(version) + ".")) {
      speaker.child = std::move(child);
      return;
    }
    complaint = !said                       ? place.library + " could not be asked"
                : said->starts_with("no: ") ? place.library + " could not be asked (" + said->substr(4) + ")"
                                            : place.library + " is cuDNN " + *said +
                                                  ", and this version of PyTorch has " + std::string(version);
  }
}

std::optional<Bytes> InstalledCudnn::workspace(const ConvProblem& problem, ConvPass pass, const Device& device,
                                               std::string_view version) {
  if (version != for_onnxruntime) return answer(problem, pass, device, version, false);
  // ONNX Runtime takes any cuDNN 9 that it finds; the one of the tables is asked first.
  for (const std::string_view installed : {"9.19", "9.26", "9.24", "9.20", "9.10"})
    if (const auto bytes = answer(problem, pass, device, installed, true)) return bytes;
  return std::nullopt;
}

std::optional<Bytes> InstalledCudnn::answer(const ConvProblem& problem, ConvPass pass, const Device& device,
                                            std::string_view version, bool onnxruntime) {
  const auto type = cudnn_type(problem.dtype);
  if (!type || problem.input.size() < 4 || problem.input.size() > 5) return std::nullopt;
  const std::string card = card_of(device);
  if (card.empty()) return std::nullopt;
  const std::string question = question_of(problem, pass, *type, onnxruntime);
  const std::lock_guard guard(state_->lock);
  const std::string name = std::string(version) + "-" + card;
  State::Speaker& speaker = state_->speakers.try_emplace(name, name).first->second;
  auto known = speaker.answers.find(question);
  if (!known) {
    if (!speaker.looked_for) state_->start(speaker, card, version);
    if (!speaker.child) return std::nullopt;
    const auto said = speaker.child->ask(question, to_answer);
    std::int64_t bytes = 0;
    const auto read = said ? std::from_chars(said->data(), said->data() + said->size(), bytes)
                           : std::from_chars_result{nullptr, std::errc::invalid_argument};
    if (read.ec != std::errc()) {
      speaker.child.reset();
      state_->complaint = "cuDNN stopped answering: what it did not say is taken from the tables";
      return std::nullopt;
    }
    speaker.answers.keep(question, bytes);
    known = bytes;
  }
  return *known < 0 ? std::nullopt : std::optional(Bytes(*known));
}

std::string InstalledCudnn::complaint() const {
  const std::lock_guard guard(state_->lock);
  return state_->complaint;
}

}  // namespace memplan
