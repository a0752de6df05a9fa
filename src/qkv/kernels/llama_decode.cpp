// One token of one sequence through all layers of a Llama-style decoder, in a single call: pre-norm with
// RMSNorm, RoPE, grouped key/value heads, a gated feed-forward.
#include <algorithm>
#include <limits>

#include "abi.h"
#include "activations.h"
#include "attention_decode.h"
#include "dot_products.h"
#include "export.h"
#include "openmp.h"
#include "quantize.h"

using namespace qkv;

namespace {

constexpr long ROWS_AT_ONCE = 4;      // rows of a matrix that are read together
constexpr long LOGITS_BLOCK = 1024;   // logits whose exponentials are summed by themselves

// The longest row that any matrix of a layer is multiplied with.
long longest_row(const DecoderShape& s) {
    const long attention_width = s.heads * s.head_width;
    return std::max({s.width, attention_width, s.feed_forward_width});
}

// Where the work of thread t of n begins.
long chunk_start(long count, int t, int n) { return count * t / n; }

// The same for rows of a matrix, but only at whole groups, so that each row is computed in the same way
// whatever n is.
long row_chunk_start(long rows, int t, int n) {
    return t == n ? rows : chunk_start(rows / ROWS_AT_ONCE, t, n) * ROWS_AT_ONCE;
}

template <class Number, class Wide, class Sum>
void multiply_rows(const Number* w, const Wide* x, long columns, Sum* out, long begin, long end) {
    long r = begin;
    for (; r + ROWS_AT_ONCE <= end; r += ROWS_AT_ONCE) {
        dot_products<1, ROWS_AT_ONCE>(x, w + r * columns, columns, out + r, 0);
    }
    for (; r < end; r++) dot_products<1, 1>(x, w + r * columns, columns, out + r, 0);
}

// out[begin:end] = W[begin:end]·x + b; `quantized` is scratch for x as integers. Their values are those
// of 8 bits, so that a row gives the same alone and in a batch; 16 bits are only faster to multiply.
void multiply(const Matrix& m, const float* x, int16_t* quantized, float* out, long begin, long end) {
    if (m.scale) {
        const float x_scale = absmax(x, m.columns) / INT8_LIMIT;
        quantize_row(x, m.columns, x_scale, quantized);
        auto* sums = reinterpret_cast<int32_t*>(out);  // each sum is overwritten by the float it stands for
        multiply_rows(static_cast<const int8_t*>(m.data), quantized, m.columns, sums, begin, end);
        for (long r = begin; r < end; r++) out[r] = sums[r] * x_scale * m.scale[r];
    } else {
        multiply_rows(static_cast<const float*>(m.data), x, m.columns, out, begin, end);
    }
    if (m.bias) {
        for (long r = begin; r < end; r++) out[r] += m.bias[r];
    }
}

// `out` may be x itself.
void rms_norm(const RmsNorm& norm, const float* x, long width, float* out) {
    float squares = 0.0f;
    for (long i = 0; i < width; i++) squares += x[i] * x[i];
    const float scale = 1.0f / std::sqrt(squares / width + norm.eps);
    for (long i = 0; i < width; i++) out[i] = x[i] * scale * norm.gain[i];
}

Matrix row_slice(const Matrix& m, long begin, long end) {
    const long size = m.scale ? sizeof(int8_t) : sizeof(float);
    return {static_cast<const char*>(m.data) + begin * m.columns * size, m.scale ? m.scale + begin : nullptr,
            m.bias ? m.bias + begin : nullptr, end - begin, m.columns};
}

// Of some logits: the largest, its index, and Σ e^(logit − max).
struct PartialSoftmax {
    float max;
    long argmax;
    float sum;
};

PartialSoftmax partial_softmax(const float* logits, long count) {
    int32_t ordered = to_ordered(logits[0]), argmax = count;
    for (long i = 0; i < count; i++) {
        const int32_t other = to_ordered(logits[i]);
        ordered = other > ordered ? other : ordered;
    }
    for (int32_t i = 0; i < count; i++) {
        const int32_t index = to_ordered(logits[i]) == ordered ? i : count;
        argmax = index < argmax ? index : argmax;
    }
    const float max = from_ordered(ordered);
    if (max == -std::numeric_limits<float>::infinity()) return {max, argmax, 0.0f};
    float sum = 0.0f;
    for (long i = 0; i < count; i++) sum += fast_exp(logits[i] - max);
    return {max, argmax, sum};
}

// RoPE of one head, in place (Su et al. 2021).
void rotate(float* head, const float* cos, const float* sin, const DecoderShape& s) {
    const long half = s.rope_width / 2, step = s.rope_interleaved ? 2 : 1, partner = s.rope_interleaved ? 1 : half;
    for (long i = 0; i < half; i++) {
        const float a = head[i * step], b = head[i * step + partner];
        head[i * step] = a * cos[i * step] - b * sin[i * step];
        head[i * step + partner] = a * sin[i * step] + b * cos[i * step];
    }
}

}  // namespace

