// Where the facts that an estimate rests on come from.
//
// A file tells a part of what a run does. The rest is put back or taken for granted on the way, and every such place
// notes a fact. What follows from them for a report, its basis, its range and its assumptions, is decided in one place:
// estimate/basis.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "estimators/base/bytes.h"
#include "estimators/base/names.h"

namespace memplan {

/// The strongest first.
enum class Evidence : std::uint8_t {
  recorded,        ///< measured or written down by the library itself: an exact entry of a table
  proven_by_file,  ///< the file allows no other reading
  chosen,          ///< part of what is asked for: the reference program and the choices of a setup
  measured_here,   ///< read from this machine's card by `memplan calibrate`; another day may differ a little
  told_by_name,    ///< a class, function or parameter has this name; another version may differ under the same name
  told_by_source_line,  ///< the text of the line of Python that made a call
  told_by_pattern,      ///< several nodes look like what an exporter makes of one op; code may have spelled them out
  nearest_table_entry,  ///< a table has no entry for it: scaled from the nearest one
  assumed,              ///< nothing says so: a default, a choice of the setup, a bound
};
inline constexpr std::array evidence_names{
    Named<Evidence>{"recorded", Evidence::recorded},
    Named<Evidence>{"proven by the file", Evidence::proven_by_file},
    Named<Evidence>{"chosen by the setup", Evidence::chosen},
    Named<Evidence>{"measured here", Evidence::measured_here},
    Named<Evidence>{"told by a name", Evidence::told_by_name},
    Named<Evidence>{"told by a source line", Evidence::told_by_source_line},
    Named<Evidence>{"told by a pattern", Evidence::told_by_pattern},
    Named<Evidence>{"nearest table entry", Evidence::nearest_table_entry},
    Named<Evidence>{"assumed", Evidence::assumed},
};
constexpr const char* name_of(Evidence e) { return name_in(evidence_names, e); }

/// What a fact is about.
enum class About : std::uint8_t {
  program,        ///< the steps that are run, and what the file leaves open about them
  shape,          ///< sizes of inputs
  weights,        ///< parameters and buffers: which there are, which are trained
  op,             ///< the ATen op behind nodes, or an op without a row
  cast,           ///< conversions that an fp32 export drops
  lifetime,       ///< how long Python's names keep tensors
  mask,           ///< masks of attention that eager code does not make
  in_place,       ///< ops that write into their input
  mode,           ///< what training and evaluation mode change in the graph
  branch,         ///< conditions and loops that depend on data
  autocast,       ///< the model's own regions of autocast
  checkpointing,  ///< recomputation, the model's own or planned
  function,       ///< autograd.Functions of the model's own
  workspace,      ///< scratch memory of libraries
  loss,
  optimizer,
  framework,      ///< what DeepSpeed, Megatron-LM or Transformer Engine do
  allocator,      ///< settings and behaviour of PyTorch's caching allocator
  context,        ///< CUDA's context and the libraries
  communication,  ///< NCCL's own buffers
  device,         ///< the card's total
  version,        ///< the version of PyTorch that runs
  placement,      ///< whether a tensor is on the GPU or on the CPU
};
inline constexpr std::array about_names{
    Named<About>{"program", About::program},
    Named<About>{"shape", About::shape},
    Named<About>{"weights", About::weights},
    Named<About>{"op", About::op},
    Named<About>{"cast", About::cast},
    Named<About>{"lifetime", About::lifetime},
    Named<About>{"mask", About::mask},
    Named<About>{"in-place op", About::in_place},
    Named<About>{"mode", About::mode},
    Named<About>{"branch", About::branch},
    Named<About>{"autocast", About::autocast},
    Named<About>{"checkpointing", About::checkpointing},
    Named<About>{"autograd function", About::function},
    Named<About>{"workspace", About::workspace},
    Named<About>{"loss", About::loss},
    Named<About>{"optimizer", About::optimizer},
    Named<About>{"framework", About::framework},
    Named<About>{"allocator", About::allocator},
    Named<About>{"context", About::context},
    Named<About>{"communication", About::communication},
    Named<About>{"device", About::device},
    Named<About>{"version of PyTorch", About::version},
    Named<About>{"placement", About::placement},
};
constexpr const char* name_of(About a) { return name_in(about_names, a); }

/// How far the true figure may lie from the one that was counted.
struct Effect {
  Bytes below, above;
};

struct Fact {
  std::string code = {};  ///< "MP003" of a fact that reports show as a warning: stable; empty for the others
  std::string text = {};  ///< one sentence without a final stop
  Evidence evidence = Evidence::proven_by_file;
  About about = About::program;
  std::string op = {};             ///< the op it concerns, "aten::convolution"; may be empty
  std::string module = {};         ///< path of the first module that it concerns; may be empty
  std::int32_t scope = -1;         ///< of a schedule's facts: index into the tape's scopes, instead of `module`
  std::int64_t count = 1;          ///< places that it stands for
  std::optional<Effect> off = {};  ///< where it is known; the larger one of several places
};
using Note = Fact;  ///< as frontends and passes write it down
using Notes = std::vector<Note>;

/// Adds a fact, or counts it where the same one is there already.
void note(Notes& notes, Fact fact);

}  // namespace memplan
