// Attention with its backward pass, sequence by sequence and head by head, so that everything a head
// needs stays in a core's own caches. QK norm and RoPE are applied on the way. As in FlashAttention (Dao
// et al. 2022) the weights are not stored: the backward pass recomputes them from the log-sum-exp.
#include <cmath>
#include <limits>
#include <utility>

#include "../export.h"
#include "../fast_math.h"
#include "../openmp.h"
#include "../softmax.h"
#include "../workspace.h"
#include "gemm_strip.h"
#include "training_abi.h"

using namespace qkv;

namespace {

constexpr long QUERY_BLOCK = 11 * TILE_ROWS;  // queries at a time

inline float horizontal_sum(const Vec& x) {
    float lane[LANES], sum = 0.0f;
    store(x, lane);
    for (long i = 0; i < LANES; i++) sum += lane[i];
    return sum;
}

inline Vec vector_exp(const Vec& x) {
    float lane[LANES];
    store(x, lane);
    for (long i = 0; i < LANES; i++) lane[i] = fast_exp(lane[i]);
    return load(lane);
}

// The first `count` lanes; the others become 0.
inline Vec zero_tail(const Vec& x, long count) {
    return select_first(x, count, Vec{});
}

// A norm over a head's features and RoPE at its position, forward and backward.
class NormRope {
  public:
    NormRope(const float* gain, float eps, long width) : gain(gain), eps(eps), width(width) {}

    // out = rope(norm(x)) × factor
    void forward(const float* x, const float* cos, const float* sin, float factor, float* out) {
        float mean = 0.0f, rstd = 1.0f;
        if (gain) statistics(x, mean, rstd);
        for (long i = 0; i < width; i += LANES) {
            Vec value = load(x + i);
            if (gain) value = (value - mean) * rstd * load(gain + i);
            store(value * factor, out + i);
        }
        if (cos) rotate(out, cos, sin, 1.0f);
    }

    // The gradient of x from that of `forward`'s result with factor 1, which is overwritten; that of the
    // gain is accumulated.
    void backward(const float* x, const float* cos, const float* sin, float* grad_out, float* grad_x,
                  float* grad_gain) {
        if (cos) rotate(grad_out, cos, sin, -1.0f);
        if (!gain) {
            std::memcpy(grad_x, grad_out, width * sizeof(float));
            return;
        }
        float mean, rstd;
        statistics(x, mean, rstd);
        Vec sums = {}, products = {};
        for (long i = 0; i < width; i += LANES) {
            const Vec normed = (load(x + i) - mean) * rstd, grad = load(grad_out + i);
            const Vec grad_normed = grad * load(gain + i);
            sums += grad_normed;
            products += grad_normed * normed;
            store(load(grad_gain + i) + grad * normed, grad_gain + i);
        }
        const float mean_grad = horizontal_sum(sums) / width, mean_product = horizontal_sum(products) / width;
        for (long i = 0; i < width; i += LANES) {
            const Vec normed = (load(x + i) - mean) * rstd;
            store(rstd * (load(grad_out + i) * load(gain + i) - mean_grad - normed * mean_product), grad_x + i);
        }
    }

  private:
    void statistics(const float* x, float& mean, float& rstd) const {
        Vec sum = {}, squares = {};
        for (long i = 0; i < width; i += LANES) sum += load(x + i);
        mean = horizontal_sum(sum) / width;
        for (long i = 0; i < width; i += LANES) {
            const Vec centred = load(x + i) - mean;
            squares += centred * centred;
        }
        rstd = 1.0f / std::sqrt(horizontal_sum(squares) / width + eps);
    }

    // Feature i with feature i + width / 2, by each angle; sign −1 rotates back.
    void rotate(float* x, const float* cos, const float* sin, float sign) const {
        const long half = width / 2;
        for (long i = 0; i < half; i += LANES) {
            const Vec a = load(x + i), b = load(x + half + i), s = load(sin + i) * sign, c = load(cos + i);
            store(a * c - b * s, x + i);
            store(b * c + a * s, x + half + i);
        }
    }