// x (width) through all layers and the final norm, at `position`, where its keys and values are written.
// cos and sin have a row (rope_width) for each position; the workspace holds the four vectors named first.
QKV_EXPORT void qkv_llama_decode(const DecoderLayer* layers, long count, const DecoderShape* shape, float* x,
                                 const float* cos, const float* sin, long position, float* workspace, int threads) {
    const DecoderShape s = *shape;
    cos += position * s.rope_width;
    sin += position * s.rope_width;
    const long E = s.head_width, group = s.heads / s.kv_heads;
    float* qkv = workspace;                                    // queries, keys, values
    float* attended = qkv + (s.heads + 2 * s.kv_heads) * E;    // the heads' outputs
    float* hidden = attended + s.heads * E;                    // gate, then up
    float* residual = hidden + 2 * s.feed_forward_width;       // what is added to x
#pragma omp parallel num_threads(threads)
    {
        const int t = omp_get_thread_num(), n = omp_get_num_threads();
        const Workspace<> normed_row(s.width);
        const Workspace<int16_t> quantized_row(longest_row(s));
        const Workspace<int32_t> all_positions(position + 1);
        int16_t* quantized = quantized_row.get();
        float* normed = normed_row.get();
        SingleQueryAttention attention(position + 1);
        const Positions positions = select_positions(nullptr, position + 1, all_positions.get());
        for (long l = 0; l < count; l++) {
            const DecoderLayer& layer = layers[l];
            rms_norm(layer.attention_norm, x, s.width, normed);
            const long projected = layer.qkv.rows;
            multiply(layer.qkv, normed, quantized, qkv, row_chunk_start(projected, t, n),
                     row_chunk_start(projected, t + 1, n));
#pragma omp barrier
            for (long k = chunk_start(s.kv_heads, t, n); k < chunk_start(s.kv_heads, t + 1, n); k++) {
                float* key = qkv + (s.heads + k) * E;
                const float* value = qkv + (s.heads + s.kv_heads + k) * E;
                float* keys = layer.keys + k * s.capacity * E;
                float* values = layer.values + k * s.capacity * E;
                rotate(key, cos, sin, s);
                std::memcpy(keys + position * E, key, E * sizeof(float));
                std::memcpy(values + position * E, value, E * sizeof(float));
                for (long h = k * group; h < (k + 1) * group; h++) {
                    rotate(qkv + h * E, cos, sin, s);
                    attention.attend(qkv + h * E, {keys, E}, {values, E}, positions, E, s.scale, attended + h * E);
                }
            }
#pragma omp barrier
            const long begin = row_chunk_start(s.width, t, n), end = row_chunk_start(s.width, t + 1, n);
            multiply(layer.attention_output, attended, quantized, residual, begin, end);
            for (long i = begin; i < end; i++) x[i] += residual[i];
#pragma omp barrier
            rms_norm(layer.feed_forward_norm, x, s.width, normed);
            const long F = s.feed_forward_width;
            const long first = row_chunk_start(F, t, n);
            const long last = row_chunk_start(F, t + 1, n);
            multiply(layer.gate_up, normed, quantized, hidden, first, last);
            multiply(layer.gate_up, normed, quantized, hidden, F + first, F + last);
            with_activation(s.activation, [=](auto known) {
                for (long i = first; i < last; i++) hidden[i] = activate<known>(hidden[i]) * hidden[F + i];
            });
#pragma omp barrier
            multiply(layer.down, hidden, quantized, residual, begin, end);
            for (long i = begin; i < end; i++) x[i] += residual[i];
#pragma omp barrier
        }
    }
    rms_norm(s.final_norm, x, s.width, x);
}

// Row `index` of an int8 matrix, as floats.
QKV_EXPORT void qkv_dequantize_row(const Matrix* m, long index, float* out) {
    const int8_t* row = static_cast<const int8_t*>(m->data) + index * m->columns;
    for (long i = 0; i < m->columns; i++) out[i] = row[i] * m->scale[index];
}

// out = W·x + b
QKV_EXPORT void qkv_matvec(const Matrix* m, const float* x, float* out, int threads) {
#pragma omp parallel num_threads(threads)
    {
        const int t = omp_get_thread_num(), n = omp_get_num_threads();
        const Workspace<int16_t> quantized(m->columns);
        multiply(*m, x, quantized.get(), out, row_chunk_start(m->rows, t, n), row_chunk_start(m->rows, t + 1, n));
    }
}

// The argmax of the first `count` logits W·x + b, and its log-probability among them. Blocks are summed
// in their order, however many threads there are.
QKV_EXPORT long qkv_argmax_logprob(const Matrix* m, const float* x, long count, float* logprob, int threads) {
    const long blocks = (count + LOGITS_BLOCK - 1) / LOGITS_BLOCK;
    const Workspace<PartialSoftmax> partial(blocks);
#pragma omp parallel num_threads(threads)
    {
        const int t = omp_get_thread_num(), n = omp_get_num_threads();
        const Workspace<int16_t> quantized(m->columns);
        float logits[LOGITS_BLOCK];
        for (long b = chunk_start(blocks, t, n); b < chunk_start(blocks, t + 1, n); b++) {
            const long begin = b * LOGITS_BLOCK, size = std::min(LOGITS_BLOCK, count - begin);
            multiply(row_slice(*m, begin, begin + size), x, quantized.get(), logits, 0, size);
            partial[b] = partial_softmax(logits, size);
        }
    }
    long best = 0;
    for (long b = 1; b < blocks; b++) {
        if (partial[b].max > partial[best].max) best = b;
    }
    float sum = 0.0f;
    for (long b = 0; b < blocks; b++) sum += partial[b].sum * std::exp(partial[b].max - partial[best].max);
    *logprob = -std::log(sum);
    return best * LOGITS_BLOCK + partial[best].argmax;
}
