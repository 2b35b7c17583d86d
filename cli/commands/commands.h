// One function per command. Each returns the exit code; Failure carries what goes wrong (docs/cli.md, "Exit codes").
#pragma once

#include <string>
#include <vector>

#include "cli/flags/options.h"

namespace memplan::cli {

int run_estimate(const Options& options);
int run_explain(const Options& options);
int run_suggest(const Options& options);
int run_validate(const Options& options);
int run_size(const Options& options);
/// The options of the first point of a grid, after every value of every list was looked at.
Options sweep_options(const Parsed& parsed);
int run_sweep(const Parsed& parsed, const Options& options);
int run_devices(const Options& options);
int run_ops(const Options& options);
int run_observe(const Options& options);
int run_calibrate(const Options& options);
/// memplan export and memplan record, which the Python package does. `words`: those behind the command.
int run_package(const Options& options, const std::vector<std::string>& words);
int run_attach(const Options& options);
int run_completions(const Options& options);
int run_man();
int run_schema(const Options& options);
int run_report(const Options& options);
int run_check(const Options& options);
int run_diff(const Options& options);
int run_baseline(const Options& options);
int run_config(const Options& options);

/// The help of all of memplan, or of one command.
std::string help_text(const Command& command, bool overview);
/// What a bare `memplan` says: the commands, without their flags.
std::string short_help();

/// The reference program of a setup as a Python script (docs/reference-program.md).
std::string reference_program(const Options& options);

}  // namespace memplan::cli
