#include "planner/setup_search.h"

#include <algorithm>
#include <cmath>

namespace memplan {

namespace {

bool faster(const Candidate& a, const Candidate& b) { return per_sample(a) < per_sample(b); }

/// No other one is both smaller and faster; by memory.
std::vector<Candidate> front_of(std::vector<Candidate> all) {
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.peak != b.peak ? a.peak < b.peak : faster(a, b);
  });
  std::vector<Candidate> front;
  for (Candidate& c : all)
    if (front.empty() || faster(c, front.back())) front.push_back(std::move(c));
  return front;
}

}  // namespace

Suggestion SetupSearch::run() {
  out_.present = present();
  find_bounds();
  find_fastest();
  if (out_.fitting.empty()) find_least();
  if (out_.present.verdict != Verdict::fits) out_.smallest = find_smallest();
  out_.front = front_of(find_front());
  finish();
  std::stable_sort(out_.fitting.begin(), out_.fitting.end(), faster);
  return std::move(out_);
}

void SetupSearch::judge_into(Candidate& c, const Estimate& e) const {
  const Judgement j = judge(e, device_, margin_);
  c.peak = e.peak.process;
  c.verdict = j.verdict;
  c.headroom = j.headroom;
}

double per_sample(const Candidate& c) { return c.time.total() / static_cast<double>(c.samples); }

double time_grade(double seconds, double least) {
  return std::floor(std::log(std::max(seconds, least)) / std::log(1.02));
}

const char* why_not(Verdict verdict) {
  return verdict == Verdict::no_fit  ? "does not fit"
         : verdict == Verdict::tight ? "leaves less than the margin"
                                     : "cannot be told";
}

}  // namespace memplan
