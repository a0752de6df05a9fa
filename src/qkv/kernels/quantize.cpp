// Rows to int8 and back, around integer matrix products.
#include "quantize.h"

#include "activations.h"
#include "export.h"
#include "openmp.h"
#include "workspace.h"

using namespace qkv;

// Each row as integers from −127 to 127 times a scale of its own.
QKV_EXPORT void qkv_quantize_rows(const float* x, int8_t* quantized, float* scale, long rows, long columns,
                                  int threads) {
#pragma omp parallel for num_threads(threads)
    for (long r = 0; r < rows; r++) {
        scale[r] = absmax(x + r * columns, columns) / INT8_LIMIT;
        quantize_row(x + r * columns, columns, scale[r], quantized + r * columns);
    }
}

// Integer sums become the floats they stand for, plus bias, in place.
QKV_EXPORT void qkv_dequantize(int32_t* sums, const float* row_scale, const float* column_scale, const float* bias,
                               long rows, long columns, int threads) {
#pragma omp parallel for num_threads(threads)
    for (long r = 0; r < rows; r++) {
        int32_t* row = sums + r * columns;
        for (long i = 0; i < columns; i++) {
            row[i] = float_to_bits(row[i] * row_scale[r] * column_scale[i] + bias[i]);
        }
    }
}

// The same, through an activation, and quantized again for the next product.
QKV_EXPORT void qkv_dequantize_activate_quantize(const int32_t* sums, const float* row_scale,
                                                 const float* column_scale, const float* bias, int8_t* quantized,
                                                 float* next_scale, long rows, long columns, int kind, int threads) {
    with_activation(kind, [=](auto known) {
#pragma omp parallel num_threads(threads)
        {
            const Workspace<> workspace(columns);
            float* hidden = workspace.get();
#pragma omp for
            for (long r = 0; r < rows; r++) {
                const int32_t* row = sums + r * columns;
                for (long i = 0; i < columns; i++) {
                    hidden[i] = activate<known>(row[i] * row_scale[r] * column_scale[i] + bias[i]);
                }
                next_scale[r] = absmax(hidden, columns) / INT8_LIMIT;
                quantize_row(hidden, columns, next_scale[r], quantized + r * columns);
            }
        }
    });
}
