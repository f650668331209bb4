/* Tables in memory, and where in them the row of a context is: what every query of kernel.c begins with.

   The arrays come from files and may hold anything. Whatever is read from them and used as an index is first brought
   within its array (`at_most`, `bisect`), so that a damaged file gives wrong numbers and never a fault. */

#include <stdint.h>

/* Invariants that hold whatever a table holds; only tests compile them in. */
#ifdef CHECKED
#define ASSERT(condition) do { if (!(condition)) __builtin_trap(); } while (0)
#else
#define ASSERT(condition) ((void)0)
#endif

/* The constants that C and Python share. Python has them in format.py, ngrams.py and query.py; a test compares them. */
enum {
    ORDER_COUNT = 8,      /* 2 to 9 */
    COUNT_OVERFLOW = 255, /* this count and all above are in the overflow sections */
    SHAPE_BITS = 4,       /* of a row's head */
    ONES = 5,             /* shapes 0 ... 4: 1 ... 5 entries, each counted once; then 1 ... 10 with stored counts */
    WIDE = 15,            /* this shape's widths and totals are stored apart */
    BLOCK_ROWS = 32,      /* there are pointers for each block of so many rows */
    POINTERS = 3,         /* of a block */
    SLICE_WORDS = 4       /* 8-byte words of a Slice */
};
static const uint64_t MULTIPLIERS[ORDER_COUNT] = {
    0xE220A8397B1DCDAFu, 0x6E789E6AA1B965F5u, 0x06C45D188009454Fu, 0xF88BB8A8724C81EDu,
    0x1B39896A51A8749Bu, 0x53CB9F0C747EA2EBu, 0x2C829ABE1F4532E1u, 0xC584133AC916AB3Du};

/* query.py declares the same structures; every field has 8 bytes, so that no compiler pads them. */

/* One set of columns: a table's, or changes to it. */
typedef struct {
    uint64_t directory, heads, pointers, tokens, counts, overflow_places, overflow_counts, wide_widths,
        wide_totals;                                 /* addresses */
    int64_t rows, entries, stored, overflows, wides; /* lengths */
    int64_t base[ORDER_COUNT];      /* where the directory of each order begins */
    int64_t shift[ORDER_COUNT];     /* hash >> shift is the bucket; negative where there is no such order */
    int64_t hash_shift;             /* 64 - bits of the hash */
    int64_t other;                  /* the token that stands for all pruned entries */
    int64_t token_size, count_size; /* bytes: 2 or 4; 1 with overflow or 4 and signed */
} Segment;

/* Segments whose counts add up. */
typedef struct {
    double weight;
    int64_t first, end; /* segments */
} Pool;

typedef struct {
    const Segment *segments;
    const Pool *pools;
    int64_t pool_count, segment_count;
} Tables;

/* A row's entries. */
typedef struct {
    int64_t start, width; /* among the tokens; width 0: not found */
    int64_t counts;       /* where its counts begin; negative: each is 1 */
    int64_t total;        /* where its total is; negative: nowhere */
} Slice;

/* What tables have of the contexts of one call. */
typedef struct {
    int64_t slots;   /* K * ORDER_COUNT */
    Slice *slices;   /* [segment_count, slots] */
    int64_t *totals; /* [pool_count, slots] what followed each context in each pool */
    double *matched; /* [slots] the weights of the pools that have seen it */
} Matches;

/* --- arrays that may hold anything --------------------------------------------------------------------------- */

static inline uint32_t u32_at(uint64_t array, int64_t place) { return ((const uint32_t *)(uintptr_t)array)[place]; }

static inline int64_t at_most(int64_t value, int64_t limit) { return value < limit ? value : limit; }

/* The last of `width` ascending values from `start` on that is not above the needle, or the first. */
static int64_t bisect(uint64_t array, int64_t start, int64_t width, uint32_t needle) {
    while (width > 1) {
        int64_t half = width >> 1;
        start += u32_at(array, start + half) <= needle ? half : 0;
        width -= half;
    }
    return start;
}

static inline int64_t token_at(const Segment *s, int64_t place) {
    return s->token_size == 2 ? ((const uint16_t *)(uintptr_t)s->tokens)[place] : u32_at(s->tokens, place);
}

static inline int64_t count_at(const Segment *s, int64_t place) {
    if (s->count_size == 4) return ((const int32_t *)(uintptr_t)s->counts)[place];
    int64_t count = ((const uint8_t *)(uintptr_t)s->counts)[place];
    if (count < COUNT_OVERFLOW || !s->overflows) return count;
    int64_t i = bisect(s->overflow_places, 0, s->overflows, (uint32_t)place);
    return u32_at(s->overflow_places, i) == (uint32_t)place ? u32_at(s->overflow_counts, i) : count;
}

static inline int64_t slice_count(const Segment *s, const Slice *slice, int64_t place) {
    return slice->counts < 0 ? 1 : count_at(s, slice->counts + place - slice->start);
}

/* --- contexts to rows ---------------------------------------------------------------------------------------- */

/* The finaliser of MurmurHash3. */
static uint64_t fmix64(uint64_t value) {
    value ^= value >> 33;
    value *= 0xFF51AFD7ED558CCDu;
    value ^= value >> 33;
    value *= 0xC4CEB9FE1A85EC53u;
    return value ^ value >> 33;
}

