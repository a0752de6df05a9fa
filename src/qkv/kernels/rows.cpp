// What happens to rows between two matrix products, each in one pass.
#include <vector>

#include "numbers.h"
#include "threads.h"

using namespace qkv;

extern "C" {

// x becomes x + more, centred and scaled to a variance of 1, times gain, plus shift.
void add_and_norm(float* x, const float* more, const float* gain, const float* shift, float eps,
                  long rows, long columns, int threads) {
#pragma omp parallel for num_threads(threads)
    for (long r = 0; r < rows; r++) {
        float* row = x + r * columns;
        const float* other = more + r * columns;
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

// Each row as whole numbers from −127 to 127 times a step of its own.
void round_rows(const float* x, int8_t* whole, float* step, long rows, long columns, int threads) {
#pragma omp parallel for num_threads(threads)
    for (long r = 0; r < rows; r++) {
        step[r] = size_of(x + r * columns, columns) / LARGEST;
        round_row(x + r * columns, columns, step[r], whole + r * columns);
    }
}

// Sums of products of whole numbers give way to what they stand for, plus bias.
void unround_rows(int32_t* sums, const float* step, const float* scale, const float* bias, long rows,
                  long columns, int threads) {
#pragma omp parallel for num_threads(threads)
    for (long r = 0; r < rows; r++) {
        int32_t* row = sums + r * columns;
        for (long i = 0; i < columns; i++) row[i] = bits_of(row[i] * step[r] * scale[i] + bias[i]);
    }
}

// The same, bent by an activation and rounded again.
void unround_bend_round(const int32_t* sums, const float* step, const float* scale,
                        const float* bias, int8_t* whole, float* next, long rows, long columns,
                        int kind, int threads) {
    with_activation(kind, [=](auto known) {
#pragma omp parallel num_threads(threads)
        {
            std::vector<float> room(columns);
            float* bent = room.data();
#pragma omp for
            for (long r = 0; r < rows; r++) {
                const int32_t* from = sums + r * columns;
                for (long i = 0; i < columns; i++) {
                    bent[i] = activated<known>(from[i] * step[r] * scale[i] + bias[i]);
                }
                next[r] = size_of(bent, columns) / LARGEST;
                round_row(bent, columns, next[r], whole + r * columns);
            }
        }
    });
}

}  // extern "C"
