/* Sparse codecs: which entries are the largest, the code of their places, values at places. */
#include "native.h"

#ifdef FOR_THIS_PROCESSOR

/* ---- the largest entries ---- */

#define MAGNITUDE_BITS 0x7FFFFFFF

/* Magnitudes, as bits, of `count` entries at the places that sparse.py spreads over x. */
EXPORT void bw_sample(const int32_t *x, i64 n, i64 count, int32_t *magnitudes)
{
    uint64_t step = 0;
    for (i64 i = 0; i < count; i++) {
        step += 0x9E3779B97F4A7C15ull;
        magnitudes[i] = x[(step >> 32) * (uint64_t)n >> 32] & MAGNITUDE_BITS;
    }
}

INLINE uint32_t large_of_32(const int32_t *x, __m256i least_bits)
{
    const __m256i mask = _mm256_set1_epi32(MAGNITUDE_BITS), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i found[4];
    for (int k = 0; k < 4; k++) {
        __m256i magnitudes = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(x + 8 * k)), mask);
        found[k] = _mm256_cmpgt_epi32(magnitudes, least_bits);
    }
    __m256i low = _mm256_packs_epi32(found[0], found[1]), high = _mm256_packs_epi32(found[2], found[3]);
    return (uint32_t)_mm256_movemask_epi8(_mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order));
}

#define AT_ONCE 4  /* indices that are written of 64 elements without asking how many there are */

/* Indices, ascending, of the elements from `begin` to `n` whose magnitude is the threshold or more, as bits, above 0.
 * `places` has room for `room` of them, more than 64: where it gets scarce the search ends. Returns how many there are;
 * `*reached` is the first element that was not looked at. */
EXPORT i64 bw_at_least(const int32_t *x, i64 begin, i64 n, int32_t threshold, i64 *places, i64 room, i64 *reached)
{
    const __m256i below = _mm256_set1_epi32(threshold - 1);
    i64 count = 0, i = begin;
    for (; i + 64 <= n && count + 64 <= room; i += 64) {
        uint64_t found = large_of_32(x + i, below) | (uint64_t)large_of_32(x + i + 32, below) << 32;
        i64 more = _mm_popcnt_u64(found), *place = places + count;
        for (int k = 0; k < AT_ONCE; k++) {
            place[k] = i + (i64)_tzcnt_u64(found);
            found = _blsr_u64(found);
        }
        for (i64 k = AT_ONCE; k < more; k++) {
            place[k] = i + (i64)_tzcnt_u64(found);
            found = _blsr_u64(found);
        }
        count += more;
    }
    if (i + 64 > n)
        for (; i < n && count < room; i++) {
            places[count] = i;
            count += (x[i] & MAGNITUDE_BITS) >= threshold;
        }
    *reached = i;
    return count;
}

/* Magnitudes, as bits, of the entries at these places. */
EXPORT void bw_magnitudes_at(const int32_t *x, const i64 *places, i64 count, int32_t *magnitudes)
{
    for (i64 i = 0; i < count; i++)
        magnitudes[i] = x[places[i]] & MAGNITUDE_BITS;
}

/* The `count`-th largest of magnitudes, as bits; `count` is 1 to `n`. Digit by digit, the highest first: 11, 10 and 10
 * bits. */
EXPORT int32_t bw_rank(const int32_t *magnitudes, i64 n, i64 count)
{
    int32_t prefix = 0;
    for (int shift = 20; shift >= 0; shift -= 10) {
        int32_t numbers[2][2048] = {{0}}; /* two, so that equal digits one after the other need not wait */
        const int bits = shift == 20 ? 11 : 10;
        const int32_t mask = (1 << bits) - 1;
        i64 i = 0;
        for (; i + 2 <= n; i += 2)
            for (int k = 0; k < 2; k++)
                if ((i64)magnitudes[i + k] >> shift >> bits == prefix)
                    numbers[k][magnitudes[i + k] >> shift & mask]++;
        if (i < n && (i64)magnitudes[i] >> shift >> bits == prefix)
            numbers[0][magnitudes[i] >> shift & mask]++;
        int32_t digit = mask;
        for (; digit > 0 && count > numbers[0][digit] + numbers[1][digit]; digit--)
            count -= numbers[0][digit] + numbers[1][digit];
        prefix = prefix << bits | digit;
    }
    return prefix;
}

/* Of these places those whose magnitude is the threshold or more, into the same memory; returns how many. */
EXPORT i64 bw_keep_at_least(i64 *places, const int32_t *magnitudes, i64 count, int32_t threshold)
{
    i64 kept = 0;
    for (i64 i = 0; i < count; i++) {
        places[kept] = places[i];
        kept += magnitudes[i] >= threshold;
    }
    return kept;
}

