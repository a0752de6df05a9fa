// How surprising the right answers are, and the slope of that by what the scores are made of.
#include "../numbers.h"
#include "../threads.h"
#include "blocks.h"

using namespace qkv;

namespace {

constexpr long MOST = 48;          // rows whose scores a core holds at a time,
constexpr long SCORES = 1L << 24;  // and numbers that all cores hold, if that is more than two rows each

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

// The logarithm of Σ e^score.
float total_of(const float* row, long columns) {
    int32_t order = order_of(row[0]);
    for (long i = 0; i < columns; i++) {
        const int32_t next = order_of(row[i]);
        order = next > order ? next : order;
    }
    const float most = at_order(order);
    float total = 0.0f;
    for (long i = 0; i < columns; i++) total += exponential(row[i] - most);
    return most + std::log(total);
}

// Two rows of scores that answer one question become the slopes of their loss: the mean of both, and
// the price times the mean of both divergences between them (R-Drop, Wu et al. 2021).
float surprise_of_two(float* one, float* other, long columns, int64_t target, float smoothing, float price) {
    const float all = total_of(one, columns), all_other = total_of(other, columns);
    const float hits = one[target] + other[target];
    float plain = 0.0f, to_one = 0.0f, to_other = 0.0f;
    for (long i = 0; i < columns; i++) {
        const float p = one[i] - all, q = other[i] - all_other;
        plain += p + q;
        to_one += exponential(p) * (p - q);
        to_other += exponential(q) * (p - q);
    }
    const float less = smoothing / columns;
    for (long i = 0; i < columns; i++) {
        const float p = one[i] - all, q = other[i] - all_other, apart = p - q;
        const float P = exponential(p), Q = exponential(q);
        one[i] = 0.5f * (P - less + price * (P * (apart - to_one) + P - Q));
        other[i] = 0.5f * (Q - less + price * (Q * (to_other - apart) + Q - P));
    }
    one[target] -= 0.5f * (1.0f - smoothing);
    other[target] -= 0.5f * (1.0f - smoothing);
    const float right = (1.0f - smoothing) * (all + all_other - hits) - less * plain;
    return 0.5f * (right + price * (to_one - to_other));
}

}  // namespace

extern "C" {

// losses (rows) of states (rows, width) · table (tokens, width)ᵀ + bias (or null), and the slopes of
// their sum; the width is whole lanes. Each core scores some rows; then each adds what all of these
// say to the slope by tokens of its own. With an agreement, neighbouring rows answer one question,
// and their loss stands with the first.
void scored(const float* states, const float* table, const float* bias, const int64_t* targets, float smoothing,
            float agreement, float* losses, float* to_states, float* to_table, float* to_bias, long rows,
            long tokens, long width, int threads) {
    const long fit = SCORES / (tokens * threads) / 2 * 2, each = fit < 2 ? 2 : fewer(MOST, fit);
    const long held = each * threads;
    const Room packed = room_for(packed_size(tokens, width)), scores = room_for(held * tokens);
#pragma omp parallel num_threads(threads)
    {
        const Room room = room_for(HIGH * DEEP);
#pragma omp for schedule(static)
        for (long p = 0; p < panels_in(tokens); p++) {
            pack(table, width, true, tokens, width, p, packed.get() + p * PANEL * width);
        }
        for (long first = 0; first < rows; first += held) {
            const long some = fewer(held, rows - first);
#pragma omp for schedule(static, 1)
            for (long own = 0; own < some; own += each) {
                const long count = fewer(each, some - own), at = first + own;
                float* of = scores.get() + own * tokens;
                block({states + at * width, width, 1}, count, {packed.get(), PANEL * width, PANEL}, of, tokens, tokens,
                      width, false);
                for (long r = 0; r < count; r++) {
                    float* row = of + r * tokens;
                    for (long i = 0; bias && i < tokens; i++) row[i] += bias[i];
                    if (agreement == 0.0f) losses[at + r] = surprise(row, tokens, targets[at + r], smoothing);
                }
                for (long r = 0; agreement != 0.0f && r < count; r += 2) {
                    float* row = of + r * tokens;
                    losses[at + r] = surprise_of_two(row, row + tokens, tokens, targets[at + r], smoothing, agreement);
                    losses[at + r + 1] = 0.0f;
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
