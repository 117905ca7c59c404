/* Dense codecs: halves, 8-bit codes, signs. */
#include "native.h"

#ifdef FOR_THIS_PROCESSOR

INLINE __m256 magnitude(__m256 x) { return _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF))); }

/* ---- halves ---- */

/* Bits of the smallest magnitude that does not round to a finite half: 65520. */
#define BEYOND_HALVES 0x477FF000
#define CHUNK 4096

/* Halves nearest to x, those too large at +-65504; returns 0. An infinity or NaN: returns 1, the halves are no good. */
EXPORT int bw_to_halves(const float *x, i64 n, uint16_t *halves)
{
    const __m256 largest = _mm256_set1_ps(65504.0f), smallest = _mm256_set1_ps(-65504.0f);
    for (i64 begin = 0; begin < n; begin += CHUNK) {
        i64 end = least(begin + CHUNK, n), i = begin;
        __m256i most = _mm256_setzero_si256();
        for (; i + 8 <= end; i += 8) {
            __m256 values = _mm256_loadu_ps(x + i);
            most = _mm256_max_epi32(most, _mm256_castps_si256(magnitude(values)));
            _mm_storeu_si128((__m128i *)(halves + i), _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
        }
        int large = !!_mm256_movemask_epi8(_mm256_cmpgt_epi32(most, _mm256_set1_epi32(BEYOND_HALVES - 1)));
        int strange = !!_mm256_movemask_epi8(_mm256_cmpgt_epi32(most, _mm256_set1_epi32(0x7F800000 - 1)));
        for (; i < end; i++) {
            uint32_t bits;
            memcpy(&bits, x + i, 4);
            bits &= 0x7FFFFFFF;
            large |= bits >= BEYOND_HALVES;
            strange |= bits >= 0x7F800000;
            halves[i] = _cvtss_sh(x[i], _MM_FROUND_TO_NEAREST_INT);
        }
        if (strange)
            return 1;
        if (large) {
            for (i = begin; i + 8 <= end; i += 8) {
                __m256 values = _mm256_min_ps(_mm256_max_ps(_mm256_loadu_ps(x + i), smallest), largest);
                _mm_storeu_si128((__m128i *)(halves + i), _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
            }
            for (; i < end; i++) {
                float value = x[i] > 65504.0f ? 65504.0f : x[i] < -65504.0f ? -65504.0f : x[i];
                halves[i] = _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
            }
        }
    }
    return 0;
}

/* The values of halves. An infinity or NaN among them: returns 1, the values are no good. */
EXPORT int bw_from_halves(const uint16_t *halves, i64 n, float *values)
{
    const __m128i exponent = _mm_set1_epi16(0x7C00);
    __m128i strange = _mm_setzero_si128();
    i64 i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i eight = _mm_loadu_si128((const __m128i *)(halves + i));
        strange = _mm_or_si128(strange, _mm_cmpeq_epi16(_mm_and_si128(eight, exponent), exponent));
        _mm256_storeu_ps(values + i, _mm256_cvtph_ps(eight));
    }
    int any = !!_mm_movemask_epi8(strange);
    for (; i < n; i++) {
        any |= (halves[i] & 0x7C00) == 0x7C00;
        values[i] = _cvtsh_ss(halves[i]);
    }
    return any;
}

/* Adds the values of halves to total. Returns how many were added: those before the chunk of an infinity or NaN. */
EXPORT i64 bw_add_halves(const uint16_t *halves, i64 n, float *total)
{
    const __m128i exponent = _mm_set1_epi16(0x7C00);
    for (i64 begin = 0; begin < n; begin += CHUNK) {
        i64 end = least(begin + CHUNK, n), i = begin;
        __m128i strange = _mm_setzero_si128();
        int any = 0;
        for (; i + 8 <= end; i += 8) {
            __m128i eight = _mm_loadu_si128((const __m128i *)(halves + i));
            strange = _mm_or_si128(strange, _mm_cmpeq_epi16(_mm_and_si128(eight, exponent), exponent));
        }
        for (; i < end; i++)
            any |= (halves[i] & 0x7C00) == 0x7C00;
        if (any || _mm_movemask_epi8(strange))
            return begin;
        for (i = begin; i + 8 <= end; i += 8) {
            __m256 values = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(halves + i)));
            _mm256_storeu_ps(total + i, _mm256_add_ps(_mm256_loadu_ps(total + i), values));
        }
        for (; i < end; i++)
            total[i] += _cvtsh_ss(halves[i]);
    }
    return n;
}

