// Attention within texts that stand one after the other in one row: each token of a text looks at
// all of that text. Eight queries share every key that is read.
#include <vector>

#include "strides.h"
#include "threads.h"
#include "weigh.h"

using namespace qkv;

namespace {

constexpr long TOGETHER = 8;  // queries

// What one head knows of one text: keys with positions side by side, values row by row, both in
// whole lanes.
class Text {
  public:
    Text(long longest, long width)
        : width(width), keys(width * filled(longest)), values(longest * filled(width)),
          weights(TOGETHER * filled(longest)) {}

    void read(const float* k, long k_stride, const float* v, long v_stride, long count) {
        length = count;
        const long S = filled(length), E = filled(width);
        for (long s = 0; s < length; s++) {
            for (long i = 0; i < width; i++) keys[i * S + s] = k[s * k_stride + i];
            std::memcpy(&values[s * E], v + s * v_stride, width * sizeof(float));
        }
    }

    // What `count` neighbouring queries see.
    template <long count>
    void look(const float* q, long q_stride, float scale, float* out, long out_stride) {
        const long S = filled(length), E = filled(width);
        for (long s = 0; s < S; s += LANES) {
            Lanes sum[count] = {};
            for (long i = 0; i < width; i++) {
                const Lanes key = load(&keys[i * S + s]);
                for (long r = 0; r < count; r++) sum[r] += q[r * q_stride + i] * key;
            }
            for (long r = 0; r < count; r++) store(sum[r] * scale, &weights[r * S + s]);
        }
        float share[count];
        for (long r = 0; r < count; r++) share[r] = weigh(&weights[r * S], length);
        for (long i = 0; i < E; i += LANES) {
            Lanes sum[count] = {};
            for (long s = 0; s < length; s++) {
                const Lanes value = load(&values[s * E + i]);
                for (long r = 0; r < count; r++) sum[r] += weights[r * S + s] * value;
            }
            const long left = width - i < LANES ? width - i : LANES;
            for (long r = 0; r < count; r++) {
                sum[r] *= share[r];
                std::memcpy(out + r * out_stride + i, &sum[r], left * sizeof(float));
            }
        }
    }

    void look_all(const float* q, long q_stride, long queries, float scale, float* out, long out_stride) {
        long t = 0;
        for (; t + TOGETHER <= queries; t += TOGETHER) {
            look<TOGETHER>(q + t * q_stride, q_stride, scale, out + t * out_stride, out_stride);
        }
        if (t < queries) {
            look_some<TOGETHER - 1>(queries - t, q + t * q_stride, q_stride, scale, out + t * out_stride,
                                    out_stride);
        }
    }

  private:
    // `look` with the number of queries as a constant, which is at most `most`.
    template <long most>
    void look_some(long count, const float* q, long q_stride, float scale, float* out, long out_stride) {
        if constexpr (most > 1) {
            if (count < most) return look_some<most - 1>(count, q, q_stride, scale, out, out_stride);
        }
        look<most>(q, q_stride, scale, out, out_stride);
    }

    long width, length = 0;
    std::vector<float> keys, values, weights;
};

}  // namespace

extern "C" {

// q (H, N, E), k and v (K, N, E) of `count` texts, of which text i has the positions from
// starts[i] to starts[i + 1] -> out (N, H, E), contiguous.
void attend_texts(const float* q, const float* k, const float* v, float* out, const Strides* of_q,
                  const Strides* of_k, const Strides* of_v, const int64_t* starts, long count,
                  long H, long K, long E, float scale, int threads) {
    long longest = 0;
    for (long i = 0; i < count; i++) {
        const long length = starts[i + 1] - starts[i];
        longest = length > longest ? length : longest;
    }
    const long step = of_q->position, row = H * E;
#pragma omp parallel num_threads(threads)
    {
        Text text(longest, E);
#pragma omp for schedule(dynamic)
        for (long task = 0; task < count * H; task++) {
            const long i = task / H, h = task % H, group = h / (H / K), first = starts[i];
            const long length = starts[i + 1] - first;
            const float* keys = k + group * of_k->head + first * of_k->position;
            const float* values = v + group * of_v->head + first * of_v->position;
            const float* queries = q + h * of_q->head + first * step;
            float* to = out + first * row + h * E;
            text.read(keys, of_k->position, values, of_v->position, length);
            text.look_all(queries, step, length, scale, to, row);
        }
    }
}

}  // extern "C"
