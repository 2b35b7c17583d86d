// Whether a value that is read back decides how large a result is: there is no value, so there would be a wrong size.
#include <dlfcn.h>
#include <unwind.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "emulated.h"

namespace emulated {

namespace {

/// Functions of PyTorch that read sizes off the device, as its libraries export them: bincount and one_hot read the
/// largest value, repeat_interleave a sum (unless they are told), the others how many elements are left.
constexpr const char* functions[] = {"_ZN2at6native12_unique_cuda",
                                     "_ZN2at6native12nonzero_cuda",
                                     "_ZN2at6native13_unique2_cuda",
                                     "_ZN2at6native14_bincount_cuda",
                                     "_ZN2at6native15unique_dim_cuda",
                                     "_ZN2at6native16nonzero_out_cuda",
                                     "_ZN2at6native18masked_select_cuda",
                                     "_ZN2at6native22masked_select_out_cuda",
                                     "_ZN2at6native22repeat_interleave_cuda",
                                     "_ZN2at6native23unique_consecutive_cuda",
                                     "_ZN2at6native7one_hot"};

struct Walk {
  int frames = 0;
  bool found = false;
};

_Unwind_Reason_Code look(_Unwind_Context* context, void* walk_) {
  Walk& walk = *static_cast<Walk*>(walk_);
  Dl_info info{};
  // The address before the return address: a call may be a function's last instruction.
  const auto at = reinterpret_cast<const char*>(_Unwind_GetIP(context)) - 1;
  if (dladdr(at, &info) && info.dli_sname)
    walk.found = std::any_of(std::begin(functions), std::end(functions),
                             [&](const char* f) { return !std::strncmp(info.dli_sname, f, std::strlen(f)); });
  // From the copy up to the op there are a few dozen frames at most; Python's own lie beyond.
  return walk.found || ++walk.frames == 48 ? _URC_END_OF_STACK : _URC_NO_REASON;
}

}  // namespace

bool caller_needs_a_size() {
  Walk walk;
  _Unwind_Backtrace(look, &walk);
  return walk.found;
}

}  // namespace emulated
