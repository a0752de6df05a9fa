// Small functions of numbers, written so that a compiler can compute many of them at once: without
// branches, without calls. A number that is not finite stays one that is not.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace qkv {

inline int32_t bits_of(float x) {
    int32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float float_of(int32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// A whole number that is in the order of floats, where what is no number comes last; and back.
inline int32_t order_of(float x) {
    const int32_t bits = bits_of(x);
    return bits ^ ((bits >> 31) & 0x7fffffff);
}

inline float at_order(int32_t order) { return float_of(order ^ ((order >> 31) & 0x7fffffff)); }

// The largest size in a row, never quite 0. Sizes are in the order of their bits, where what is no
// number comes last: a row with one is none.
inline float size_of(const float* row, long columns) {
    int32_t most = bits_of(1e-30f);
    for (long i = 0; i < columns; i++) {
        const int32_t size = bits_of(row[i]) & 0x7fffffff;
        most = size > most ? size : most;
    }
    return float_of(most);
}

constexpr float LARGEST = 127.0f;  // of whole numbers in 8 bits

// A row as whole numbers that count in steps.
template <class Whole>
inline void round_row(const float* row, long columns, float step, Whole* whole) {
    const float factor = 1.0f / step;
    for (long i = 0; i < columns; i++) {
        whole[i] = static_cast<Whole>(static_cast<int32_t>(std::rint(row[i] * factor)));
    }
}

// e^x to a few units in the last place; x = n·ln 2 + r, and e^r by its series.
inline float exponential(float x) {
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
    return series * float_of((static_cast<int32_t>(n) + 127) << 23);  // × 2ⁿ
}

// Activations, by the numbers that `loops.py` gives them.
enum Activation { RELU, GELU, GELU_TANH, SILU, RELU2 };

inline float relu(float x) { return x < 0.0f ? 0.0f : x; }

inline float silu(float x) { return x / (1.0f + exponential(-x)); }

inline float gelu_tanh(float x) {
    const float inner = 0.79788456f * (x + 0.044715f * x * x * x);
    return x / (1.0f + exponential(-2.0f * inner));
}

// x·Φ(x), the error function after Abramowitz and Stegun 7.1.26: within 1.5e-7.
inline float gelu(float x) {
    const float size = (x < 0.0f ? -x : x) * 0.70710678f;
    const float t = 1.0f / (1.0f + 0.3275911f * size);
    float series = 1.061405429f;
    series = series * t - 1.453152027f;
    series = series * t + 1.421413741f;
    series = series * t - 0.284496736f;
    series = series * t + 0.254829592f;
    const float outside = series * t * exponential(-size * size);  // 1 − erf(size)
    return x < 0.0f ? 0.5f * x * outside : x - 0.5f * x * outside;
}

template <int kind>
inline float activated(float x) {
    if constexpr (kind == RELU) return relu(x);
    if constexpr (kind == GELU) return gelu(x);
    if constexpr (kind == GELU_TANH) return gelu_tanh(x);
    if constexpr (kind == SILU) return silu(x);
    if constexpr (kind == RELU2) return relu(x) * relu(x);
}

// Calls what is given with the activation as a constant, so that its loops have no branch.
template <class Loop>
void with_activation(int kind, Loop loop) {
    switch (kind) {
        case RELU: return loop(std::integral_constant<int, RELU>{});
        case GELU: return loop(std::integral_constant<int, GELU>{});
        case GELU_TANH: return loop(std::integral_constant<int, GELU_TANH>{});
        case SILU: return loop(std::integral_constant<int, SILU>{});
        case RELU2: return loop(std::integral_constant<int, RELU2>{});
    }
}

}  // namespace qkv
