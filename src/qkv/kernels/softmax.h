// Softmax over a row of scores, a vector at a time.
#pragma once

#include <limits>

#include "fast_math.h"
#include "simd.h"

namespace qkv {

// The first `count` lanes; the others become −∞.
inline Vec mask_tail(const Vec& x, long count) {
    return select_first(x, count, Vec{} - std::numeric_limits<float>::infinity());
}

// The largest lane, by halving.
inline float horizontal_max(const Vec& x) {
    float lane[LANES];
    store(x, lane);
    for (long half = LANES / 2; half > 0; half /= 2) {
        for (long i = 0; i < half; i++) lane[i] = lane[i + half] > lane[i] ? lane[i + half] : lane[i];
    }
    return lane[0];
}

// scores[i] = e^(scores[i] − max); returns the factor 1 / Σ that makes them sum to 1, which the caller
// applies to its result instead of to every weight. count is at least 1, and the memory behind the row
// reaches to a whole vector.
inline float softmax_unnormalized(float* scores, long count) {
    const long last = round_up(count) - LANES;
    store(mask_tail(load(scores + last), count - last), scores + last);
    Vec running_max = load(scores);
    for (long p = LANES; p < count; p += LANES) {
        const Vec next = load(scores + p);
        running_max = next > running_max ? next : running_max;
    }
    const float max = horizontal_max(running_max);
    float sum[LANES] = {};
    for (long p = 0; p < count; p += LANES) {
        for (long i = 0; i < LANES; i++) {
            scores[p + i] = fast_exp(scores[p + i] - max);
            sum[i] += scores[p + i];
        }
    }
    float total = 0.0f;
    for (long i = 0; i < LANES; i++) total += sum[i];
    return 1.0f / total;
}

}  // namespace qkv