/* ---- 8 bits an element, between the smallest and the largest value ---- */

#define LARGEST_SHIFT 8589934592.0f  /* 2^33, where a step of fp32 is 1024 */

/* Largest and smallest value; returns 1 where something is not finite. */
INLINE int range_of(const float *x, i64 n, float *highest, float *lowest)
{
    float high = x[0], low = x[0];
    int unordered = 0;
    i64 i = 0;
    if (n >= 16) {
        __m256 a = _mm256_loadu_ps(x), b = a, c = a, d = a, nan = _mm256_setzero_ps();
        for (; i + 16 <= n; i += 16) {
            __m256 first = _mm256_loadu_ps(x + i), second = _mm256_loadu_ps(x + i + 8);
            a = _mm256_max_ps(first, a), b = _mm256_min_ps(first, b);
            c = _mm256_max_ps(second, c), d = _mm256_min_ps(second, d);
            nan = _mm256_or_ps(nan, _mm256_cmp_ps(first, second, _CMP_UNORD_Q));
        }
        float highs[8], lows[8];
        _mm256_storeu_ps(highs, _mm256_max_ps(a, c));
        _mm256_storeu_ps(lows, _mm256_min_ps(b, d));
        for (int lane = 0; lane < 8; lane++) {
            high = highs[lane] > high ? highs[lane] : high;
            low = lows[lane] < low ? lows[lane] : low;
        }
        unordered = !!_mm256_movemask_ps(nan);
    }
    for (; i < n; i++) {
        high = x[i] > high ? x[i] : high;
        low = x[i] < low ? x[i] : low;
        unordered |= x[i] != x[i];
    }
    *highest = high, *lowest = low;
    return unordered || !is_finite(high) || !is_finite(low);
}

INLINE __m256i codes_of(__m256 x, __m256 shift, __m256 scale, int separate)
{
    __m256 values = separate ? _mm256_add_ps(_mm256_mul_ps(x, scale), shift) : _mm256_fmadd_ps(x, scale, shift);
    return _mm256_cvttps_epi32(values);
}

INLINE void codes_of_block(const float *x, i64 n, float shift, float scale, int separate, uint8_t *codes)
{
    const __m256 shifts = _mm256_set1_ps(shift), scales = _mm256_set1_ps(scale);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    i64 i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i a = codes_of(_mm256_loadu_ps(x + i), shifts, scales, separate);
        __m256i b = codes_of(_mm256_loadu_ps(x + i + 8), shifts, scales, separate);
        __m256i c = codes_of(_mm256_loadu_ps(x + i + 16), shifts, scales, separate);
        __m256i d = codes_of(_mm256_loadu_ps(x + i + 24), shifts, scales, separate);
        __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        _mm256_storeu_si256((__m256i *)(codes + i), _mm256_permutevar8x32_epi32(bytes, order));
    }
    for (; i < n; i++) {
        float value = separate ? x[i] * scale + shift : __builtin_fmaf(x[i], scale, shift);
        int code = (int)value;
        codes[i] = (uint8_t)(code < 0 ? 0 : code > 255 ? 255 : code);
    }
}

/* The grid of Int8 for each block, into lowers and steps, and the codes on it. Of the first `separate` blocks the
 * product of value and scale is rounded before the sum. Returns 1, and nothing is any good, where something is not
 * finite, or where numbers are so large beside their range that codes might come out beyond what 16 bits hold. */