    const float* gain;
    float eps;
    long width;
};

// The operands of one head of one sequence. Key positions are padded to whole vectors.
class Head {
  public:
    Head(const AttentionSpec& spec, bool backward)
        : spec(spec), E(spec.head_width), query(spec.q_gain, spec.q_eps, E), key(spec.k_gain, spec.k_eps, E) {
        long max_T = 0, max_S = 0;
        for (long b = 0; b < spec.sequences; b++) {
            max_T = std::max<long>(max_T, spec.q_counts[b]);
            max_S = std::max<long>(max_S, spec.k_counts[b]);
        }
        const long padded = round_up(max_S);
        const auto zeros = Workspace<>::zeros;
        q = zeros(max_T * E);
        k = zeros(max_S * E);
        k_transposed = zeros(E * padded);
        weights = zeros(QUERY_BLOCK * padded);
        if (!backward) return;
        v_transposed = zeros(E * padded);
        grad_scores = zeros(QUERY_BLOCK * padded);
        grad_q = zeros(max_T * E);
        grad_k = zeros(max_S * E);
        grad_v = zeros(max_S * E);
        gains = zeros(2 * E);
    }

    void read_keys(long b, const float* keys, long stride) {
        S = spec.k_counts[b];
        padded_S = round_up(S);
        for (long s = 0; s < S; s++) key.forward(keys + s * stride, cos(b, s), sin(b, s), 1.0f, &k[s * E]);
        transpose(k.get(), E, k_transposed.get());
    }

    // Only the backward pass needs them transposed.
    void read_values(const float* values, long stride) { transpose(values, stride, v_transposed.get()); }

    void read_queries(long b, const float* queries, long stride) {
        T = spec.q_counts[b];
        offset = S - T;
        for (long t = 0; t < T; t++) {
            query.forward(queries + t * stride, cos(b, t), sin(b, t), spec.scale, &q[t * E]);
        }
    }

    // out = softmax(q·kᵀ)·v, and the log-sum-exp of each query's scores.
    void forward(const float* values, long v_stride, float* out, long out_stride, float* log_sum_exp) {
        for (long first = 0; first < T; first += QUERY_BLOCK) {
            const long rows = std::min(QUERY_BLOCK, T - first);
            score(q.get(), E, k_transposed.get(), first, rows, weights.get());
            for (long r = 0; r < rows; r++) {
                log_sum_exp[first + r] = softmax(&weights[r * padded_S], visible(first + r), visible_to(first + rows));
            }
            gemm_banded({weights.get(), padded_S, 1}, rows, values, v_stride, out + first * out_stride, out_stride, E,
                        false, [&](long, long last) { return std::make_pair(0L, visible_to(first + last)); });
        }
    }

    // The gradients of q, k and v from that of `forward`'s result; those of k and v are accumulated.
    void backward(const float* out, long out_stride, const float* grad_out, long grad_stride,
                  const float* log_sum_exp) {
        for (long first = 0; first < T; first += QUERY_BLOCK) {
            const long rows = std::min(QUERY_BLOCK, T - first), stop = visible_to(first + rows);
            score(q.get(), E, k_transposed.get(), first, rows, weights.get());
            score(grad_out, grad_stride, v_transposed.get(), first, rows, grad_scores.get());
            for (long r = 0; r < rows; r++) {
                const long t = first + r;
                softmax_backward(&weights[r * padded_S], &grad_scores[r * padded_S], out + t * out_stride,
                                 grad_out + t * grad_stride, visible(t), stop, log_sum_exp[t]);
            }
            const auto keys_seen = [&](long, long last) { return std::make_pair(0L, visible_to(first + last)); };
            // Key s is seen by the queries from s − offset on.
            const auto queries_seeing = [&](long begin, long) {
                const long t = spec.causal ? begin - offset - first : 0;
                return std::make_pair(t < 0 ? 0 : t, rows);
            };
            gemm_banded({grad_scores.get(), padded_S, 1}, rows, k.get(), E, &grad_q[first * E], E, E, false, keys_seen);
            gemm_banded({grad_scores.get(), 1, padded_S}, stop, &q[first * E], E, grad_k.get(), E, E, true,
                        queries_seeing);
            gemm_banded({weights.get(), 1, padded_S}, stop, grad_out + first * grad_stride, grad_stride, grad_v.get(),
                        E, E, true, queries_seeing);
        }
    }

