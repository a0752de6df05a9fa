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
    const auto rows_of = [=](const float* numbers, const Strides* of, long row) {
        return Rows{numbers + row / H * of->batch + row % H / (H / K) * of->head, of->position};
    };
#pragma omp parallel num_threads(threads)
    {
        Attention attention(S);
#pragma omp for
        for (long row = 0; row < B * H; row++) {
            const long b = row / H, h = row % H, next = row + 1 < B * H ? row + 1 : row;
            const Rows keys = rows_of(k, of_k, row), values = rows_of(v, of_v, row);
            ask_for(rows_of(k, of_k, next), S, E);
            ask_for(rows_of(v, of_v, next), S, E);
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
