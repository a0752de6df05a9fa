// How surprising the right answers are, and the slope of that by the scores, in their place.
#include <vector>

#include "../lanes.h"
#include "../numbers.h"
#include "../threads.h"

using namespace qkv;

extern "C" {

// scores (rows, columns) become slopes; losses (rows) are −log of what the target gets, and with a
// smoothing also a share of that of every token. A negative target is none: 0, and no slope.
void surprise(float* scores, const int64_t* targets, float* losses, long rows, long columns, float smoothing,
              int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long r = 0; r < rows; r++) {
        float* row = scores + r * columns;
        const int64_t target = targets[r];
        if (target < 0) {
            for (long i = 0; i < columns; i++) row[i] = 0.0f;
            losses[r] = 0.0f;
            continue;
        }
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
        losses[r] = (1.0f - smoothing) * (all - hit) + smoothing * (all - plain / columns);
        for (long i = 0; i < columns; i++) row[i] = row[i] * share - less;
        row[target] -= 1.0f - smoothing;
    }
}

}  // extern "C"