EXPORT int bw_to_codes(const float *x, i64 n, i64 block, double epsilon, int relative, i64 separate, float *lowers,
                       float *steps, uint8_t *codes)
{
    for (i64 begin = 0, number = 0; begin < n; begin += block, number++) {
        i64 length = least(block, n - begin);
        float high, low;
        if (range_of(x + begin, length, &high, &low))
            return 1;
        double more = relative ? epsilon * (high > -low ? high : -low) : epsilon;
        double exact = ((double)high - low + more) / 255;
        float step = exact == 0 ? 0.0f : (float)(exact > 1e-38 ? exact : 1e-38);
        uint32_t bits;
        memcpy(&bits, &step, 4);
        bits = (bits + 0xFF) & ~(uint32_t)0xFF;  /* up to 16 bits of significand */
        memcpy(&step, &bits, 4);
        float scale = step == 0.0f ? step : 1.0f / step, lower = __builtin_rintf(high * scale) - 255.0f;
        float shift = 0.5f - lower;  /* half above, cut off: rounding */
        if (!(__builtin_fabsf(shift) <= LARGEST_SHIFT))
            return 1;
        lowers[number] = lower, steps[number] = step;
        if (number < separate)
            codes_of_block(x + begin, length, shift, scale, 1, codes + begin);
        else
            codes_of_block(x + begin, length, shift, scale, 0, codes + begin);
    }
    return 0;
}

INLINE void values_of_block(const uint8_t *codes, i64 n, float base, float step, int add, float *values)
{
    const __m256 bases = _mm256_set1_ps(base), steps = _mm256_set1_ps(step);
    i64 i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i eight = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(codes + i)));
        __m256 decoded = _mm256_fmadd_ps(_mm256_cvtepi32_ps(eight), steps, bases);  /* the product is exact */
        _mm256_storeu_ps(values + i, add ? _mm256_add_ps(_mm256_loadu_ps(values + i), decoded) : decoded);
    }
    for (; i < n; i++) {
        float decoded = __builtin_fmaf((float)codes[i], step, base);
        values[i] = add ? values[i] + decoded : decoded;
    }
}

/* value = (lower + code) * step, written to values or added to them. Returns 1, and does nothing, where a grid is not
 * finite. */
EXPORT int bw_from_codes(const uint8_t *codes, i64 n, i64 block, const float *lowers, const float *steps, int add,
                         float *values)
{
    const i64 blocks = (n + block - 1) / block;
    for (i64 number = 0; number < blocks; number++)
        if (!is_finite(lowers[number] * steps[number]) || !is_finite(steps[number]))
            return 1;
    for (i64 number = 0; number < blocks; number++) {
        i64 begin = number * block, length = least(block, n - begin);
        float base = lowers[number] * steps[number];
        if (add)
            values_of_block(codes + begin, length, base, steps[number], 1, values + begin);
        else
            values_of_block(codes + begin, length, base, steps[number], 0, values + begin);
    }
    return 0;
}

/* ---- signs ---- */

#define LARGEST_BLOCK 32760  /* native.py has the same */

/* The sum of magnitudes in the order of torch's sum of a contiguous row on vectors of 8 lanes: four vectors side by
 * side, sums of 16 of those, of 16 such sums, and so on; then the four, what is left of a vector, and the lanes. */
