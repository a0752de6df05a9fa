// Small functions of floats, written so that a compiler vectorizes them: no branches, no calls. NaN
// and infinities stay what they are.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace qkv {

inline int32_t float_to_bits(float x) {
    int32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float bits_to_float(int32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// A monotone map from floats to integers, in which NaN is the largest; and its inverse. A maximum taken
// over integers is associative whatever the input, so it vectorizes and never loses a NaN.
inline int32_t to_ordered(float x) {
    const int32_t bits = float_to_bits(x);
    return bits ^ ((bits >> 31) & 0x7fffffff);
}

inline float from_ordered(int32_t ordered) { return bits_to_float(ordered ^ ((ordered >> 31) & 0x7fffffff)); }

// e^x to a few units in the last place: x = n·ln 2 + r, and e^r by its Taylor series. Arguments are
// clamped to the range whose results are normal numbers.
inline float fast_exp(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float n = std::rint(x * 1.44269504f);
    const float r = std::fma(n, 2.12194440e-4f, std::fma(n, -0.693359375f, x));  // ln 2 in two parts
    float series = 1.0f / 5040.0f;
    series = series * r + 1.0f / 720.0f;
    series = series * r + 1.0f / 120.0f;
    series = series * r + 1.0f / 24.0f;
    series = series * r + 1.0f / 6.0f;
    series = series * r + 0.5f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    // 2ⁿ by its exponent bits. Unsigned, as n is any number at all where x was NaN.
    const uint32_t exponent = static_cast<uint32_t>(static_cast<int32_t>(n)) + 127u;
    return series * bits_to_float(static_cast<int32_t>(exponent << 23));
}

}  // namespace qkv
