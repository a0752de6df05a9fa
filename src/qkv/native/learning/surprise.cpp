// How surprising the right answers are, and the slope of that by what the scores are made of.
#include "../numbers.h"
#include "../threads.h"
#include "blocks.h"

using namespace qkv;

namespace {

constexpr long ROWS = 48;  // whose scores a core holds at a time

// A row of scores becomes the slope of its loss, which is −log of what the target gets, and with a
// smoothing also a share of that of every token.
float surprise(float* row, long columns, int64_t target, float smoothing) {
    int32_t order = order_of(row[0]);
    float plain = 0.0f;
    for (long i = 0; i < columns; i++) {
        const int32_t next = order_of(row[i]);
        order = next > order ? next : order;
        plain += row[i];
    }
    const float most = at_order(order), hit = row[target];
    float total = 0.0f;
    for (long i = 0; i < columns; i++) {
        row[i] = exponential(row[i] - most);
        total += row[i];
    }
    const float all = most + std::log(total), share = 1.0f / total, less = smoothing / columns;
    for (long i = 0; i < columns; i++) row[i] = row[i] * share - less;
    row[target] -= 1.0f - smoothing;
    return (1.0f - smoothing) * (all - hit) + smoothing * (all - plain / columns);
}

}  // namespace

extern "C" {

// losses (rows) of states (rows, width) · table (tokens, width)ᵀ + bias (or null), and the slopes of
// their sum; the width is whole lanes. Each core scores some rows; then each adds what all of these
// say to the slope by tokens of its own.
void scored(const float* states, const float* table, const float* bias, const int64_t* targets, float smoothing,
            float* losses, float* to_states, float* to_table, float* to_bias, long rows, long tokens, long width,
            int threads) {
    const long held = ROWS * threads;
    Room packed(new float[packed_size(tokens, width)]), scores(new float[held * tokens]);
#pragma omp parallel num_threads(threads)
    {
        Room room(new float[HIGH * DEEP]);
#pragma omp for schedule(static)
        for (long p = 0; p < (tokens + PANEL - 1) / PANEL; p++) {
            pack(table, width, true, tokens, width, p, packed.get() + p * PANEL * width);
        }
        for (long first = 0; first < rows; first += held) {
            const long some = fewer(held, rows - first);
#pragma omp for schedule(static, 1)
            for (long own = 0; own < some; own += ROWS) {
                const long count = fewer(ROWS, some - own), at = first + own;
                float* of = scores.get() + own * tokens;
                block({states + at * width, width, 1}, count, {packed.get(), PANEL * width, PANEL}, of, tokens, tokens,
                      width, false);
                for (long r = 0; r < count; r++) {
                    float* row = of + r * tokens;
                    for (long i = 0; bias && i < tokens; i++) row[i] += bias[i];
                    losses[at + r] = surprise(row, tokens, targets[at + r], smoothing);
                }
                block({of, tokens, 1}, count, {table, PANEL, width}, to_states + at * width, width, width, tokens, false);
            }
#pragma omp for schedule(static)
            for (long t = 0; t < tokens; t += HIGH) {
                const long high = fewer(HIGH, tokens - t);
                block_of_columns({scores.get() + t, 1, tokens}, high, {states + first * width, PANEL, width},
                                 to_table + t * width, width, width, some, first > 0, room.get());
                for (long r = 0; to_bias && r < some; r++) {
                    for (long i = t; i < t + high; i++) to_bias[i] += scores[r * tokens + i];
                }
            }
        }
    }
}

}  // extern "C"
