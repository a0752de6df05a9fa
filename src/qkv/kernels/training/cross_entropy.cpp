// Cross-entropy from hidden states, with the gradients of states and embedding: only the logits of a few
// rows exist at any time.
#include "../export.h"
#include "../fast_math.h"
#include "../openmp.h"
#include "gemm_blocked.h"

using namespace qkv;

namespace {

constexpr long MAX_ROWS = 48;          // rows whose logits a core holds at a time,
constexpr long MAX_LOGITS = 1L << 24;  // and logits that all cores hold, unless two rows each are more

// The largest number of a row, or NaN if it has one.
float row_max(const float* row, long columns) {
    int32_t ordered = to_ordered(row[0]);
    for (long i = 0; i < columns; i++) {
        const int32_t next = to_ordered(row[i]);
        ordered = next > ordered ? next : ordered;
    }
    return from_ordered(ordered);
}

// A row of logits becomes the gradient of its loss, which is returned: −log p of the target and, with
// label smoothing, a fraction of that of every token.
float cross_entropy(float* row, long columns, int64_t target, float smoothing) {
    int32_t ordered = to_ordered(row[0]);
    float logit_sum = 0.0f;
    for (long i = 0; i < columns; i++) {
        const int32_t next = to_ordered(row[i]);
        ordered = next > ordered ? next : ordered;
        logit_sum += row[i];
    }
    const float max = from_ordered(ordered), target_logit = row[target];
    float total = 0.0f;
    for (long i = 0; i < columns; i++) {
        row[i] = fast_exp(row[i] - max);
        total += row[i];
    }
    const float log_sum_exp = max + std::log(total), factor = 1.0f / total, uniform = smoothing / columns;
    for (long i = 0; i < columns; i++) row[i] = row[i] * factor - uniform;
    row[target] -= 1.0f - smoothing;
    return (1.0f - smoothing) * (log_sum_exp - target_logit) + smoothing * (log_sum_exp - logit_sum / columns);
}

float log_sum_exp_of(const float* row, long columns) {
    const float max = row_max(row, columns);
    float total = 0.0f;
    for (long i = 0; i < columns; i++) total += fast_exp(row[i] - max);
    return max + std::log(total);
}

// R-Drop (Wu et al. 2021): two rows of logits for one target, made with different dropout masks, become
// the gradients of their loss: the mean cross-entropy, and `weight` times the mean of both KL divergences
// between them.
float r_drop(float* first, float* second, long columns, int64_t target, float smoothing, float weight) {
    const float first_lse = log_sum_exp_of(first, columns), second_lse = log_sum_exp_of(second, columns);
    const float target_logits = first[target] + second[target];
    float logprob_sum = 0.0f, first_mean = 0.0f, second_mean = 0.0f;  // means of log p − log q under p and q
    for (long i = 0; i < columns; i++) {
        const float p = first[i] - first_lse, q = second[i] - second_lse;
        logprob_sum += p + q;
        first_mean += fast_exp(p) * (p - q);
        second_mean += fast_exp(q) * (p - q);
    }
    const float uniform = smoothing / columns;
    for (long i = 0; i < columns; i++) {
        const float p = first[i] - first_lse, q = second[i] - second_lse, log_ratio = p - q;
        const float P = fast_exp(p), Q = fast_exp(q);
        first[i] = 0.5f * (P - uniform + weight * (P * (log_ratio - first_mean) + P - Q));
        second[i] = 0.5f * (Q - uniform + weight * (Q * (second_mean - log_ratio) + Q - P));
    }
    first[target] -= 0.5f * (1.0f - smoothing);
    second[target] -= 0.5f * (1.0f - smoothing);
    const float nll = (1.0f - smoothing) * (first_lse + second_lse - target_logits) - uniform * logprob_sum;
    return 0.5f * (nll + weight * (first_mean - second_mean));
}

}  // namespace

// losses (rows) of the logits states (rows, width) · embedding (tokens, width)ᵀ + bias (or null), and the
// gradients of their sum; the width is a multiple of LANES. Each thread computes the logits of some rows;
// then each adds what all of those contribute to the gradient of some tokens. With r_drop_weight, rows 2i
// and 2i + 1 have one target, and their loss is stored with the first.
QKV_EXPORT void qkv_cross_entropy(const float* states, const float* embedding, const float* bias,
                                  const int64_t* targets, float smoothing, float r_drop_weight, float* losses,
                                  float* grad_states, float* grad_embedding, float* grad_bias, long rows, long tokens,
                                  long width, int threads) {
    const long fitting = MAX_LOGITS / (tokens * threads) / 2 * 2;  // even, so that pairs stay together
    const long rows_per_thread = fitting < 2 ? 2 : std::min(MAX_ROWS, fitting);
    const long rows_at_once = rows_per_thread * threads;
    const Workspace<> packed(packed_size(tokens, width)), logits(rows_at_once * tokens);
#pragma omp parallel num_threads(threads)
    {
        const Workspace<> workspace(BLOCK_ROWS * BLOCK_DEPTH);
#pragma omp for schedule(static)
        for (long p = 0; p < panel_count(tokens); p++) {
            pack_panel(embedding, width, true, tokens, width, p, packed.get() + p * PANEL * width);
        }
        for (long first = 0; first < rows; first += rows_at_once) {
            const long batch = std::min(rows_at_once, rows - first);
#pragma omp for schedule(static, 1)
            for (long start = 0; start < batch; start += rows_per_thread) {
                const long count = std::min(rows_per_thread, batch - start), at = first + start;
                float* block = logits.get() + start * tokens;
                gemm_block({states + at * width, width, 1}, count, {packed.get(), PANEL * width, PANEL}, block, tokens,
                           tokens, width, false);
                for (long r = 0; r < count; r++) {
                    float* row = block + r * tokens;
                    for (long i = 0; bias && i < tokens; i++) row[i] += bias[i];
                    if (r_drop_weight == 0.0f) losses[at + r] = cross_entropy(row, tokens, targets[at + r], smoothing);
                }
                for (long r = 0; r_drop_weight != 0.0f && r < count; r += 2) {
                    float* row = block + r * tokens;
                    losses[at + r] = r_drop(row, row + tokens, tokens, targets[at + r], smoothing, r_drop_weight);
                    losses[at + r + 1] = 0.0f;
                }
                gemm_block({block, tokens, 1}, count, {embedding, PANEL, width}, grad_states + at * width, width, width,
                           tokens, false);
            }
#pragma omp for schedule(static)
            for (long t = 0; t < tokens; t += BLOCK_ROWS) {
                const long count = std::min(BLOCK_ROWS, tokens - t);
                gemm_block_transposed({logits.get() + t, 1, tokens}, count, {states + first * width, PANEL, width},
                                      grad_embedding + t * width, width, width, batch, first > 0, workspace.get());
                for (long r = 0; grad_bias && r < batch; r++) {
                    for (long i = t; i < t + count; i++) grad_bias[i] += logits[r * tokens + i];
                }
            }
        }
    }
}
