// A vector register of floats, as the compiler's vector extension: portable between x86 and Arm, and no
// intrinsics.
#pragma once

#include <cstring>

namespace qkv {

// Exactly one register: a wider vector would be spilled to memory.
#if defined(__AVX512F__)
constexpr long VECTOR_BYTES = 64;
#elif defined(__AVX__)
constexpr long VECTOR_BYTES = 32;
#else
constexpr long VECTOR_BYTES = 16;
#endif

typedef float Vec __attribute__((vector_size(VECTOR_BYTES)));
constexpr long LANES = sizeof(Vec) / sizeof(float);
constexpr long CACHE_LINE = 16;  // floats that memory delivers at a time

// memcpy, as the pointer need not be aligned; it compiles to one load.
inline Vec load(const float* from) {
    Vec x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

inline void store(const Vec& x, float* to) { std::memcpy(to, &x, sizeof x); }

// 0, 1, 2 and so on.
template <class Vector>
inline Vector iota() {
    Vector x = {};
    for (unsigned i = 0; i < sizeof x / sizeof x[0]; i++) x[i] = i;
    return x;
}

// The first `count` lanes of x, and the others of `rest`.
inline Vec select_first(const Vec& x, long count, const Vec& rest) {
    return iota<Vec>() < static_cast<float>(count) ? x : rest;
}

#ifdef __AVX512F__
// The horizontal sums of four vectors, which are halved together: fewer shuffles than one by one.
inline void horizontal_sums(const Vec x[4], float out[4]) {
    const auto halves = [](const Vec& a, const Vec& b) {  // leaves eight lanes of each
        return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
               __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    };
    const Vec ab = halves(x[0], x[1]), cd = halves(x[2], x[3]);
    Vec sum = __builtin_shufflevector(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
                __builtin_shufflevector(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    sum += __builtin_shufflevector(sum, sum, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    sum += __builtin_shufflevector(sum, sum, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    for (int i = 0; i < 4; i++) out[i] = sum[4 * i];
}
#else
// The horizontal sums of four vectors: each is folded to four lanes, and those are transposed and added.
inline void horizontal_sums(const Vec x[4], float out[4]) {
    typedef float Four __attribute__((vector_size(16)));
    Four folded[4] = {};
    for (int i = 0; i < 4; i++) {
        Four part[LANES / 4];
        std::memcpy(part, &x[i], sizeof part);
        for (const Four& each : part) folded[i] += each;
    }
    const auto halves = [](const Four& a, const Four& b) {
        return __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
    };
    const Four ab = halves(folded[0], folded[1]), cd = halves(folded[2], folded[3]);
    const Four sum = __builtin_shufflevector(ab, cd, 0, 2, 4, 6) + __builtin_shufflevector(ab, cd, 1, 3, 5, 7);
    std::memcpy(out, &sum, sizeof sum);
}
#endif

// n rounded up to whole vectors.
inline long round_up(long n) { return (n + LANES - 1) / LANES * LANES; }

}  // namespace qkv