    void zero_grads() {
        std::memset(grad_k.get(), 0, S * E * sizeof(float));
        std::memset(grad_v.get(), 0, S * E * sizeof(float));
    }

    void write_query_grads(long b, const float* queries, long stride, float* to, long to_stride) {
        for (long t = 0; t < T; t++) {
            float* grad = &grad_q[t * E];
            for (long i = 0; i < E; i++) grad[i] *= spec.scale;
            query.backward(queries + t * stride, cos(b, t), sin(b, t), grad, to + t * to_stride, gains.get());
        }
    }

    void write_key_grads(long b, const float* keys, long stride, float* to, long to_stride) {
        for (long s = 0; s < S; s++) {
            key.backward(keys + s * stride, cos(b, s), sin(b, s), &grad_k[s * E], to + s * to_stride, gains.get() + E);
        }
    }

    void write_value_grads(float* to, long to_stride) {
        for (long s = 0; s < S; s++) std::memcpy(to + s * to_stride, &grad_v[s * E], E * sizeof(float));
    }

    // Of the query gain, then of the key gain.
    const float* gain_grads() const { return gains.get(); }

  private:
    const float* cos(long b, long position) const { return rope_row(spec.cos, b, position); }
    const float* sin(long b, long position) const { return rope_row(spec.sin, b, position); }
    const float* rope_row(const float* table, long b, long position) const {
        return table ? table + (spec.rope_starts[b] + position) * E : nullptr;
    }

    // How many keys query t sees; and how many the queries before `stop` see.
    long visible(long t) const {
        const long count = spec.causal ? t + 1 + offset : S;
        return std::clamp(count, 0L, S);
    }
    long visible_to(long stop) const { return visible(stop - 1); }

    // (S, E) -> (E, S), padded with zeros.
    void transpose(const float* rows, long stride, float* to) const {
        for (long i = 0; i < E; i++) {
            float* row = to + i * padded_S;
            for (long s = 0; s < S; s++) row[s] = rows[s * stride + i];
            for (long s = S; s < padded_S; s++) row[s] = 0.0f;
        }
    }

    // A block of rows (…, E) times a transposed matrix (E, S).
    void score(const float* vectors, long stride, const float* transposed, long first, long rows, float* to) {
        gemm_banded({vectors + first * stride, stride, 1}, rows, transposed, padded_S, to, padded_S,
                    round_up(visible_to(first + rows)), false, [&](long, long) { return std::make_pair(0L, E); });
    }

    // Scores become weights that sum to 1 over the first `count`, and 0 up to `stop`; returns the
    // log-sum-exp. A query that sees nothing has weights of 0.
    static float softmax(float* row, long count, long stop) {
        if (!count) {
            std::memset(row, 0, round_up(stop) * sizeof(float));
            return std::numeric_limits<float>::infinity();
        }
        Vec running_max = mask_tail(load(row), count);
        for (long s = LANES; s < count; s += LANES) {
            const Vec next = mask_tail(load(row + s), count - s);
            running_max = next > running_max ? next : running_max;
        }
        const float max = horizontal_max(running_max);
        Vec sums = {};
        for (long s = 0; s < count; s += LANES) {
            const Vec weight = zero_tail(vector_exp(load(row + s) - max), count - s);
            sums += weight;
            store(weight, row + s);
        }
        const float sum = horizontal_sum(sums), factor = 1.0f / sum;
        for (long s = 0; s < count; s += LANES) store(load(row + s) * factor, row + s);
        std::memset(row + round_up(count), 0, (round_up(stop) - round_up(count)) * sizeof(float));
        return max + std::log(sum);
    }

    // Scores become weights again, and the gradient of the weights becomes that of the scores:
    // w × (grad − Σ w·grad), where the sum is out·grad_out.
    void softmax_backward(float* row, float* grad, const float* out, const float* grad_out, long count, long stop,
                          float log_sum_exp) const {
        Vec products = {};
        for (long i = 0; i < E; i += LANES) products += load(out + i) * load(grad_out + i);
        const float weighted_grad = horizontal_sum(products);
        for (long s = 0; s < count; s += LANES) {
            const Vec weight = zero_tail(vector_exp(load(row + s) - log_sum_exp), count - s);
            store(weight, row + s);
            store(weight * (load(grad + s) - weighted_grad), grad + s);
        }
        const long rest = (round_up(stop) - round_up(count)) * sizeof(float);
        std::memset(row + round_up(count), 0, rest);
        std::memset(grad + round_up(count), 0, rest);
    }

