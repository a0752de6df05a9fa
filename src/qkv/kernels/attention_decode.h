// Attention of a single query over the keys it may see.
#pragma once

#include "panic.h"
#include "softmax.h"
#include "workspace.h"

namespace qkv {

// Rows of floats, each `stride` behind the one before.
struct Rows {
    const float* data;
    long stride;

    const float* operator[](long position) const { return data + position * stride; }
};

// The positions of the keys that a query may see.
struct Positions {
    const int32_t* data;
    long count;

    long operator[](long i) const { return data[i]; }
};

// Those of the first `keys` positions that the mask allows, written to `out`; null allows all.
inline Positions select_positions(const uint8_t* mask, long keys, int32_t* out) {
    long count = 0;
    for (long p = 0; p < keys; p++) {
        out[count] = p;
        count += mask ? mask[p] != 0 : 1;
    }
    return {out, count};
}

// Fetches rows into the cache while others are computed with.
inline void prefetch_rows(Rows rows, const Positions& positions, long width) {
    for (long p = 0; p < positions.count; p++) {
        for (long i = 0; i < width; i += CACHE_LINE) __builtin_prefetch(rows[positions[p]] + i, 0, 2);
    }
}

class SingleQueryAttention {
  public:
    explicit SingleQueryAttention(long keys) : weights(Workspace<>::zeros(round_up(keys))) {}

    // out = softmax(q·Kᵀ × scale)·V over some positions; zeros if there are none.
    void attend(const float* q, Rows keys, Rows values, const Positions& positions, long width, float scale,
                float* out) {
        if (!positions.count) {
            for (long i = 0; i < width; i++) out[i] = 0.0f;
            return;
        }
        score(q, keys, positions, width, scale);
        const float factor = softmax_unnormalized(weights.get(), positions.count);
        long i = 0;
        for (; i + 4 * LANES <= width; i += 4 * LANES) weighted_sum<4>(values, positions, i, factor, out);
        switch ((width - i) / LANES) {
            case 3: weighted_sum<3>(values, positions, i, factor, out); break;
            case 2: weighted_sum<2>(values, positions, i, factor, out); break;
            case 1: weighted_sum<1>(values, positions, i, factor, out); break;
            case 0: break;
            default: panic("more vectors left than a loop leaves", (width - i) / LANES);
        }
        for (i = width / LANES * LANES; i < width; i++) {
            float sum = 0.0f;
            for (long p = 0; p < positions.count; p++) sum += weights[p] * values[positions[p]][i];
            out[i] = sum * factor;
        }
    }

  private:
    // q·k × scale for each position; four keys are read at a time.
    void score(const float* q, Rows keys, const Positions& positions, long width, float scale) {
        long p = 0;
        for (; p + 4 <= positions.count; p += 4) {
            const float *a = keys[positions[p]], *b = keys[positions[p + 1]], *c = keys[positions[p + 2]],
                        *d = keys[positions[p + 3]];
            Vec sum[4] = {};
            long i = 0;
            for (; i + LANES <= width; i += LANES) {
                const Vec query = load(q + i);
                sum[0] += query * load(a + i);
                sum[1] += query * load(b + i);
                sum[2] += query * load(c + i);
                sum[3] += query * load(d + i);
            }
            float total[4];
            horizontal_sums(sum, total);
            for (; i < width; i++) {
                total[0] += q[i] * a[i];
                total[1] += q[i] * b[i];
                total[2] += q[i] * c[i];
                total[3] += q[i] * d[i];
            }
            for (long r = 0; r < 4; r++) weights[p + r] = total[r] * scale;
        }
        for (; p < positions.count; p++) {
            const float* key = keys[positions[p]];
            float sum = 0.0f;
            for (long i = 0; i < width; i++) sum += q[i] * key[i];
            weights[p] = sum * scale;
        }
    }

    // Some vectors of the output, from feature `at` on.
    template <long vectors>
    void weighted_sum(Rows values, const Positions& positions, long at, float factor, float* out) {
        Vec sum[vectors] = {};
        for (long p = 0; p < positions.count; p++) {
            const float* value = values[positions[p]] + at;
            for (long l = 0; l < vectors; l++) sum[l] += weights[p] * load(value + l * LANES);
        }
        for (long l = 0; l < vectors; l++) store(sum[l] * factor, out + at + l * LANES);
    }

    Workspace<> weights;
};

}  // namespace qkv