/* ---- the code of places ---- */

/* As encode_indices of sparse.py: planes of low bits, then the rests in unary. `code` has room for most_index_bytes;
 * returns how many bytes there are. */
EXPORT i64 bw_encode_places(const i64 *places, i64 count, i64 low_bits, i64 room, uint8_t *code)
{
    const i64 plane_bytes = (count + 7) / 8, low_bytes = low_bits * plane_bytes;
    uint8_t *unary = code + low_bytes;
    memset(unary, 0, (size_t)(room - low_bytes));
    i64 before = -1, bit = -1;
    for (i64 i = 0; i < count; i += 8) {
        uint32_t gaps[8] = {0};  /* the first one last: it becomes the highest bit of a byte */
        for (i64 j = 0; j < 8 && i + j < count; j++) {
            i64 gap = places[i + j] - before - 1;
            before = places[i + j];
            gaps[7 - j] = (uint32_t)gap;
            bit += (gap >> low_bits) + 1;
            unary[bit >> 3] |= (uint8_t)(0x80 >> (bit & 7));
        }
        __m256i eight = _mm256_loadu_si256((const __m256i *)gaps);
        for (i64 low = low_bits - 1; low >= 0; low--) {
            __m256i highest = _mm256_sllv_epi32(eight, _mm256_set1_epi32((int)(31 - low)));
            uint8_t *plane = code + (low_bits - 1 - low) * plane_bytes;
            plane[i / 8] = (uint8_t)_mm256_movemask_ps(_mm256_castsi256_ps(highest));
        }
    }
    return low_bytes + bit / 8 + 1;
}

/* The places that bw_encode_places was given. Returns how many the code holds: where it is not `count`, they are no
 * good. */
EXPORT i64 bw_decode_places(const uint8_t *code, i64 code_bytes, i64 count, i64 low_bits, i64 *places)
{
    const i64 plane_bytes = (count + 7) / 8, low_bytes = low_bits * plane_bytes;
    if (code_bytes < low_bytes)
        return -1;
    i64 found = 0;
    for (i64 byte = low_bytes; byte < code_bytes; byte += 8) {
        uint64_t bits = 0;
        i64 length = least(8, code_bytes - byte);
        memcpy(&bits, code + byte, (size_t)length);
        bits = __builtin_bswap64(bits);
        for (i64 first = 8 * (byte - low_bytes); bits; found++) {
            i64 zeros = (i64)_lzcnt_u64(bits);
            if (found < count)
                places[found] = first + zeros;
            bits &= ~(0x8000000000000000ull >> zeros);
        }
    }
    if (found != count)
        return found;
    const __m256i lane = _mm256_setr_epi32(128, 64, 32, 16, 8, 4, 2, 1);
    i64 sum = 0;
    for (i64 i = 0; i < count; i += 8) {
        __m256i low = _mm256_setzero_si256();
        for (i64 plane = 0; plane < low_bits; plane++) {
            __m256i byte = _mm256_set1_epi32(code[plane * plane_bytes + i / 8]);
            __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(byte, lane), lane);
            low = _mm256_sub_epi32(_mm256_add_epi32(low, low), set);
        }
        uint32_t lows[8];
        _mm256_storeu_si256((__m256i *)lows, low);
        for (i64 j = 0; j < 8 && i + j < count; j++) {
            sum += lows[j];
            places[i + j] = ((places[i + j] - (i + j)) << low_bits) + sum + i + j;
        }
    }
    return count;
}

/* Zeros, but for `count` values at their places. Returns 1 where a place lies beyond `n`. */
EXPORT int bw_scatter(const float *values, const i64 *places, i64 count, float *dense, i64 n)
{
    memset(dense, 0, 4 * (size_t)n);
    for (i64 i = 0; i < count; i++) {
        if ((uint64_t)places[i] >= (uint64_t)n)
            return 1;
        dense[places[i]] = values[i];
    }
    return 0;
}

/* Adds values at their places. Returns 1 where a place lies beyond `n`, or, before anything is added, where a value is
 * not finite. */
EXPORT int bw_scatter_add(const float *values, const i64 *places, i64 count, float *total, i64 n)
{
    for (i64 i = 0; i < count; i++)
        if (!is_finite(values[i]))
            return 1;
    for (i64 i = 0; i < count; i++) {
        if ((uint64_t)places[i] >= (uint64_t)n)
            return 1;
        total[places[i]] += values[i];
    }
    return 0;
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC reset_options
#endif

#endif
