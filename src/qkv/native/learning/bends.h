// Activations and their slopes, sixteen at a time.
#pragma once

#include "../lanes.h"
#include "../numbers.h"

namespace qkv {

// The activation and its slope at x.
template <int kind>
inline void bent(float x, float& value, float& slope) {
    if constexpr (kind == RELU) {
        value = x < 0.0f ? 0.0f : x;
        slope = x > 0.0f ? 1.0f : 0.0f;
    }
    if constexpr (kind == RELU2) {
        const float up = x < 0.0f ? 0.0f : x;
        value = up * up;
        slope = 2.0f * up;
    }
    if constexpr (kind == SILU) {
        const float share = 1.0f / (1.0f + exponential(-x));
        value = x * share;
        slope = share + value * (1.0f - share);
    }
    if constexpr (kind == GELU_TANH) {  // x·σ(2·inner)
        const float square = x * x;
        const float share = 1.0f / (1.0f + exponential(-1.59576912f * x * (1.0f + 0.044715f * square)));
        value = x * share;
        slope = share + value * (1.0f - share) * 1.59576912f * (1.0f + 0.134145f * square);
    }
    if constexpr (kind == GELU) {
        value = gelu(x);
        const float share = x == 0.0f ? 0.5f : value / x;
        slope = share + x * 0.39894228f * exponential(-0.5f * x * x);
    }
}

}  // namespace qkv
