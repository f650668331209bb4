/* The product for one instruction set; included by model_kernel.c once for each.

   FOUR outputs of up to TILE rows at a time: each vector of weights meets all rows, and each vector of a row all four
   outputs, while they are in registers. WIDTH values make a vector. Weights are loaded EXCESS too large. */

#define JOINED(a, b) a##b
#define NAME(a, b) JOINED(a, b)

TARGET INLINE void NAME(PRODUCT, _tile)(const Weights *w, int64_t o, const Rows *rows, int64_t m, const int count,
                                        float *y) {
    const int64_t I = w->inputs, whole = I / WIDTH * WIDTH;
    const int8_t *weights = w->values + o * I, *x = rows->values + m * I;
    VECTOR sums[4][FOUR];
    UNROLL for (int r = 0; r < count; r++) UNROLL for (int n = 0; n < FOUR; n++) sums[r][n] = ZERO;
    for (int64_t i = 0; i < whole; i += WIDTH) {
        BYTES loaded[FOUR];
        UNROLL for (int n = 0; n < FOUR; n++) loaded[n] = LOAD_WEIGHTS(weights + n * I + i);
        UNROLL for (int r = 0; r < count; r++) {
            BYTES row = LOAD_ROW(x + r * I + i);
            UNROLL for (int n = 0; n < FOUR; n++) sums[r][n] = MULTIPLY_ADD(sums[r][n], loaded[n], row);
        }
    }
    UNROLL for (int r = 0; r < count; r++) {
        Ints totals = ADD_ACROSS(sums[r][0], sums[r][1], sums[r][2], sums[r][3]) - EXCESS * rows->sums[m + r];
        for (int64_t i = whole; i < I; i++)
            totals += ((Ints){weights[i], weights[I + i], weights[2 * I + i], weights[3 * I + i]} + EXCESS) * x[r * I + i];
        Floats scaled = __builtin_convertvector(totals, Floats) * (load(w->scales + o) * rows->scales[m + r]);
        store(y + (m + r) * w->outputs + o, w->bias ? scaled + load(w->bias + o) : scaled);
    }
}

TARGET static void PRODUCT(const Weights *w, const float *x, int64_t M, float *y, void *scratch) {
    const Rows rows = quantize_rows(x, M, w->inputs, scratch);
    for (int64_t first = 0, end; first < M; first = end) {
        end = first + BLOCK < M ? first + BLOCK : M;
        for (int64_t start = 0; start < w->outputs; start += FOUR) {
            const int64_t o = start + FOUR <= w->outputs ? start : w->outputs - FOUR; /* the last may come twice */
            int64_t m = first;
            for (; m + TILE <= end; m += TILE) NAME(PRODUCT, _tile)(w, o, &rows, m, TILE, y);
            if (TILE > 3 && end - m == 3) NAME(PRODUCT, _tile)(w, o, &rows, m, 3, y);
            if (TILE > 2 && end - m == 2) NAME(PRODUCT, _tile)(w, o, &rows, m, 2, y);
            if (end - m == 1) NAME(PRODUCT, _tile)(w, o, &rows, m, 1, y);
        }
    }
}

#undef JOINED
#undef NAME
#undef TARGET
#undef PRODUCT
#undef VECTOR
#undef BYTES
#undef WIDTH
#undef TILE
#undef ZERO
#undef LOAD_WEIGHTS
#undef LOAD_ROW
#undef MULTIPLY_ADD
#undef ADD_ACROSS
#undef EXCESS
