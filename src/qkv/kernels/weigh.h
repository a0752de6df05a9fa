// Scores to weights that sum to 1, some lanes at a time.
#pragma once

#include <limits>

#include "lanes.h"
#include "numbers.h"

namespace qkv {

// The first `count` lanes; the others become less than any number.
inline Lanes first(const Lanes& x, long count) {
    return first(x, count, Lanes{} - std::numeric_limits<float>::infinity());
}

// The largest of all lanes, by halves.
inline float largest(const Lanes& top) {
    float left[LANES];
    store(top, left);
    for (long half = LANES / 2; half > 0; half /= 2) {
        for (long i = 0; i < half; i++) left[i] = left[i + half] > left[i] ? left[i + half] : left[i];
    }
    return left[0];
}

// Scores become weights; returns what they are to be multiplied with to sum to 1. There is at least
// one, and room for whole lanes of them.
inline float weigh(float* scores, long count) {
    const long last = filled(count) - LANES;
    store(first(load(scores + last), count - last), scores + last);
    Lanes top = load(scores);
    for (long p = LANES; p < count; p += LANES) {
        const Lanes next = load(scores + p);
        top = next > top ? next : top;
    }
    const float most = largest(top);
    float part[LANES] = {};
    for (long p = 0; p < count; p += LANES) {
        for (long i = 0; i < LANES; i++) {
            scores[p + i] = exponential(scores[p + i] - most);
            part[i] += scores[p + i];
        }
    }
    float total = 0.0f;
    for (long i = 0; i < LANES; i++) total += part[i];
    return 1.0f / total;
}

}  // namespace qkv
