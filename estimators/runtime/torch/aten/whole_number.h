// Whole numbers out of the doubles of a file, for the rows, which include files of this folder.
#pragma once

#include "estimators/base/whole_number.h"
