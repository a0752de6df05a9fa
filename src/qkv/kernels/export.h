// What a library exports. It is compiled with hidden visibility, so only functions marked here can be
// called from outside, and their `qkv_` prefix keeps them apart from those of other libraries in the
// process.
#pragma once

#define QKV_EXPORT extern "C" __attribute__((visibility("default")))
