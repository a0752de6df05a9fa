// The structs that Python fills in; `inference.py` mirrors them field by field with ctypes.
//
// Their sizes are checked twice: by the compiler below, and by Python when it loads the library, which
// compares each with `qkv_sizeof`.
#pragma once

namespace qkv {

// A weight matrix (rows, columns): float32, or int8 with a scale for each row. bias may be null.
struct Matrix {
    const void* data;
    const float* scale;
    const float* bias;
    long rows, columns;
};

// A matrix (outputs, inputs) packed into panels: the weights of all outputs of a panel for input 0,
// then for input 1, and so on. The last panel is padded with zeros.
struct PackedMatrix {
    const float* data;
    const float* bias;  // or null
    long outputs, inputs;
    const PackedMatrix* next;  // the matrix that is likely read after this one, or null
};

struct RmsNorm {
    const float* gain;
    float eps;
};

// One layer of a Llama-style decoder; keys and values are (kv_heads, capacity, head_width).
struct DecoderLayer {
    RmsNorm attention_norm, feed_forward_norm;
    Matrix qkv, attention_output, gate_up, down;
    float* keys;
    float* values;
};

// What all layers of a decoder have in common.
struct DecoderShape {
    long width, heads, kv_heads, head_width, feed_forward_width, capacity;
    long rope_width;       // features of a head that are rotated
    int rope_interleaved;  // whether feature 2i is paired with 2i + 1, or i with i + rope_width / 2
    int activation;
    float scale;           // of the attention scores
    RmsNorm final_norm;
};

// How far apart neighbours along each axis are, in numbers; the last axis is contiguous.
struct Strides {
    long batch, head, position;
};

#if __SIZEOF_LONG__ == 8 && __SIZEOF_POINTER__ == 8
static_assert(sizeof(Matrix) == 40, "mirrored in inference.py");
static_assert(sizeof(PackedMatrix) == 40, "mirrored in inference.py");
static_assert(sizeof(RmsNorm) == 16, "mirrored in inference.py");
static_assert(sizeof(DecoderLayer) == 208, "mirrored in inference.py");
static_assert(sizeof(DecoderShape) == 88, "mirrored in inference.py");
static_assert(sizeof(Strides) == 24, "mirrored in inference.py");
#endif

}  // namespace qkv
