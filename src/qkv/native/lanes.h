// Sixteen numbers that are computed with as one; the compiler knows what this CPU makes of them.
#pragma once

#include <cstring>

namespace qkv {

typedef float Lanes __attribute__((vector_size(64)));
constexpr long LANES = sizeof(Lanes) / sizeof(float);

inline Lanes load(const float* from) {
    Lanes x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

inline void store(const Lanes& x, float* to) { std::memcpy(to, &x, sizeof x); }

// The next multiple of the number of lanes.
inline long filled(long n) { return (n + LANES - 1) / LANES * LANES; }

}  // namespace qkv
