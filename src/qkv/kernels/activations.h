// Activation functions, by the codes that ACTIVATIONS in inference.py gives them.
#pragma once

#include <type_traits>

#include "fast_math.h"
#include "panic.h"

namespace qkv {

enum Activation { RELU, GELU, GELU_TANH, SILU, RELU2 };

inline float relu(float x) { return x < 0.0f ? 0.0f : x; }

inline float silu(float x) { return x / (1.0f + fast_exp(-x)); }

// tanh written as a sigmoid: x·σ(2·inner).
inline float gelu_tanh(float x) {
    const float inner = 0.79788456f * (x + 0.044715f * x * x * x);
    return x / (1.0f + fast_exp(-2.0f * inner));
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
    const float complement = series * t * fast_exp(-size * size);  // 1 − erf(size)
    return x < 0.0f ? 0.5f * x * complement : x - 0.5f * x * complement;
}

template <int kind>
inline float activate(float x) {
    static_assert(kind >= RELU && kind <= RELU2, "no such activation");
    if constexpr (kind == RELU) return relu(x);
    if constexpr (kind == GELU) return gelu(x);
    if constexpr (kind == GELU_TANH) return gelu_tanh(x);
    if constexpr (kind == SILU) return silu(x);
    if constexpr (kind == RELU2) return relu(x) * relu(x);
}

// Calls `loop` with the activation as a compile-time constant, so that its inner loops do not branch.
template <class Loop>
void with_activation(int kind, Loop loop) {
    switch (kind) {
        case RELU: return loop(std::integral_constant<int, RELU>{});
        case GELU: return loop(std::integral_constant<int, GELU>{});
        case GELU_TANH: return loop(std::integral_constant<int, GELU_TANH>{});
        case SILU: return loop(std::integral_constant<int, SILU>{});
        case RELU2: return loop(std::integral_constant<int, RELU2>{});
        default: panic("unknown activation", kind);
    }
}

}  // namespace qkv
