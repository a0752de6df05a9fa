// The sizes of the structs that Python mirrors.
#include "abi.h"

#include <cstring>

#include "export.h"

using namespace qkv;

// sizeof the struct of that name, or -1 if there is none.
QKV_EXPORT long qkv_sizeof(const char* name) {
    const struct {
        const char* name;
        long size;
    } known[] = {
        {"Matrix", sizeof(Matrix)},
        {"PackedMatrix", sizeof(PackedMatrix)},
        {"RmsNorm", sizeof(RmsNorm)},
        {"DecoderLayer", sizeof(DecoderLayer)},
        {"DecoderShape", sizeof(DecoderShape)},
        {"Strides", sizeof(Strides)},
    };
    for (const auto& each : known) {
        if (!std::strcmp(each.name, name)) return each.size;
    }
    return -1;
}
