/* Products with 8-bit weights: y = x W + b, by the vector instructions that this processor has.

   In: rows of floats and weights of one byte. The rows are quantised, too, to 8 bits or up to 15; products are added in
   32 bits and therefore exact, and each step of the scaling is rounded once: the numbers are the same on every
   processor, and those of model_kernel.py. Needs neither Python nor a C library and keeps nothing between calls: any
   number of threads may call it at once.

   A pass over few positions waits for the weights. They are read once, in the order in which they lie in memory, for
   all rows.

   M rows, I inputs, O outputs; P parts of a row. */

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "no-tree-loop-distribute-patterns") /* that would call memset: there is no C library */
#endif

#include <stdint.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 4")

#ifndef SOURCE_DIGEST
#define SOURCE_DIGEST 0
#endif

enum { NONE, AVX2, AVX512_VNNI, NEON_DOT }; /* instruction sets, as model_kernel.py names them */

typedef struct {
    const int8_t *values; /* [O, I] */
    const float *scales;  /* [O] */
    const float *bias;    /* [O], or 0 */
    int64_t inputs, outputs;
} Weights;

enum {
    FOUR = 4,  /* outputs that are computed together: as many results as the smallest vectors hold */
    BLOCK = 16 /* rows for which all weights are read again: those of more, and their results, leave the fastest cache */
};
typedef int32_t Ints __attribute__((vector_size(16)));
typedef float Floats __attribute__((vector_size(16)));
typedef float Unaligned __attribute__((vector_size(16), aligned(4), may_alias));

INLINE Floats load(const float *from) { return *(const Unaligned *)from; }

INLINE void store(float *to, Floats values) { *(Unaligned *)to = values; }

typedef union {
    float number;
    int32_t bits;
} Float;

/* The largest absolute value of a row. */
INLINE float find_largest(const float *x, int64_t I) {
    Float largest = {.bits = 0}; /* floats from 0 on compare like their bits, and NaN is above all */
    for (int64_t i = 0; i < I; i++) {
        int32_t bits = ((Float){.number = x[i]}).bits & INT32_MAX;
        largest.bits = bits > largest.bits ? bits : largest.bits;
    }
    return largest.number;
}

/* The nearest integer, of two the even one. */
INLINE int32_t nearest(float x) {
    const Float rounder = {.number = 12582912.0f}; /* 1.5 * 2^23: the lowest bits of the sum are the integer */
    return (int16_t)(((Float){.number = x + rounder.number}).bits - rounder.bits);
}

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

/* Four vectors of sums -> four sums. */
INLINE __attribute__((target("avx2"))) Ints add_across(__m256i a, __m256i b, __m256i c, __m256i d) {
    __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    return (Ints)_mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}

/* Few registers, and products of 8 bits would overflow: weights are widened to 16 bits when they are loaded, and rows
   have 16 from the start, however fine they are. */
#define TARGET __attribute__((target("avx2")))
#define PRODUCT product_avx2
#define VECTOR __m256i
#define BYTES __m256i
#define ROW int16_t
#define WIDTH 16
#define TILE 2
#define ZERO _mm256_setzero_si256()
#define LOAD_WEIGHTS(from) _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(from)))
#define LOAD_ROW(from) _mm256_loadu_si256((const __m256i *)(from))
#define MULTIPLY_ADD(sum, w, x) _mm256_add_epi32(sum, _mm256_madd_epi16(w, x))
#define ADD_ACROSS(a, b, c, d) add_across(a, b, c, d)
#define EXCESS 0
#include "int8_product.h"

INLINE __attribute__((target("avx512f"))) __m256i halve(__m512i sums) {
    return _mm256_add_epi32(_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64(sums, 1));
}

/* The instruction takes one factor without a sign: weights, 128 too large. */
#define TARGET __attribute__((target("avx2,avx512f,avx512bw,avx512vnni")))
#define PRODUCT product_avx512_vnni
#define VECTOR __m512i
#define BYTES __m512i
#define ROW int8_t
#define WIDTH 64
#define TILE 4
#define ZERO _mm512_setzero_si512()
#define LOAD_WEIGHTS(from) _mm512_xor_si512(_mm512_loadu_si512(from), _mm512_set1_epi8(-128))
#define LOAD_ROW(from) _mm512_loadu_si512(from)
#define MULTIPLY_ADD(sum, w, x) _mm512_dpbusd_epi32(sum, w, x)
#define ADD_ACROSS(a, b, c, d) add_across(halve(a), halve(b), halve(c), halve(d))
#define EXCESS 128
#include "int8_product.h"

/* The registers that the operating system keeps for each thread. */
static uint32_t kept_registers(void) {
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

EXPORT int64_t instruction_set(void) {
    enum { OSXSAVE = 1 << 27, YMM = 0x6, ZMM = 0xe6, HAS_AVX2 = 1 << 5, F = 1 << 16, BW = 1 << 30, VNNI = 1 << 11 };
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & OSXSAVE)) return NONE;
    uint32_t kept = kept_registers();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (kept & YMM) != YMM || !(b & HAS_AVX2)) return NONE;
    return (kept & ZMM) == ZMM && (b & F) && (b & BW) && (c & VNNI) ? AVX512_VNNI : AVX2;
}

#elif defined(__aarch64__)

#include <arm_neon.h>

#if defined(__clang__)
#define TARGET __attribute__((target("dotprod")))
#else
#define TARGET __attribute__((target("arch=armv8.2-a+dotprod")))
#endif
#define PRODUCT product_neon_dot
#define VECTOR int32x4_t
#define BYTES int8x16_t
#define ROW int8_t
#define WIDTH 16
#define TILE 4
#define ZERO vdupq_n_s32(0)
#define LOAD_WEIGHTS(from) vld1q_s8(from)
#define LOAD_ROW(from) vld1q_s8(from)
#define MULTIPLY_ADD(sum, w, x) vdotq_s32(sum, w, x)
#define ADD_ACROSS(a, b, c, d) ((Ints)vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d)))
#define EXCESS 0
#include "int8_product.h"

EXPORT int64_t instruction_set(void) {
#if defined(__APPLE__)
    return NEON_DOT; /* every processor that Apple sells for computers */
#elif defined(__linux__)
    uint64_t features; /* Linux lets programs read this register */
    __asm__("mrs %0, ID_AA64ISAR0_EL1" : "=r"(features));
    return features >> 44 & 15 ? NEON_DOT : NONE;
#else
    return NONE;
#endif
}

#else

EXPORT int64_t instruction_set(void) { return NONE; }

#endif

/* y [M, O] = x [M, I] W + b, by an instruction set that this processor has. The largest value of a quantised row is
   `largest`, at most 127 * 128, and 128 * I * largest less than 2^31; scratch [M * (2 I + 12)] bytes. */
EXPORT void multiply(int64_t set, const Weights *w, const float *x, int64_t M, int64_t largest, float *y,
                     void *scratch) {
#if defined(__x86_64__)
    if (set == AVX512_VNNI) product_avx512_vnni(w, x, M, largest, y, scratch);
    if (set == AVX2) product_avx2(w, x, M, largest, y, scratch);
#elif defined(__aarch64__)
    if (set == NEON_DOT) product_neon_dot(w, x, M, largest, y, scratch);
#endif
}

/* Identifies the sources; set when they are compiled. A library compiled from others is not used. */
EXPORT uint64_t source_digest(void) { return SOURCE_DIGEST; }
