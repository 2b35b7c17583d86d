#include "cli/observe/observer.h"

#include <array>
#include <fstream>
#include <string_view>

#include "estimators/base/error.h"

namespace memplan::embedded {
// Names of files, with _ for what no identifier has. NOLINTBEGIN(bugprone-reserved-identifier)
std::string_view observer_sitecustomize_py();
std::string_view observer_memplan_observer___init___py();
std::string_view observer_memplan_observer_autograd_py();
std::string_view observer_memplan_observer_frames_py();
std::string_view observer_memplan_observer_groups_py();
std::string_view observer_memplan_observer_history_py();
std::string_view observer_memplan_observer_hooks_py();
std::string_view observer_memplan_observer_job_py();
std::string_view observer_memplan_observer_names_py();
std::string_view observer_memplan_observer_reads_py();
std::string_view observer_memplan_observer_record_py();
std::string_view observer_memplan_observer_steps_py();
std::string_view _recording___init___py();
std::string_view _recording_align_py();
std::string_view _recording_archive_py();
std::string_view _recording_calls_py();
std::string_view _recording_compiled_py();
std::string_view _recording_functions_py();
std::string_view _recording_lift_py();
std::string_view _recording_lines_py();
std::string_view _recording_script_py();
std::string_view _recording_tape_py();
std::string_view _recording_trace_py();
// NOLINTEND(bugprone-reserved-identifier)
}  // namespace memplan::embedded

namespace memplan::cli {

namespace {

namespace fs = std::filesystem;
namespace e = embedded;

struct File {
  const char* path;
  std::string_view (*text)();
};

constexpr std::array files{
    File{"sitecustomize.py", e::observer_sitecustomize_py},
    File{"memplan_observer/__init__.py", e::observer_memplan_observer___init___py},
    File{"memplan_observer/autograd.py", e::observer_memplan_observer_autograd_py},
    File{"memplan_observer/frames.py", e::observer_memplan_observer_frames_py},
    File{"memplan_observer/groups.py", e::observer_memplan_observer_groups_py},
    File{"memplan_observer/history.py", e::observer_memplan_observer_history_py},
    File{"memplan_observer/hooks.py", e::observer_memplan_observer_hooks_py},
    File{"memplan_observer/job.py", e::observer_memplan_observer_job_py},
    File{"memplan_observer/names.py", e::observer_memplan_observer_names_py},
    File{"memplan_observer/reads.py", e::observer_memplan_observer_reads_py},
    File{"memplan_observer/record.py", e::observer_memplan_observer_record_py},
    File{"memplan_observer/steps.py", e::observer_memplan_observer_steps_py},
    File{"memplan_observer/recording/__init__.py", e::_recording___init___py},
    File{"memplan_observer/recording/align.py", e::_recording_align_py},
    File{"memplan_observer/recording/archive.py", e::_recording_archive_py},
    File{"memplan_observer/recording/calls.py", e::_recording_calls_py},
    File{"memplan_observer/recording/compiled.py", e::_recording_compiled_py},
    File{"memplan_observer/recording/functions.py", e::_recording_functions_py},
    File{"memplan_observer/recording/lift.py", e::_recording_lift_py},
    File{"memplan_observer/recording/lines.py", e::_recording_lines_py},
    File{"memplan_observer/recording/script.py", e::_recording_script_py},
    File{"memplan_observer/recording/tape.py", e::_recording_tape_py},
    File{"memplan_observer/recording/trace.py", e::_recording_trace_py},
};

}  // namespace

void write_observer(const fs::path& folder) {
  for (const File& f : files) {
    const fs::path path = folder / f.path;
    fs::create_directories(path.parent_path());
    std::ofstream file(path, std::ios::binary);
    file.write(f.text().data(), static_cast<std::streamsize>(f.text().size()));
    if (!file.flush()) fail_input("a temporary file cannot be written", path.string(), "is there room on the disk?");
  }
}

}  // namespace memplan::cli
