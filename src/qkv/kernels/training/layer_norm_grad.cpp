// LayerNorm, forward and backward, each in one pass over memory.
#include <cmath>

#include "../export.h"
#include "../openmp.h"
#include "../workspace.h"
#include "parallel.h"

using namespace qkv;

// out = (x − mean) × rstd × gain + shift (or null). mean and rstd = 1/√(variance + eps) of each row are
// stored in `statistics` (rows, 2) for the backward pass.
QKV_EXPORT void qkv_layer_norm(const float* x, const float* gain, const float* shift, float eps, float* out,
                               float* statistics, long rows, long columns, int threads) {
#pragma omp parallel for num_threads(useful_threads(rows * columns, threads))
    for (long r = 0; r < rows; r++) {
        const float* row = x + r * columns;
        float* out_row = out + r * columns;
        float sum = 0.0f, squares = 0.0f;
        for (long i = 0; i < columns; i++) sum += row[i];
        const float mean = sum / columns;
        for (long i = 0; i < columns; i++) squares += (row[i] - mean) * (row[i] - mean);
        const float rstd = 1.0f / std::sqrt(squares / columns + eps);
        if (shift) {
            for (long i = 0; i < columns; i++) out_row[i] = (row[i] - mean) * rstd * gain[i] + shift[i];
        } else {
            for (long i = 0; i < columns; i++) out_row[i] = (row[i] - mean) * rstd * gain[i];
        }
        statistics[2 * r] = mean;
        statistics[2 * r + 1] = rstd;
    }
}

// The gradients of x, gain and shift (or null) from that of `qkv_layer_norm`'s result.
QKV_EXPORT void qkv_layer_norm_backward(const float* x, const float* gain, const float* statistics,
                                        const float* grad_out, float* grad_x, float* grad_gain, float* grad_shift,
                                        long rows, long columns, int threads) {
    const int used = useful_threads(rows * columns, threads);
    const auto partial = Workspace<>::zeros(2 * used * columns);  // each thread sums up its own
#pragma omp parallel num_threads(used)
    {
        float* gain_sums = partial.get() + 2 * omp_get_thread_num() * columns;
        float* shift_sums = gain_sums + columns;
#pragma omp for schedule(static)
        for (long r = 0; r < rows; r++) {
            const float *row = x + r * columns, *grad_row = grad_out + r * columns;
            float* grad_x_row = grad_x + r * columns;
            const float mean = statistics[2 * r], rstd = statistics[2 * r + 1];
            float sum = 0.0f, product = 0.0f;
            for (long i = 0; i < columns; i++) {
                const float normed = (row[i] - mean) * rstd, grad_normed = grad_row[i] * gain[i];
                sum += grad_normed;
                product += grad_normed * normed;
                gain_sums[i] += grad_row[i] * normed;
            }
            if (grad_shift) {
                for (long i = 0; i < columns; i++) shift_sums[i] += grad_row[i];
            }
            const float mean_grad = sum / columns, mean_product = product / columns;
            for (long i = 0; i < columns; i++) {
                const float normed = (row[i] - mean) * rstd;
                grad_x_row[i] = rstd * (grad_row[i] * gain[i] - mean_grad - normed * mean_product);
            }
        }
    }
    for (int t = 0; t < used; t++) {
        const float *gain_sums = partial.get() + 2 * t * columns, *shift_sums = gain_sums + columns;
        for (long i = 0; i < columns; i++) grad_gain[i] += gain_sums[i];
        if (grad_shift) {
            for (long i = 0; i < columns; i++) grad_shift[i] += shift_sums[i];
        }
    }
}