INLINE float sum_of_magnitudes(const float *x, i64 n)
{
    if (n < 8) {
        float sums[4] = {0};
        i64 whole = n / 4 * 4;
        for (i64 i = 0; i < whole; i++)
            sums[i % 4] += __builtin_fabsf(x[i]);
        for (i64 i = whole; i < n; i++)
            sums[0] += __builtin_fabsf(x[i]);
        return sums[0] + sums[1] + sums[2] + sums[3];
    }
    const i64 rows = n / 32;
    i64 log = 0, row = 0;
    while (((i64)1 << log) < rows)
        log++;
    const i64 power = log / 4 > 4 ? log / 4 : 4, step = (i64)1 << power;
    __m256 sums[4], upper[3][4];
    for (int k = 0; k < 4; k++)
        sums[k] = upper[0][k] = upper[1][k] = upper[2][k] = _mm256_setzero_ps();
    while (row + step <= rows) {
        for (i64 last = row + step; row < last; row++)
            for (int k = 0; k < 4; k++)
                sums[k] = _mm256_add_ps(sums[k], magnitude(_mm256_loadu_ps(x + 32 * row + 8 * k)));
        for (int k = 0; k < 4; k++) {
            upper[0][k] = _mm256_add_ps(upper[0][k], sums[k]);
            sums[k] = _mm256_setzero_ps();
        }
        for (int level = 1; level < 3 && !(row & ((step - 1) << (level * power))); level++)
            for (int k = 0; k < 4; k++) {
                upper[level][k] = _mm256_add_ps(upper[level][k], upper[level - 1][k]);
                upper[level - 1][k] = _mm256_setzero_ps();
            }
    }
    for (; row < rows; row++)
        for (int k = 0; k < 4; k++)
            sums[k] = _mm256_add_ps(sums[k], magnitude(_mm256_loadu_ps(x + 32 * row + 8 * k)));
    for (int level = 0; level < 3; level++)
        for (int k = 0; k < 4; k++)
            sums[k] = _mm256_add_ps(sums[k], upper[level][k]);
    i64 i = 32 * rows;
    for (; i + 8 <= n; i += 8)
        sums[0] = _mm256_add_ps(sums[0], magnitude(_mm256_loadu_ps(x + i)));
    for (int k = 1; k < 4; k++)
        sums[0] = _mm256_add_ps(sums[0], sums[k]);
    float total = 0.0f, lanes[8];
    for (; i < n; i++)
        total += __builtin_fabsf(x[i]);
    _mm256_storeu_ps(lanes, sums[0]);
    for (int lane = 0; lane < 8; lane++)
        total += lanes[lane];
    return total;
}

/* A bit an element, set where it is below zero, the first one the highest of its byte. */
INLINE void signs_of(const float *x, i64 n, uint8_t *codes)
{
    const __m256 zero = _mm256_setzero_ps();
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i backwards = _mm256_setr_epi8(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2,
                                               1, 0, 15, 14, 13, 12, 11, 10, 9, 8);
    i64 i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i a = _mm256_castps_si256(_mm256_cmp_ps(_mm256_loadu_ps(x + i), zero, _CMP_LT_OQ));
        __m256i b = _mm256_castps_si256(_mm256_cmp_ps(_mm256_loadu_ps(x + i + 8), zero, _CMP_LT_OQ));
        __m256i c = _mm256_castps_si256(_mm256_cmp_ps(_mm256_loadu_ps(x + i + 16), zero, _CMP_LT_OQ));
        __m256i d = _mm256_castps_si256(_mm256_cmp_ps(_mm256_loadu_ps(x + i + 24), zero, _CMP_LT_OQ));
        __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        bytes = _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(bytes, order), backwards);
        uint32_t bits = (uint32_t)_mm256_movemask_epi8(bytes);
        memcpy(codes + i / 8, &bits, 4);
    }
    for (; i < n; i += 8) {
        uint8_t bits = 0;
        for (i64 j = 0; j < 8 && i + j < n; j++)
            bits |= (uint8_t)((x[i + j] < 0.0f) << (7 - j));
        codes[i / 8] = bits;
    }
}

/* The mean magnitude of each block, and its signs; blocks but the last are multiples of 8 elements. Returns how many
 * elements were done: those before a block whose mean is not finite. */
EXPORT i64 bw_to_signs(const float *x, i64 n, i64 block, float *means, uint8_t *codes)
{
    for (i64 begin = 0, number = 0; begin < n; begin += block, number++) {
        i64 length = least(block, n - begin);
        float mean = sum_of_magnitudes(x + begin, length) / (float)length;
        if (!is_finite(mean))
            return begin;
        means[number] = mean;
        signs_of(x + begin, length, codes + begin / 8);
    }
    return n;
}

