// Attention within sequences of different lengths that are packed one after the other into one row,
// without padding. The queries of a tile share every key that is read.
#include "abi.h"
#include "export.h"
#include "gemm_tile.h"
#include "openmp.h"
#include "softmax.h"
#include "workspace.h"

using namespace qkv;

namespace {

// The keys and values of one sequence for one head: keys transposed to (width, length), values as
// (length, width), both padded to whole vectors.
class SequenceHead {
  public:
    SequenceHead(long max_length, long width)
        : width(width), keys(width * round_up(max_length)), values(max_length * round_up(width)),
          weights(TILE_ROWS * round_up(max_length)), queries(TILE_ROWS * width),
          outputs(TILE_ROWS * round_up(width)) {}

    void read(const float* k, long k_stride, const float* v, long v_stride, long count) {
        length = count;
        const long S = round_up(length), E = round_up(width);
        for (long s = 0; s < length; s++) {
            for (long i = 0; i < width; i++) keys[i * S + s] = k[s * k_stride + i];
            std::memcpy(&values[s * E], v + s * v_stride, width * sizeof(float));
        }
    }

    // Never inlined: the compiler would vectorize its sums in another order, and change the last bit.
    __attribute__((noinline)) void attend(const float* q, long q_stride, long count, float scale, float* out,
                                          long out_stride) {
        for (long t = 0; t < count; t += TILE_ROWS) {
            attend_tile(q + t * q_stride, q_stride, std::min(TILE_ROWS, count - t), scale, out + t * out_stride,
                        out_stride);
        }
    }

  private:
    // At most TILE_ROWS neighbouring queries.
    void attend_tile(const float* q, long q_stride, long count, float scale, float* out, long out_stride) {
        const long S = round_up(length), E = round_up(width);
        for (long r = 0; r < count; r++) {
            for (long i = 0; i < width; i++) queries[r * width + i] = q[r * q_stride + i] * scale;
        }
        float factor[TILE_ROWS];
        with_rows(count, [&](auto tile_rows) {
            constexpr long rows = decltype(tile_rows)::value;
            gemm_strip<rows>({queries.get(), width, 1}, keys.get(), S, width, weights.get(), S, S, false);
            for (long r = 0; r < rows; r++) factor[r] = softmax_unnormalized(&weights[r * S], length);
            gemm_strip<rows>({weights.get(), S, 1}, values.get(), E, length, outputs.get(), E, E, false);
        });
        for (long r = 0; r < count; r++) {
            for (long i = 0; i < width; i++) out[r * out_stride + i] = outputs[r * E + i] * factor[r];
        }
    }

    long width, length = 0;
    Workspace<> keys, values, weights, queries, outputs;
};

}  // namespace

// q (H, N, E), k and v (K, N, E) of `count` sequences, of which sequence i has the positions from
// starts[i] to starts[i + 1] -> out (N, H, E), contiguous.
QKV_EXPORT void qkv_attention_varlen(const float* q, const float* k, const float* v, float* out,
                                     const Strides* q_strides, const Strides* k_strides, const Strides* v_strides,
                                     const int64_t* starts, long count, long H, long K, long E, float scale,
                                     int threads) {
    long max_length = 0;
    for (long i = 0; i < count; i++) max_length = std::max<long>(max_length, starts[i + 1] - starts[i]);
    const long q_stride = q_strides->position, out_stride = H * E;
#pragma omp parallel num_threads(threads)
    {
        SequenceHead head(max_length, E);
#pragma omp for schedule(dynamic)
        for (long task = 0; task < count * H; task++) {
            const long i = task / H, h = task % H, kv_head = h / (H / K), first = starts[i];
            const long length = starts[i + 1] - first;
            const float* keys = k + kv_head * k_strides->head + first * k_strides->position;
            const float* values = v + kv_head * v_strides->head + first * v_strides->position;
            const float* queries = q + h * q_strides->head + first * q_stride;
            head.read(keys, k_strides->position, values, v_strides->position, length);
            head.attend(queries, q_stride, length, scale, out + first * out_stride + h * E, out_stride);
        }
    }
}
