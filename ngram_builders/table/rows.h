/* Tables in memory, and where in them a context's row lies: what every query of kernel.c begins with.

   The arrays come from files and may hold anything. Whatever is read from them and used as a place is first brought
   within its array (`cut`, `bisect`), so that a damaged file gives wrong numbers and never a fault. */

#include <stdint.h>

#define FETCH(address) __builtin_prefetch((const void *)(address))

/* What holds whatever a table holds. The tests compile this in. */
#ifdef CHECKED
#define HOLDS(condition) do { if (!(condition)) __builtin_trap(); } while (0)
#else
#define HOLDS(condition) ((void)0)
#endif

/* Without this clang makes jumps of the choices in a binary search, every other of which is guessed wrongly: 45 us
   instead of 28 for 8 drafts and 50 candidates. So does gcc at -O3, which is why it is called with -O2. */
#if defined(__clang__)
#define EVEN_ODDS(condition) __builtin_unpredictable(condition)
#else
#define EVEN_ODDS(condition) (condition)
#endif

enum {
    ORDERS = 8,  /* 2 to 9 */
    WIDE = 32,   /* rows with so many entries have their total written down */
    MANY = 255   /* a count in one byte that stands in the overflow */
};

/* kernel.py has the same structures; every field has 8 bytes, so that no compiler pads them. */
typedef struct {
    uint64_t directory, fingerprints, pointers, tokens, counts, overflow_places, overflow_counts, wide_rows,
        wide_totals;                    /* addresses */
    int64_t rows, entries, overflows, wides; /* lengths */
    int64_t base[ORDERS];               /* where the directory of each order begins */
    int64_t shift[ORDERS];              /* hash >> shift is the bucket; negative where there is no such order */
    int64_t hash_shift;                 /* 64 - bits of the hash */
    int64_t other;                      /* the token of all pruned entries */
    int64_t token_size, count_size;     /* bytes: 2 or 4; 1 with overflow or 4 and signed */
} Segment;

typedef struct {
    double weight;
    int64_t first, end; /* segments */
} Pool;

typedef struct {
    int64_t row, start, width; /* width 0: not found */
} Slice;

/* --- arrays that may hold anything --------------------------------------------------------------------------- */

static inline uint32_t u32(uint64_t array, int64_t place) { return ((const uint32_t *)(uintptr_t)array)[place]; }

static inline int64_t cut(int64_t value, int64_t most) { return value < most ? value : most; }

/* The last of `width` ascending values from `start` on that is not above the needle, or the first. */
static int64_t bisect(uint64_t array, int64_t start, int64_t width, uint32_t needle) {
    while (width > 1) {
        int64_t half = width >> 1;
        start += EVEN_ODDS(u32(array, start + half) <= needle) ? half : 0;
        width -= half;
    }
    return start;
}

static inline int64_t token_at(const Segment *s, int64_t place) {
    return s->token_size == 2 ? ((const uint16_t *)(uintptr_t)s->tokens)[place] : u32(s->tokens, place);
}

static inline int64_t count_at(const Segment *s, int64_t place) {
    if (s->count_size == 4) return ((const int32_t *)(uintptr_t)s->counts)[place];
    int64_t count = ((const uint8_t *)(uintptr_t)s->counts)[place];
    if (count < MANY || !s->overflows) return count;
    int64_t at = bisect(s->overflow_places, 0, s->overflows, (uint32_t)place);
    return u32(s->overflow_places, at) == (uint32_t)place ? u32(s->overflow_counts, at) : count;
}

/* --- contexts to rows ---------------------------------------------------------------------------------------- */

/* counts.py: multiplier(1) ... multiplier(8) */
static const uint64_t MULTIPLIERS[ORDERS] = {
    0xE220A8397B1DCDAFu, 0x6E789E6AA1B965F5u, 0x06C45D188009454Fu, 0xF88BB8A8724C81EDu,
    0x1B39896A51A8749Bu, 0x53CB9F0C747EA2EBu, 0x2C829ABE1F4532E1u, 0xC584133AC916AB3Du};

static uint64_t mix(uint64_t value) {
    value ^= value >> 33;
    value *= 0xFF51AFD7ED558CCDu;
    value ^= value >> 33;
    value *= 0xC4CEB9FE1A85EC53u;
    return value ^ value >> 33;
}

/* hashes [K, ORDERS], lengths [K]: how many of a draft's hashes there are. */
static void hash(const int64_t *contexts, int64_t K, int64_t L, uint64_t *hashes, int64_t *lengths) {
    for (int64_t k = 0; k < K; k++) {
        uint64_t sum = 0;
        int64_t o = 0;
        for (; o < cut(L, ORDERS); o++) {
            int64_t token = contexts[k * L + L - 1 - o];
            if (token < 0) break;
            sum += ((uint64_t)token + 1) * MULTIPLIERS[o];
            hashes[k * ORDERS + o] = mix(sum);
        }
        lengths[k] = o;
    }
}

/* One segment's slice for each slot. A slice's fields hold what is known of it so far. */
static void locate(const Segment *s, const uint64_t *hashes, const int64_t *lengths, int64_t K, Slice *slices) {
    int64_t slots = K * ORDERS;
    for (int64_t i = 0; i < slots; i++) {
        int64_t o = i % ORDERS, known = o < lengths[i / ORDERS] && s->shift[o] >= 0;
        slices[i].width = known;
        if (!known) continue;
        slices[i].row = s->base[o] + (int64_t)(hashes[i] >> s->hash_shift >> s->shift[o]);
        FETCH(s->directory + 4 * (uint64_t)slices[i].row);
    }
    for (int64_t i = 0; i < slots; i++) {
        if (!slices[i].width) continue;
        int64_t start = cut(u32(s->directory, slices[i].row), s->rows);
        int64_t end = cut(u32(s->directory, slices[i].row + 1), s->rows);
        slices[i].start = start;
        slices[i].width = end > start ? end - start : 0;
        FETCH(s->fingerprints + 4 * (uint64_t)start);
        FETCH(s->pointers + 4 * (uint64_t)start);
    }
    for (int64_t i = 0; i < slots; i++) {
        if (!slices[i].width) continue;
        uint32_t fingerprint = (uint32_t)(hashes[i] >> s->hash_shift);
        int64_t row = bisect(s->fingerprints, slices[i].start, slices[i].width, fingerprint);
        if (u32(s->fingerprints, row) != fingerprint) {
            slices[i].width = 0;
            continue;
        }
        int64_t start = cut(u32(s->pointers, row), s->entries), end = cut(u32(s->pointers, row + 1), s->entries);
        slices[i] = (Slice){row, start, end > start ? cut(end - start, s->other + 1) : 0};
        FETCH(s->tokens + (uint64_t)(s->token_size * start));
        FETCH(s->counts + (uint64_t)(s->count_size * start));
    }
}

/* What followed a context in all, OTHER included. */
static int64_t total(const Segment *s, Slice slice) {
    if (slice.width >= WIDE) {
        if (!s->wides) return 0;
        int64_t at = bisect(s->wide_rows, 0, s->wides, (uint32_t)slice.row);
        return u32(s->wide_rows, at) == slice.row ? ((const int64_t *)(uintptr_t)s->wide_totals)[at] : 0;
    }
    int64_t sum = 0;
    for (int64_t i = 0; i < slice.width; i++) sum += count_at(s, slice.start + i);
    return sum;
}
