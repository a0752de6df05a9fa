// Activation functions with their derivatives, a vector at a time.
#pragma once

#include "../activations.h"
#include "../simd.h"

namespace qkv {

// A smooth activation and its derivative at x.
template <int kind>
inline void activate_with_grad(float x, float& value, float& grad) {
    if constexpr (kind == SILU) {
        const float sigmoid = 1.0f / (1.0f + fast_exp(-x));
        value = x * sigmoid;
        grad = sigmoid + value * (1.0f - sigmoid);
    }
    if constexpr (kind == GELU_TANH) {  // x·σ(2·inner)
        const float square = x * x;
        const float sigmoid = 1.0f / (1.0f + fast_exp(-1.59576912f * x * (1.0f + 0.044715f * square)));
        value = x * sigmoid;
        grad = sigmoid + value * (1.0f - sigmoid) * 1.59576912f * (1.0f + 0.134145f * square);
    }
    if constexpr (kind == GELU) {  // Φ(x) + x·φ(x)
        value = gelu(x);
        const float cdf = x == 0.0f ? 0.5f : value / x;
        grad = cdf + x * 0.39894228f * fast_exp(-0.5f * x * x);
    }
}

// Any activation and its derivative. One with a kink is selected lane by lane: a branch on the sign of
// a number would be mispredicted every other time.
template <int kind>
inline void activate_with_grad(const Vec& x, Vec& value, Vec& grad) {
    if constexpr (kind == RELU) {
        value = x < 0.0f ? Vec{} : x;
        grad = x <= 0.0f ? Vec{} : Vec{} + 1.0f;
    } else if constexpr (kind == RELU2) {
        const Vec positive = x < 0.0f ? Vec{} : x;
        value = positive * positive;
        grad = 2.0f * positive;
    } else {
        float inputs[LANES], values[LANES], grads[LANES];
        store(x, inputs);
        for (long i = 0; i < LANES; i++) activate_with_grad<kind>(inputs[i], values[i], grads[i]);
        value = load(values);
        grad = load(grads);
    }
}

}  // namespace qkv
