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

// The sums of all lanes of four vectors, by halves of all four together.
inline void totals(const Lanes x[4], float out[4]) {
    const auto halves = [](const Lanes& a, const Lanes& b) {  // eight lanes of each are left
        return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
               __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    };
    const Lanes ab = halves(x[0], x[1]), cd = halves(x[2], x[3]);
    Lanes sum = __builtin_shufflevector(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
                __builtin_shufflevector(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    sum += __builtin_shufflevector(sum, sum, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    sum += __builtin_shufflevector(sum, sum, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    for (int i = 0; i < 4; i++) out[i] = sum[4 * i];
}

// The next multiple of the number of lanes.
inline long filled(long n) { return (n + LANES - 1) / LANES * LANES; }

}  // namespace qkv
