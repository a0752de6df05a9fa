// Attention of a few queries a row, as where tokens are written one after the other.
#include "attend.h"
#include "strides.h"
#include "threads.h"

using namespace qkv;

namespace {

// What the queries of one row and head may look at; heads that share a mask find it once.
class Seen {
  public:
    Seen(long queries, long keys) : keys(keys), own(queries, Places(keys)), any(keys), either(keys) {}

    // Each query's mask is `stride` on from the one before; null lets all see everything.
    void find(const uint8_t* mask, long stride) {
        if (found && mask == last) return;
        found = true, last = mask;
        alike = !mask || stride == 0;
        const long masks = alike ? 1 : own.size();
        for (long t = 0; t < masks; t++) own[t].find(mask ? mask + t * stride : nullptr, keys);
        if (!alike) {
            either.assign(keys, 0);
            for (long t = 0; t < masks; t++) {
                for (long p = 0; p < keys; p++) either[p] |= mask[t * stride + p];
            }
            any.find(either.data(), keys);
        }
    }

    const Places& of(long query) const { return own[alike ? 0 : query]; }
    const Places& of_any() const { return alike ? own[0] : any; }

  private:
    long keys;
    std::vector<Places> own;
    Places any;
    std::vector<uint8_t> either;
    const uint8_t* last = nullptr;
    bool found = false, alike = true;
};

}  // namespace

extern "C" {

// q (B, H, T, E), k and v (B, K, S, E), seen (B, H, T, S) or null -> out (B, T, H, E), contiguous.
void attend_few(const float* q, const float* k, const float* v, const uint8_t* seen, float* out,
                const Strides* of_q, const Strides* of_k, const Strides* of_v,
                const Strides* of_seen, long B, long H, long K, long T, long S, long E,
                float scale, int threads) {
    if (!T) return;
    const auto rows_of = [=](const float* numbers, const Strides* of, long row) {
        return Rows{numbers + row / H * of->batch + row % H / (H / K) * of->head, of->position};
    };
#pragma omp parallel num_threads(threads)
    {
        Attention attention(S);
        Seen masks(T, S);
#pragma omp for
        for (long row = 0; row < B * H; row++) {
            const long b = row / H, h = row % H;
            if (seen) {
                masks.find(seen + b * of_seen->batch + h * of_seen->head, of_seen->position);
            } else {
                masks.find(nullptr, 0);
            }
            if (h + 1 < H) {
                ask_for(rows_of(k, of_k, row + 1), masks.of_any(), E);
                ask_for(rows_of(v, of_v, row + 1), masks.of_any(), E);
            }
            const Rows keys = rows_of(k, of_k, row), values = rows_of(v, of_v, row);
            for (long t = 0; t < T; t++) {
                const float* asked = q + b * of_q->batch + h * of_q->head + t * of_q->position;
                attention.look(asked, keys, values, masks.of(t), E, scale, out + ((b * T + t) * H + h) * E);
            }
        }
    }
}

}  // extern "C"
