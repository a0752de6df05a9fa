// Attention within texts that stand one after the other in one row: each token of a text looks at
// all of that text. The queries of a tile share every key that is read.
#include "room.h"
#include "strides.h"
#include "threads.h"
#include "tile.h"
#include "weigh.h"

using namespace qkv;

namespace {

// What one head knows of one text: keys with positions side by side, values row by row, both in
// whole lanes.
class Text {
  public:
    Text(long longest, long width)
        : width(width), keys(room_for(width * filled(longest))), values(room_for(longest * filled(width))),
          weights(room_for(TALL * filled(longest))), asked(room_for(TALL * width)), seen(room_for(TALL * filled(width))) {}

    void read(const float* k, long k_stride, const float* v, long v_stride, long count) {
        length = count;
        const long S = filled(length), E = filled(width);
        for (long s = 0; s < length; s++) {
            for (long i = 0; i < width; i++) keys[i * S + s] = k[s * k_stride + i];
            std::memcpy(&values[s * E], v + s * v_stride, width * sizeof(float));
        }
    }

    void look_all(const float* q, long q_stride, long queries, float scale, float* out, long out_stride) {
        for (long t = 0; t < queries; t += TALL) {
            look(q + t * q_stride, q_stride, fewer(TALL, queries - t), scale, out + t * out_stride, out_stride);
        }
    }

  private:
    // What `count` neighbouring queries see, at most TALL.
    void look(const float* q, long q_stride, long count, float scale, float* out, long out_stride) {
        const long S = filled(length), E = filled(width);
        for (long r = 0; r < count; r++) {
            for (long i = 0; i < width; i++) asked[r * width + i] = q[r * q_stride + i] * scale;
        }
        float share[TALL];
        with_rows(count, [&](auto known) {
            constexpr long rows = decltype(known)::value;
            strip<rows>({asked.get(), width, 1}, keys.get(), S, width, weights.get(), S, S, false);
            for (long r = 0; r < rows; r++) share[r] = weigh(&weights[r * S], length);
            strip<rows>({weights.get(), S, 1}, values.get(), E, length, seen.get(), E, E, false);
        });
        for (long r = 0; r < count; r++) {
            for (long i = 0; i < width; i++) out[r * out_stride + i] = seen[r * E + i] * share[r];
        }
    }

    long width, length = 0;
    Room keys, values, weights, asked, seen;
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
