/* What native.c, native_sparse.c and native_ring.c begin with: passes over tensors that codecs spend most of their time
 * in, and a ring, for x86-64 with AVX2, FMA and F16C.
 *
 * native.py says how they are called; what codecs do without them they do with torch and numpy, to the same bits. So
 * nothing may be contracted or reordered (-ffp-contract=off, no -ffast-math): where torch rounds once, an fma is
 * written; where it adds up in an order, that order is kept. What is not finite is left to torch and numpy, because
 * which NaN comes out of two is nobody's promise.
 *
 * No function knows of Python: they are called by ctypes, which lets other threads run meanwhile. All memory is the
 * caller's. A vector of elements is `x`, of `n`; `blocks` of `block` elements each follow one another, the last one
 * may be shorter.
 */
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

#if defined(__x86_64__) && defined(__GNUC__)
#define FOR_THIS_PROCESSOR 1

#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

/* native.py asks bw_supported before it calls anything. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#endif

#define INLINE static inline __attribute__((always_inline))

typedef int64_t i64;

INLINE i64 least(i64 a, i64 b) { return a < b ? a : b; }
INLINE int is_finite(float value) { return value - value == 0.0f; }

#endif
