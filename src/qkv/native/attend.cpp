// Attention of a few queries a row, as where tokens are written one after the other.
#include "attend.h"
#include "strides.h"
#include "threads.h"

using namespace qkv;

extern "C" {

// q (B, H, T, E), k and v (B, K, S, E), seen (B, H, T, S) or null -> out (B, T, H, E), contiguous.
void attend_few(const float* q, const float* k, const float* v, const uint8_t* seen, float* out,
                const Strides* of_q, const Strides* of_k, const Strides* of_v,
                const Strides* of_seen, long B, long H, long K, long T, long S, long E,
                float scale, int threads) {
#pragma omp parallel num_threads(threads)
    {
        Attention attention(S);
#pragma omp for
        for (long row = 0; row < B * H; row++) {
            const long b = row / H, h = row % H, group = h / (H / K);
            const Rows keys = {k + b * of_k->batch + group * of_k->head, of_k->position};
            const Rows values = {v + b * of_v->batch + group * of_v->head, of_v->position};
            for (long t = 0; t < T; t++) {
                const uint8_t* mask = nullptr;
                if (seen) {
                    mask = seen + b * of_seen->batch + h * of_seen->head + t * of_seen->position;
                }
                attention.look(q + b * of_q->batch + h * of_q->head + t * of_q->position, keys, values,
                               mask, S, E, scale, out + ((b * T + t) * H + h) * E);
            }
        }
    }
}

}  // extern "C"