static inline int64_t wide_width(const Segment *s, int64_t wide) {
    return wide < s->wides ? u32_at(s->wide_widths, wide) : 0;
}

/* What a row of each shape adds: its entries, 16 bits above its stored counts, 32 bits above whether it is wide. */
#define STORED(width) ((uint64_t)(width) << 16 | (width))
static const uint64_t SHAPES[WIDE + 1] = {
    1, 2, 3, 4, 5, STORED(1), STORED(2), STORED(3), STORED(4), STORED(5), STORED(6), STORED(7), STORED(8), STORED(9),
    STORED(10), (uint64_t)1 << 32};

/* A row's entries, which begin where those before it in its block end. */
static Slice read_row(const Segment *s, int64_t row) {
    int64_t block = row / BLOCK_ROWS, of_wide = 0;
    uint64_t before = 0;
    for (int64_t r = block * BLOCK_ROWS; r < row; r++) before += SHAPES[u32_at(s->heads, r) & WIDE];
    uint32_t shape = u32_at(s->heads, row) & WIDE;
    int64_t wide = u32_at(s->pointers, POINTERS * block + 2), own = wide + (int64_t)(before >> 32);
    while (wide < own) of_wide += wide_width(s, wide++);
    int64_t width = shape == WIDE ? wide_width(s, wide) : (int64_t)(SHAPES[shape] & 0xFFFF);
    int64_t start = u32_at(s->pointers, POINTERS * block) + (int64_t)(before & 0xFFFF) + of_wide;
    int64_t counts = u32_at(s->pointers, POINTERS * block + 1) + (int64_t)(before >> 16 & 0xFFFF) + of_wide;
    start = at_most(start, s->entries);
    width = at_most(at_most(width, s->entries - start), s->other + 1);
    if (shape < ONES) return (Slice){start, width, -1, -1};
    counts = at_most(counts, s->stored);
    return (Slice){start, at_most(width, s->stored - counts), counts, shape == WIDE ? wide : -1};
}

/* A context's row in one segment, by the upper bits of its hash and then by its head. */
static Slice find_row(const Segment *s, int64_t o, uint64_t hash) {
    const Slice none = {0, 0, -1, -1};
    if (s->shift[o] < 0) return none;
    int64_t bucket = s->base[o] + (int64_t)(hash >> s->hash_shift >> s->shift[o]);
    int64_t start = at_most(u32_at(s->directory, bucket), s->rows);
    int64_t end = at_most(u32_at(s->directory, bucket + 1), s->rows);
    if (end <= start) return none;
    uint32_t head = (uint32_t)(hash >> s->hash_shift << SHAPE_BITS);
    int64_t row = bisect(s->heads, start, end - start, head | WIDE);
    return (u32_at(s->heads, row) ^ head) <= WIDE ? read_row(s, row) : none;
}

/* How often a token is in a row. */
static int64_t count_of(const Segment *s, Slice slice, int64_t token) {
    int64_t place = slice.start;
    if (!slice.width || token < 0 || token >= s->other) return 0;
    for (int64_t width = slice.width; width > 1; width -= width >> 1)
        place += token_at(s, place + (width >> 1)) <= token ? width >> 1 : 0;
    return token_at(s, place) == token ? slice_count(s, &slice, place) : 0;
}

/* What followed a context in all, OTHER included. */
static int64_t row_total(const Segment *s, Slice slice) {
    if (slice.total >= 0) return slice.width ? ((const int64_t *)(uintptr_t)s->wide_totals)[slice.total] : 0;
    if (slice.counts < 0) return slice.width;
    int64_t sum = 0;
    for (int64_t i = 0; i < slice.width; i++) sum += count_at(s, slice.counts + i);
    return sum;
}

/* Find contexts [K, L] in all tables. scratch [slots * (1 + SLICE_WORDS * segment_count + pool_count)] */
static Matches match_contexts(const Tables *t, const int64_t *contexts, int64_t K, int64_t L, double *matched,
                              int64_t *scratch) {
    int64_t slots = K * ORDER_COUNT, *totals = scratch + SLICE_WORDS * t->segment_count * slots;
    Matches m = {slots, (Slice *)scratch, totals, matched};
    for (int64_t k = 0; k < K; k++) {
        uint64_t sum = 0;
        int is_known = 1; /* a token of -1 and what is left of it mean nothing */
        for (int64_t o = 0; o < ORDER_COUNT; o++) {
            int64_t slot = k * ORDER_COUNT + o, token = o < L ? contexts[k * L + L - 1 - o] : -1;
            is_known &= token >= 0;
            sum += ((uint64_t)token + 1) * MULTIPLIERS[o];
            matched[slot] = 0;
            for (int64_t w = 0; w < t->pool_count; w++) {
                uint64_t total = 0;
                for (int64_t s = t->pools[w].first; s < t->pools[w].end; s++) {
                    Slice *slice = m.slices + s * slots + slot;
                    *slice = is_known ? find_row(t->segments + s, o, fmix64(sum)) : (Slice){0, 0, -1, -1};
                    total += (uint64_t)row_total(t->segments + s, *slice);
                }
                totals[w * slots + slot] = (int64_t)total;
                if ((int64_t)total > 0) matched[slot] += t->pools[w].weight;
            }
        }
    }
    return m;
}
