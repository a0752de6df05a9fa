// Activations and their slopes, some lanes at a time.
#pragma once

#include "../lanes.h"
#include "../numbers.h"

namespace qkv {

// A smooth activation and its slope at x.
template <int kind>
inline void bent(float x, float& value, float& slope) {
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

// Any activation and its slope. What has a corner is chosen lane by lane: a branch on the sign of a
// number would be guessed wrong every other time.
template <int kind>
inline void bent(const Lanes& x, Lanes& value, Lanes& slope) {
    if constexpr (kind == RELU) {
        value = x < 0.0f ? Lanes{} : x;
        slope = x <= 0.0f ? Lanes{} : Lanes{} + 1.0f;
    } else if constexpr (kind == RELU2) {
        const Lanes up = x < 0.0f ? Lanes{} : x;
        value = up * up;
        slope = 2.0f * up;
    } else {
        float from[LANES], values[LANES], slopes[LANES];
        store(x, from);
        for (long i = 0; i < LANES; i++) bent<kind>(from[i], values[i], slopes[i]);
        value = load(values);
        slope = load(slopes);
    }
}

}  // namespace qkv
