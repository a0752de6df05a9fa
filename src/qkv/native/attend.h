// What every attention here is made of.
#pragma once

#include <limits>

#include "numbers.h"

namespace qkv {

// The mean of the values of the keys that `seen` allows (null: of all), weighted by how well they
// match q; zeros if it allows none. A key is `width` numbers, the next one `stride` numbers on;
// `weights` has room for a number a key.
inline void attend(const float* q, const float* keys, const float* values, const uint8_t* seen,
                   long count, long width, long key_stride, long value_stride, float scale,
                   float* weights, float* out) {
    float most = -std::numeric_limits<float>::infinity();
    for (long p = 0; p < count; p++) {
        if (seen && !seen[p]) continue;
        float score = 0.0f;
        for (long i = 0; i < width; i++) score += q[i] * keys[p * key_stride + i];
        weights[p] = score * scale;
        most = weights[p] > most ? weights[p] : most;
    }
    float total = 0.0f;
    for (long i = 0; i < width; i++) out[i] = 0.0f;
    for (long p = 0; p < count; p++) {
        if (seen && !seen[p]) continue;
        const float weight = exponential(weights[p] - most);
        total += weight;
        for (long i = 0; i < width; i++) out[i] += weight * values[p * value_stride + i];
    }
    const float share = total == 0.0f ? 0.0f : 1.0f / total;
    for (long i = 0; i < width; i++) out[i] *= share;
}

}  // namespace qkv
