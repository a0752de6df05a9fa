// Attention of one query, whatever it may look at.
#pragma once

#include <vector>

#include "weigh.h"

namespace qkv {

// Rows of numbers, the next one `stride` numbers on.
struct Rows {
    const float* numbers;
    long stride;

    const float* operator[](long place) const { return numbers + place * stride; }
};

// Which keys may be looked at.
class Places {
  public:
    explicit Places(long most) : each(most) {}

    // Those of the first `most` that `seen` allows; null allows all.
    void find(const uint8_t* seen, long most) {
        count = 0;
        for (long p = 0; p < most; p++) {
            each[count] = p;
            count += seen ? seen[p] != 0 : 1;
        }
    }

    long operator[](long i) const { return each[i]; }

    long count = 0;

  private:
    std::vector<int32_t> each;
};

// Lets memory bring some rows nearer, while others are computed with.
inline void ask_for(Rows rows, const Places& places, long width) {
    for (long p = 0; p < places.count; p++) {
        for (long i = 0; i < width; i += LINE) __builtin_prefetch(rows[places[p]] + i, 0, 2);
    }
}

class Attention {
  public:
    explicit Attention(long keys) : weights(filled(keys)) {}

    // The mean of the values at some places, weighted by how well their keys match q; zeros if there
    // are none.
    void look(const float* q, Rows keys, Rows values, const Places& places, long width, float scale, float* out) {
        if (!places.count) {
            for (long i = 0; i < width; i++) out[i] = 0.0f;
            return;
        }
        match(q, keys, places, width, scale);
        const float share = weigh(weights.data(), places.count);
        long i = 0;
        for (; i + 4 * LANES <= width; i += 4 * LANES) mean<4>(values, places, i, share, out);
        switch ((width - i) / LANES) {
            case 3: mean<3>(values, places, i, share, out); break;
            case 2: mean<2>(values, places, i, share, out); break;
            case 1: mean<1>(values, places, i, share, out); break;
        }
        for (i = width / LANES * LANES; i < width; i++) {
            float sum = 0.0f;
            for (long p = 0; p < places.count; p++) sum += weights[p] * values[places[p]][i];
            out[i] = sum * share;
        }
    }

  private:
    // The scores of these keys; four are read at a time.
    void match(const float* q, Rows keys, const Places& places, long width, float scale) {
        long p = 0;
        for (; p + 4 <= places.count; p += 4) {
            const float *a = keys[places[p]], *b = keys[places[p + 1]], *c = keys[places[p + 2]],
                        *d = keys[places[p + 3]];
            Lanes sum[4] = {};
            long i = 0;
            for (; i + LANES <= width; i += LANES) {
                const Lanes asked = load(q + i);
                sum[0] += asked * load(a + i);
                sum[1] += asked * load(b + i);
                sum[2] += asked * load(c + i);
                sum[3] += asked * load(d + i);
            }
            float total[4];
            totals(sum, total);
            for (; i < width; i++) {
                total[0] += q[i] * a[i];
                total[1] += q[i] * b[i];
                total[2] += q[i] * c[i];
                total[3] += q[i] * d[i];
            }
            for (long r = 0; r < 4; r++) weights[p + r] = total[r] * scale;
        }
        for (; p < places.count; p++) {
            const float* key = keys[places[p]];
            float sum = 0.0f;
            for (long i = 0; i < width; i++) sum += q[i] * key[i];
            weights[p] = sum * scale;
        }
    }

    // Some lanes of the mean, from number `at` on.
    template <long lanes>
    void mean(Rows values, const Places& places, long at, float share, float* out) {
        Lanes sum[lanes] = {};
        for (long p = 0; p < places.count; p++) {
            const float *value = values[places[p]] + at;
            for (long l = 0; l < lanes; l++) sum[l] += weights[p] * load(value + l * LANES);
        }
        for (long l = 0; l < lanes; l++) store(sum[l] * share, out + at + l * LANES);
    }

    std::vector<float> weights;
};

}  // namespace qkv
