// Dropout, residual sums and activations, forward and backward, each in one pass over memory.
#include "../export.h"
#include "activation_grads.h"
#include "dropout.h"
#include "parallel.h"

using namespace qkv;

// out = x + dropout(y); x may be null for 0.
QKV_EXPORT void qkv_dropout_add(const float* x, const float* y, float* out, long count, uint64_t seed,
                                uint32_t threshold, int threads) {
    for_each_vector({seed, threshold}, count, useful_threads(count, threads), [=](long at, long size, auto drop) {
        Vec sum = drop(load_partial(y + at, size));
        if (x) sum += load_partial(x + at, size);
        store_partial(sum, out + at, size);
    });
}

// out = dropout(activation(x))
QKV_EXPORT void qkv_activation(const float* x, float* out, long count, int kind, uint64_t seed, uint32_t threshold,
                               int threads) {
    with_activation(kind, [=](auto known) {
        for_each_vector({seed, threshold}, count, useful_threads(count, threads), [=](long at, long size, auto drop) {
            Vec value, grad;
            activate_with_grad<decltype(known)::value>(load_partial(x + at, size), value, grad);
            store_partial(drop(value), out + at, size);
        });
    });
}

// The gradient of x from that of `qkv_activation`'s result.
QKV_EXPORT void qkv_activation_backward(const float* x, const float* grad_out, float* grad_x, long count, int kind,
                                        uint64_t seed, uint32_t threshold, int threads) {
    with_activation(kind, [=](auto known) {
        for_each_vector({seed, threshold}, count, useful_threads(count, threads), [=](long at, long size, auto drop) {
            Vec value, grad;
            activate_with_grad<decltype(known)::value>(load_partial(x + at, size), value, grad);
            store_partial(drop(load_partial(grad_out + at, size)) * grad, grad_x + at, size);
        });
    });
}