/* The same of x - excess, of blocks of at most LARGEST_BLOCK elements. The excess becomes what the signs decode to,
 * less that. */
EXPORT i64 bw_to_signs_with_excess(const float *x, float *excess, i64 n, i64 block, float *means, uint8_t *codes)
{
    float totals[LARGEST_BLOCK];
    for (i64 begin = 0, number = 0; begin < n; begin += block, number++) {
        i64 length = least(block, n - begin), i = 0;
        float *rest = excess + begin;
        for (; i + 8 <= length; i += 8)
            _mm256_storeu_ps(totals + i, _mm256_sub_ps(_mm256_loadu_ps(x + begin + i), _mm256_loadu_ps(rest + i)));
        for (; i < length; i++)
            totals[i] = x[begin + i] - rest[i];
        float mean = sum_of_magnitudes(totals, length) / (float)length;
        if (!is_finite(mean))
            return begin;
        means[number] = mean;
        signs_of(totals, length, codes + begin / 8);
        const __m256 plus = _mm256_set1_ps(mean), minus = _mm256_set1_ps(-mean), zero = _mm256_setzero_ps();
        for (i = 0; i + 8 <= length; i += 8) {
            __m256 total = _mm256_loadu_ps(totals + i);
            __m256 decoded = _mm256_blendv_ps(plus, minus, _mm256_cmp_ps(total, zero, _CMP_LT_OQ));
            _mm256_storeu_ps(rest + i, _mm256_sub_ps(decoded, total));
        }
        for (; i < length; i++)
            rest[i] = (totals[i] < 0.0f ? -mean : mean) - totals[i];
    }
    return n;
}

INLINE void values_of_signs(const uint8_t *codes, i64 n, float mean, int add, float *values)
{
    const __m256i sign = _mm256_set1_epi32(INT32_MIN);
    const __m256 means = _mm256_set1_ps(mean);
    i64 i = 0;
    for (; i + 32 <= n; i += 32) {
        uint32_t bits;
        memcpy(&bits, codes + i / 8, 4);
        __m256i all = _mm256_set1_epi32((int)__builtin_bswap32(bits)), up = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        for (int k = 0; k < 4; k++) {
            __m256i signs = _mm256_and_si256(_mm256_sllv_epi32(all, up), sign);
            __m256 decoded = _mm256_xor_ps(means, _mm256_castsi256_ps(signs));
            float *place = values + i + 8 * k;
            _mm256_storeu_ps(place, add ? _mm256_add_ps(_mm256_loadu_ps(place), decoded) : decoded);
            up = _mm256_add_epi32(up, _mm256_set1_epi32(8));
        }
    }
    for (; i < n; i++) {
        float decoded = codes[i / 8] >> (7 - i % 8) & 1 ? -mean : mean;
        values[i] = add ? values[i] + decoded : decoded;
    }
}

/* Plus or minus the mean of each block, written to values or added to them; blocks as in bw_to_signs. Returns 1, and
 * does nothing, where a mean is not finite. */
EXPORT int bw_from_signs(const uint8_t *codes, i64 n, i64 block, const float *means, int add, float *values)
{
    const i64 blocks = (n + block - 1) / block;
    for (i64 number = 0; number < blocks; number++)
        if (!is_finite(means[number]))
            return 1;
    for (i64 number = 0; number < blocks; number++) {
        i64 begin = number * block, length = least(block, n - begin);
        if (add)
            values_of_signs(codes + begin / 8, length, means[number], 1, values + begin);
        else
            values_of_signs(codes + begin / 8, length, means[number], 0, values + begin);
    }
    return 0;
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC reset_options
#endif

/* Whether this processor has what the functions above need. The processor itself is asked for F16C, a word that
   older compilers refuse in __builtin_cpu_supports. */
EXPORT int bw_supported(void)
{
    unsigned a, b, c, d;

    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")
           && __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}

#else

EXPORT int bw_supported(void) { return 0; }

#endif

/* Of the functions above; native.py has the same. */
EXPORT int bw_version(void) { return 2; }
