// Symmetric int8 quantization of a row: x ≈ quantized × scale, with absmax(x) at 127.
#pragma once

#include "fast_math.h"

namespace qkv {

constexpr float INT8_LIMIT = 127.0f;

// The largest magnitude of a row, never quite 0. Magnitudes of floats order like their bits, where NaN
// is the largest: a row that has one gives NaN.
inline float absmax(const float* row, long columns) {
    int32_t largest = float_to_bits(1e-30f);
    for (long i = 0; i < columns; i++) {
        const int32_t magnitude = float_to_bits(row[i]) & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
    }
    return bits_to_float(largest);
}

// Integer is int8_t, or a wider type that is faster to multiply with; the values are the same.
template <class Integer>
inline void quantize_row(const float* row, long columns, float scale, Integer* quantized) {
    const float factor = 1.0f / scale;
    for (long i = 0; i < columns; i++) {
        quantized[i] = static_cast<Integer>(static_cast<int32_t>(std::rint(row[i] * factor)));
    }
}

}  // namespace qkv
