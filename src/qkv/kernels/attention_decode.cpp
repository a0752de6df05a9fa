// Attention of a few queries per sequence, as when tokens are generated one after the other.
#include "attention_decode.h"

#include "abi.h"
#include "export.h"
#include "openmp.h"

using namespace qkv;

namespace {

// The keys that the queries of one head may see; heads that share a mask read it once.
class HeadMask {
  public:
    HeadMask(long queries, long keys)
        : queries(queries), keys(keys), storage((queries + 1) * keys), counts(queries + 1), any_mask(keys) {}

    // Each query's mask is `stride` behind the one before; null lets all see everything.
    void read(const uint8_t* mask, long stride) {
        if (ready && mask == last) return;
        ready = true;
        last = mask;
        shared = !mask || stride == 0;
        if (shared) {
            select(0, mask);
            return;
        }
        for (long t = 0; t < queries; t++) select(t, mask + t * stride);
        std::memset(any_mask.get(), 0, keys);
        for (long t = 0; t < queries; t++) {
            for (long p = 0; p < keys; p++) any_mask[p] |= mask[t * stride + p];
        }
        select(queries, any_mask.get());
    }

    Positions of(long query) const { return at(shared ? 0 : query); }
    Positions of_any_query() const { return at(shared ? 0 : queries); }

  private:
    Positions at(long list) const { return {storage.get() + list * keys, counts[list]}; }
    void select(long list, const uint8_t* mask) {
        counts[list] = select_positions(mask, keys, storage.get() + list * keys).count;
    }

    const long queries, keys;
    const Workspace<int32_t> storage;  // a list of positions for each query, then one for all of them
    const Workspace<long> counts;
    const Workspace<uint8_t> any_mask;
    const uint8_t* last = nullptr;
    bool ready = false, shared = true;
};

}  // namespace

// q (B, H, T, E), k and v (B, K, S, E), mask (B, H, T, S) or null -> out (B, T, H, E), contiguous.
QKV_EXPORT void qkv_attention_decode(const float* q, const float* k, const float* v, const uint8_t* mask, float* out,
                                     const Strides* q_strides, const Strides* k_strides, const Strides* v_strides,
                                     const Strides* mask_strides, long B, long H, long K, long T, long S, long E,
                                     float scale, int threads) {
    if (!T) return;
    const auto rows_of = [=](const float* data, const Strides* strides, long task) {
        return Rows{data + task / H * strides->batch + task % H / (H / K) * strides->head, strides->position};
    };
#pragma omp parallel num_threads(threads)
    {
        SingleQueryAttention attention(S);
        HeadMask head_mask(T, S);
#pragma omp for
        for (long task = 0; task < B * H; task++) {
            const long b = task / H, h = task % H;
            if (mask) {
                head_mask.read(mask + b * mask_strides->batch + h * mask_strides->head, mask_strides->position);
            } else {
                head_mask.read(nullptr, 0);
            }
            if (h + 1 < H) {
                prefetch_rows(rows_of(k, k_strides, task + 1), head_mask.of_any_query(), E);
                prefetch_rows(rows_of(v, v_strides, task + 1), head_mask.of_any_query(), E);
            }
            const Rows keys = rows_of(k, k_strides, task), values = rows_of(v, v_strides, task);
            for (long t = 0; t < T; t++) {
                const float* query = q + b * q_strides->batch + h * q_strides->head + t * q_strides->position;
                attention.attend(query, keys, values, head_mask.of(t), E, scale, out + ((b * T + t) * H + h) * E);
            }
        }
    }
}
