// A residual sum and the LayerNorm behind it, in one pass over memory.
#include <cmath>

#include "export.h"
#include "openmp.h"

// x becomes layer_norm(x + residual) × gain + shift.
QKV_EXPORT void qkv_add_layer_norm(float* x, const float* residual, const float* gain, const float* shift, float eps,
                                   long rows, long columns, int threads) {
#pragma omp parallel for num_threads(threads)
    for (long r = 0; r < rows; r++) {
        float* row = x + r * columns;
        const float* other = residual + r * columns;
        float sum = 0.0f;
        for (long i = 0; i < columns; i++) {
            row[i] += other[i];
            sum += row[i];
        }
        const float mean = sum / columns;
        float squares = 0.0f;
        for (long i = 0; i < columns; i++) squares += (row[i] - mean) * (row[i] - mean);
        const float scale = 1.0f / std::sqrt(squares / columns + eps);
        for (long i = 0; i < columns; i++) row[i] = (row[i] - mean) * scale * gain[i] + shift[i];
    }
}
