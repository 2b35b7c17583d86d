// How long a tensor lives in the forward pass of an eager program: until the last Python reference to it has gone.
//
// A graph tells uses, not names. A name keeps a tensor longer than its last use: `residual` until the block's forward
// returns, an argument until the module that was called with it returns. What the exporter says of every call (its
// module and the line of Python in it) is enough to know the names that assignments bind:
//   * a value bound to a name lives until the name is bound again in the same frame, or the frame ends;
//   * any other value is a temporary of its statement and goes with its last use;
//   * what is handed to a module lives at least until that module returns, because the caller's frame holds it.
#pragma once

#include "estimators/tape/tape.h"

namespace memplan {

/// Fills Call::last_uses. A value without a use goes after the call that made it; outputs of the model stay.
void mark_last_uses(Tape& tape);

}  // namespace memplan
