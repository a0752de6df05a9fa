// How far apart in memory neighbours along each axis are, in numbers.
#pragma once

extern "C" {

struct Strides {
    long batch, head, position;
};

}  // extern "C"
