/* The product for one instruction set; included by model_kernel.c once for each.

   FOUR outputs of up to TILE rows at a time, whose sums stay in registers: each vector of weights meets all rows.
   WIDTH values make a vector. Weights are loaded EXCESS too large. Values of more than 8 bits take one ROW of 16 bits,
   or P = 2 ROWs of 8: multiples of 128, and what these leave. */

#define JOINED(a, b) a##b
#define NAME(a, b) JOINED(a, b)
#define ROWS NAME(PRODUCT, _rows)

typedef struct {
    const ROW *values;   /* [M, P, I] */
    const int32_t *sums; /* [M, P], of the values */
    const float *scales; /* [M] */
} ROWS;

/* Quantise M rows: the nearest multiples of a row's scale, of which the largest value is `largest`. */
INLINE ROWS NAME(PRODUCT, _quantize)(const float *x, int64_t M, int64_t I, int64_t largest, const int P, void *scratch) {
    float *scales = scratch;
    int32_t *sums = (int32_t *)(scales + M);
    ROW *values = (ROW *)(sums + M * P);
    for (int64_t m = 0; m < M; m++) {
        const float *restrict row = x + m * I;
        ROW *restrict whole = values + m * P * I, *restrict rest = whole + I;
        const float most = find_largest(row, I), inverse = most != 0.0f ? (float)largest / most : 0.0f;
        int32_t sum = 0, sum_of_rest = 0;
        for (int64_t i = 0; i < I; i++) {
            const int32_t value = nearest(row[i] * inverse), high = P > 1 ? (value + 64) >> 7 : value;
            sum += whole[i] = (ROW)high;
            if (P > 1) sum_of_rest += rest[i] = (ROW)(value - 128 * high);
        }
        scales[m] = most / (float)largest;
        sums[m * P] = sum;
        if (P > 1) sums[m * P + 1] = sum_of_rest;
    }
    return (ROWS){values, sums, scales};
}

TARGET INLINE void NAME(PRODUCT, _tile)(const Weights *w, int64_t o, const ROWS *rows, int64_t m, const int count,
                                        const int P, float *y) {
    const int64_t I = w->inputs, whole = I / WIDTH * WIDTH;
    const int8_t *weights = w->values + o * I;
    const ROW *x = rows->values + m * P * I;
    VECTOR sums[4][FOUR];
    Ints totals[4];
    UNROLL for (int r = 0; r < count * P; r++) UNROLL for (int n = 0; n < FOUR; n++) sums[r][n] = ZERO;
    for (int64_t i = 0; i < whole; i += WIDTH) {
        UNROLL for (int n = 0; n < FOUR; n++) {
            const BYTES loaded = LOAD_WEIGHTS(weights + n * I + i);
            UNROLL for (int r = 0; r < count * P; r++)
                sums[r][n] = MULTIPLY_ADD(sums[r][n], loaded, LOAD_ROW(x + r * I + i));
        }
    }
    UNROLL for (int r = 0; r < count * P; r++) {
        totals[r] = ADD_ACROSS(sums[r][0], sums[r][1], sums[r][2], sums[r][3]) - EXCESS * rows->sums[m * P + r];
        for (int64_t i = whole; i < I; i++) {
            Ints last = {weights[i], weights[I + i], weights[2 * I + i], weights[3 * I + i]};
            totals[r] += (last + EXCESS) * x[r * I + i];
        }
    }
    UNROLL for (int r = 0; r < count; r++) {
        Ints total = P > 1 ? 128 * totals[P * r] + totals[P * r + 1] : totals[r];
        Floats scaled = __builtin_convertvector(total, Floats) * (load(w->scales + o) * rows->scales[m + r]);
        store(y + (m + r) * w->outputs + o, w->bias ? scaled + load(w->bias + o) : scaled);
    }
}

TARGET INLINE void NAME(PRODUCT, _parts)(const Weights *w, const float *x, int64_t M, int64_t largest, const int P,
                                         float *y, void *scratch) {
    const ROWS rows = NAME(PRODUCT, _quantize)(x, M, w->inputs, largest, P, scratch);
    for (int64_t first = 0, end; first < M; first = end) {
        end = first + BLOCK < M ? first + BLOCK : M;
        for (int64_t start = 0; start < w->outputs; start += FOUR) {
            const int64_t o = start + FOUR <= w->outputs ? start : w->outputs - FOUR; /* the last may come twice */
            int64_t m = first;
            for (; m + TILE / P <= end; m += TILE / P) NAME(PRODUCT, _tile)(w, o, &rows, m, TILE / P, P, y);
            if (TILE / P > 3 && end - m == 3) NAME(PRODUCT, _tile)(w, o, &rows, m, 3, P, y);
            if (TILE / P > 2 && end - m == 2) NAME(PRODUCT, _tile)(w, o, &rows, m, 2, P, y);
            if (TILE / P > 1 && end - m == 1) NAME(PRODUCT, _tile)(w, o, &rows, m, 1, P, y);
        }
    }
}

TARGET static void PRODUCT(const Weights *w, const float *x, int64_t M, int64_t largest, float *y, void *scratch) {
    if (sizeof(ROW) == 1 && largest > INT8_MAX) NAME(PRODUCT, _parts)(w, x, M, largest, 2, y, scratch);
    else NAME(PRODUCT, _parts)(w, x, M, largest, 1, y, scratch);
}

#undef JOINED
#undef NAME
#undef ROWS
#undef TARGET
#undef PRODUCT
#undef VECTOR
#undef BYTES
#undef ROW
#undef WIDTH
#undef TILE
#undef ZERO
#undef LOAD_WEIGHTS
#undef LOAD_ROW
#undef MULTIPLY_ADD
#undef ADD_ACROSS
#undef EXCESS