    const AttentionSpec& spec;
    const long E;
    NormRope query, key;
    long T = 0, S = 0, padded_S = 0;
    long offset = 0;  // of queries to keys: the last query stands at the last key
    Workspace<> q, k, k_transposed, v_transposed, weights, grad_scores, grad_q, grad_k, grad_v, gains;
};

}  // namespace

// out (queries, heads·head_width) and log_sum_exp (heads, queries in all).
QKV_EXPORT void qkv_attention(const AttentionSpec* spec, const Projection* q, const Projection* k, const Projection* v,
                              const Projection* out, float* log_sum_exp, long queries, int threads) {
    const long E = spec->head_width, group = spec->heads / spec->kv_heads;
#pragma omp parallel num_threads(threads)
    {
        Head head(*spec, false);
#pragma omp for schedule(static)
        for (long task = 0; task < spec->sequences * spec->kv_heads; task++) {
            const long b = task / spec->kv_heads, kv_head = task % spec->kv_heads;
            const long q_start = spec->q_starts[b], k_start = spec->k_starts[b];
            head.read_keys(b, k->data + k_start * k->stride + kv_head * E, k->stride);
            for (long h = kv_head * group; h < (kv_head + 1) * group; h++) {
                head.read_queries(b, q->data + q_start * q->stride + h * E, q->stride);
                head.forward(v->data + k_start * v->stride + kv_head * E, v->stride,
                             out->data + q_start * out->stride + h * E, out->stride, log_sum_exp + h * queries + q_start);
            }
        }
    }
}

// The gradients of queries, keys and values, before their norms and RoPE, and of the two gains (or null).
QKV_EXPORT void qkv_attention_backward(const AttentionSpec* spec, const Projection* q, const Projection* k,
                                       const Projection* v, const Projection* out, const float* log_sum_exp,
                                       const Projection* grad_out, const Projection* grad_q, const Projection* grad_k,
                                       const Projection* grad_v, float* grad_q_gain, float* grad_k_gain, long queries,
                                       int threads) {
    const long E = spec->head_width, group = spec->heads / spec->kv_heads;
    const auto partial = Workspace<>::zeros(2 * E * threads);  // each thread sums up its own
#pragma omp parallel num_threads(threads)
    {
        Head head(*spec, true);
#pragma omp for schedule(static)
        for (long task = 0; task < spec->sequences * spec->kv_heads; task++) {
            const long b = task / spec->kv_heads, kv_head = task % spec->kv_heads;
            const long q_start = spec->q_starts[b], k_start = spec->k_starts[b];
            const float* keys = k->data + k_start * k->stride + kv_head * E;
            head.read_keys(b, keys, k->stride);
            head.read_values(v->data + k_start * v->stride + kv_head * E, v->stride);
            head.zero_grads();
            for (long h = kv_head * group; h < (kv_head + 1) * group; h++) {
                const float* query = q->data + q_start * q->stride + h * E;
                head.read_queries(b, query, q->stride);
                head.backward(out->data + q_start * out->stride + h * E, out->stride,
                              grad_out->data + q_start * grad_out->stride + h * E, grad_out->stride,
                              log_sum_exp + h * queries + q_start);
                head.write_query_grads(b, query, q->stride, grad_q->data + q_start * grad_q->stride + h * E,
                                       grad_q->stride);
            }
            head.write_key_grads(b, keys, k->stride, grad_k->data + k_start * grad_k->stride + kv_head * E,
                                 grad_k->stride);
            head.write_value_grads(grad_v->data + k_start * grad_v->stride + kv_head * E, grad_v->stride);
        }
        std::memcpy(&partial[2 * E * omp_get_thread_num()], head.gain_grads(), 2 * E * sizeof(float));
    }
    for (int t = 0; t < threads; t++) {
        for (long i = 0; i < E; i++) {
            if (grad_q_gain) grad_q_gain[i] += partial[2 * E * t + i];
            if (grad_k_gain) grad_k_gain[i] += partial[2 * E * t + E + i];
        }
    }
}
