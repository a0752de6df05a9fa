// The end of the process, with a message. Kernels are called through ctypes: an exception cannot cross
// that boundary, and must not leave an OpenMP region.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace qkv {

[[noreturn]] inline void panic(const char* message, long value) {
    std::fprintf(stderr, "qkv kernels: %s: %ld\n", message, value);
    std::fflush(stderr);
    std::abort();
}

}  // namespace qkv
