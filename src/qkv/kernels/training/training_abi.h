// The structs that Python fills in; `training.py` mirrors them field by field with ctypes. Sizes are
// checked as in ../abi.h.
#pragma once

#include <cstdint>

namespace qkv {

// Queries, keys or values of all tokens: those of token n begin at n·stride, head after head.
struct Projection {
    float* data;
    long stride;
};

// Attention of sequences that are packed one after the other. Sequence b has the queries from q_starts[b]
// on, q_counts[b] of them, and so on; its position 0 is row rope_starts[b] of cos and sin.
struct AttentionSpec {
    long sequences, heads, kv_heads, head_width;
    const int64_t *q_starts, *q_counts, *k_starts, *k_counts, *rope_starts;
    const float *q_gain, *k_gain;  // of norms over a head (QK norm), or null
    float q_eps, k_eps;
    const float *cos, *sin;  // (positions, head_width), or null
    float scale;
    int causal;
};

// A Newton–Schulz step: x ← a·x + (b·s + c·s²)·x with s = x·xᵀ.
struct Quintic {
    float a, b, c;
};

#if __SIZEOF_LONG__ == 8 && __SIZEOF_POINTER__ == 8
static_assert(sizeof(Projection) == 16, "mirrored in training.py");
static_assert(sizeof(AttentionSpec) == 120, "mirrored in training.py");
static_assert(sizeof(Quintic) == 12, "mirrored in training.py");
#endif

}  // namespace qkv
