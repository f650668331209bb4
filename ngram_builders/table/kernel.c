/* The n-gram query: what lookup.py does with numpy, in C. The same numbers, bit for bit.

   Comes in: the arrays of tables (layout.py), contexts, candidates. Goes out: probabilities, successors. Needs
   neither Python nor a C library, allocates nothing and keeps nothing between calls: any number of threads may call
   it at once.

   A query mostly waits for memory, so each step is done for all drafts and orders before the next step begins, and
   asks for the memory that the next one reads.

   K drafts, L tokens of context, C candidates, n successors; a slot is one draft and order, K * ORDERS of them.
   A segment is one set of columns; a pool is a few of them whose counts add up. */

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-loop-distribute-patterns") /* makes calls of memset out of loops; there is no memset */
#endif

#define _DEFAULT_SOURCE 1 /* for mapped.h; before anything is included */
#define _DARWIN_C_SOURCE 1

#include "rows.h"

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#include "mapped.h"

#ifndef SOURCE_DIGEST
#define SOURCE_DIGEST 0
#endif

enum { PART = 32 }; /* numbers looked at together in search of large ones */

typedef struct {
    int64_t count, token;
} Entry;

/* --- sorting ------------------------------------------------------------------------------------------------- */

/* Sort by the four bytes above the lowest `shift` bits; equal ones keep their order. `spare` is as long. */
static void sort(uint64_t *keys, uint64_t *spare, int64_t length, int shift) {
    uint64_t differ = 0;
    for (int64_t i = 1; i < length; i++) differ |= keys[i] ^ keys[0];
    for (int byte = shift; byte < shift + 32; byte += 8) {
        if (!(differ >> byte & 255)) continue;
        uint32_t ends[257];
        for (int b = 0; b <= 256; b++) ends[b] = 0;
        for (int64_t i = 0; i < length; i++) ends[(keys[i] >> byte & 255) + 1]++;
        for (int b = 0; b < 256; b++) ends[b + 1] += ends[b];
        for (int64_t i = 0; i < length; i++) spare[ends[keys[i] >> byte & 255]++] = keys[i];
        for (int64_t i = 0; i < length; i++) keys[i] = spare[i];
    }
}

/* --- probabilities ------------------------------------------------------------------------------------------- */

/* The candidates, sorted and each once. */
typedef struct {
    int64_t length;
    int64_t repeats;        /* candidates that stand there twice: `copies[i]` is the same as `firsts[copies[i]]` */
    uint32_t *tokens;       /* [length] */
    int64_t *places;        /* [length] where each stands first */
    int64_t *copies;        /* [repeats] */
    int64_t *firsts;        /* [C] */
    int64_t *sums;          /* [length] pooled counts, 0 between uses */
    int64_t *at;            /* [length] the search in a wide row */
} Wanted;

static Wanted sorted_candidates(const int64_t *candidates, int64_t C, int64_t *scratch) {
    Wanted w = {0, 0, (uint32_t *)scratch, scratch + C, scratch + 2 * C, scratch + 3 * C, scratch + 4 * C,
                scratch + 5 * C};
    uint64_t *keys = (uint64_t *)w.sums;
    int64_t length = 0;
    for (int64_t c = 0; c < C; c++)
        if (candidates[c] >= 0 && candidates[c] <= UINT32_MAX)
            keys[length++] = (uint64_t)candidates[c] << 32 | (uint64_t)c;
    sort(keys, (uint64_t *)w.at, length, 32);
    for (int64_t i = 0; i < length; i++) {
        uint32_t token = (uint32_t)(keys[i] >> 32);
        int64_t c = (int64_t)(uint32_t)keys[i];
        if (w.length && w.tokens[w.length - 1] == token) {
            w.firsts[c] = w.places[w.length - 1];
            w.copies[w.repeats++] = c;
        } else {
            w.tokens[w.length] = token;
            w.places[w.length++] = c;
        }
    }
    for (int64_t i = 0; i < length; i++) w.sums[i] = 0;
    return w;
}

/* Add a row's counts to the sums; which candidates were met, each once, goes to `met`, whose new length is returned. */
static int64_t gather(const Segment *s, Slice slice, const Wanted *w, int64_t *met, int64_t length) {
    const uint64_t tokens = (uint64_t)(uintptr_t)w->tokens;
    if (slice.width < WIDE) {
        int64_t next = 0; /* tokens ascend; where a bad row repeats some, no candidate is met twice all the same */
        for (int64_t place = slice.start; place < slice.start + slice.width; place++) {
            int64_t token = token_at(s, place);
            int64_t i = bisect(tokens, 0, w->length, (uint32_t)token);
            if (w->tokens[i] != token || token >= s->other || i < next) continue;
            w->sums[i] += count_at(s, place);
            met[length++] = i;
            next = i + 1;
        }
        return length;
    }
    /* All candidates take each step together, so that none waits for the memory of another. */
    int64_t *at = w->at;
    for (int64_t i = 0; i < w->length; i++) at[i] = slice.start;
    for (int64_t width = slice.width; width > 1; width -= width >> 1) {
        int64_t half = width >> 1;
        for (int64_t i = 0; i < w->length; i++)
            at[i] += EVEN_ODDS(token_at(s, at[i] + half) <= w->tokens[i]) ? half : 0;
    }
    for (int64_t i = 0; i < w->length; i++) {
        if (token_at(s, at[i]) != w->tokens[i] || w->tokens[i] >= s->other) continue;
        w->sums[i] += count_at(s, at[i]);
        met[length++] = i;
    }
    return length;
}

/* totals [pool_count, slots]: what followed each context in each pool; heard [slots]: the weights of those that have
   seen it, added to what stands there. */
static void hear(const Segment *segments, const Pool *pools, int64_t pool_count, int64_t slots, const Slice *slices,
                 int64_t *totals, double *heard) {
    for (int64_t w = 0; w < pool_count; w++) {
        for (int64_t i = 0; i < slots; i++) {
            uint64_t sum = 0;
            for (int64_t s = pools[w].first; s < pools[w].end; s++)
                sum += (uint64_t)total(segments + s, slices[s * slots + i]);
            totals[w * slots + i] = (int64_t)sum;
            if ((int64_t)sum > 0) heard[i] += pools[w].weight;
        }
    }
}

/* Add to p [C] how likely each candidate is in one slot, times `scale`. */
static void weigh(const Segment *segments, const Pool *pools, int64_t pool_count, int64_t slots, const Slice *slices,
                  const int64_t *totals, double heard, int64_t slot, const Wanted *wanted, int64_t *met, double scale,
                  double *p) {
    for (int64_t w = 0; w < pool_count; w++) {
        int64_t all = totals[w * slots + slot], length = 0;
        if (all <= 0) continue;
        for (int64_t s = pools[w].first; s < pools[w].end; s++)
            length = gather(segments + s, slices[s * slots + slot], wanted, met, length);
        HOLDS(length <= (pools[w].end - pools[w].first) * wanted->length);
        double share = pools[w].weight / heard;
        for (int64_t m = 0; m < length; m++) {
            int64_t count = wanted->sums[met[m]];
            wanted->sums[met[m]] = 0; /* one that two segments hold is met twice */
            if (count <= 0) continue;
            double likely = (double)count / (double)all;
            p[wanted->places[met[m]]] += scale * (share * (likely < 1 ? likely : 1));
        }
    }
}

/* block, 8 bytes each: p [K, ORDERS, C] and heard [K, ORDERS], which come as zeros; contexts [K, L], candidates [C];
   then room for what follows, as much as kernel.py reckons. */
EXPORT void mean(const Segment *segments, const Pool *pools, int64_t pool_count, int64_t K, int64_t L, int64_t C,
                 void *block) {
    int64_t slots = K * ORDERS, segment_count = pool_count ? pools[pool_count - 1].end : 0;
    double *p = block, *heard = p + slots * C;
    const int64_t *contexts = (const int64_t *)(heard + slots), *candidates = contexts + K * L;
    uint64_t *hashes = (uint64_t *)(candidates + C);
    int64_t *lengths = (int64_t *)(hashes + slots);
    Slice *slices = (Slice *)(lengths + K);                       /* [segment_count, slots] */
    int64_t *totals = (int64_t *)(slices + segment_count * slots); /* [pool_count, slots] */
    int64_t *met = totals + pool_count * slots;                   /* [segment_count * C] */
    Wanted wanted = sorted_candidates(candidates, C, met + segment_count * C);

    hash(contexts, K, L, hashes, lengths);
    for (int64_t s = 0; s < segment_count; s++) locate(segments + s, hashes, lengths, K, slices + s * slots);
    hear(segments, pools, pool_count, slots, slices, totals, heard);
    if (!wanted.length) return;
    for (int64_t i = 0; i < slots; i++) {
        weigh(segments, pools, pool_count, slots, slices, totals, heard[i], i, &wanted, met, 1, p + i * C);
        for (int64_t r = 0; r < wanted.repeats; r++)
            p[i * C + wanted.copies[r]] = p[i * C + wanted.firsts[wanted.copies[r]]];
    }
}

/* --- successors ---------------------------------------------------------------------------------------------- */

static int worse(Entry a, Entry b) { return a.count < b.count || (a.count == b.count && a.token > b.token); }

/* Keep the n best: a heap whose root is the worst of them. Returns how many it holds. */
static int64_t keep(Entry *heap, int64_t length, int64_t n, Entry entry) {
    int64_t i = 0;
    if (length < n) {
        for (i = length++; i > 0 && worse(entry, heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    } else {
        if (!worse(heap[0], entry)) return length;
        for (int64_t child = 1; child < length; child = 2 * i + 1) {
            if (child + 1 < length && worse(heap[child + 1], heap[child])) child++;
            if (!worse(heap[child], entry)) break;
            heap[i] = heap[child];
            i = child;
        }
    }
    heap[i] = entry;
    return length;
}

/* The same for one segment alone, the usual case: most entries are too rare to be kept and are passed over, and the
   overflow is walked beside the row. */
static int64_t best_alone(const Segment *s, Slice slice, int64_t n, Entry *heap) {
    const uint8_t *small = s->count_size == 1 ? (const uint8_t *)(uintptr_t)s->counts : 0;
    int64_t length = 0, worst = 0, over = -1; /* tokens ascend: of equally common ones the first is kept */
    for (int64_t place = slice.start; place < slice.start + slice.width; place++) {
        int64_t count = small ? small[place] : count_at(s, place);
        if (small && count == MANY && s->overflows) {
            if (over < 0) over = bisect(s->overflow_places, 0, s->overflows, (uint32_t)place);
            while (over + 1 < s->overflows && u32(s->overflow_places, over) < (uint32_t)place) over++;
            if (u32(s->overflow_places, over) == (uint32_t)place) count = u32(s->overflow_counts, over);
        }
        if (count <= worst) continue;
        int64_t token = token_at(s, place);
        if (token >= s->other) continue;
        length = keep(heap, length, n, (Entry){count, token});
        if (length == n) worst = heap[0].count;
    }
    return length;
}

/* The n commonest tokens of a pool after one context, into the heap: walks the segments' sorted rows side by side. */
static int64_t best(const Segment *segments, Slice *rest, int64_t segment_count, int64_t slots, int64_t n,
                    Entry *heap) {
    int64_t length = 0;
    if (segment_count == 1) return best_alone(segments, *rest, n, heap);
    for (;;) {
        int64_t token = INT64_MAX, other = INT64_MAX;
        for (int64_t s = 0; s < segment_count; s++) {
            Slice *slice = rest + s * slots;
            if (slice->width && token_at(segments + s, slice->start) < token) {
                token = token_at(segments + s, slice->start);
                other = segments[s].other;
            }
        }
        if (token == INT64_MAX) return length;
        uint64_t sum = 0;
        for (int64_t s = 0; s < segment_count; s++) {
            Slice *slice = rest + s * slots;
            if (!slice->width || token_at(segments + s, slice->start) != token) continue;
            sum += (uint64_t)count_at(segments + s, slice->start++);
            slice->width--;
        }
        if ((int64_t)sum > 0 && token < other) length = keep(heap, length, n, (Entry){(int64_t)sum, token});
    }
}

/* block, 8 bytes each: contexts [K, L]; then room for ids [pool_count * K * n], of which the first are the answer and
   their number is returned; then room for what follows, as much as kernel.py reckons. */
EXPORT int64_t successors(const Segment *segments, const Pool *pools, int64_t pool_count, int64_t K, int64_t L,
                          int64_t n, void *block) {
    int64_t slots = K * ORDERS, segment_count = pool_count ? pools[pool_count - 1].end : 0, found = 0, distinct = 0;
    const int64_t *contexts = block;
    int64_t *ids = (int64_t *)block + K * L;
    uint64_t *hashes = (uint64_t *)(ids + pool_count * K * n);
    int64_t *lengths = (int64_t *)(hashes + slots);
    Slice *slices = (Slice *)(lengths + K);                 /* [segment_count, slots] */
    Entry *heap = (Entry *)(slices + segment_count * slots); /* [n] */

    hash(contexts, K, L, hashes, lengths);
    for (int64_t s = 0; s < segment_count; s++) locate(segments + s, hashes, lengths, K, slices + s * slots);
    for (int64_t w = 0; w < pool_count; w++) {
        int64_t first = pools[w].first, segments_here = pools[w].end - first;
        for (int64_t k = 0; k < K; k++) {
            int64_t length = 0;
            for (int64_t o = ORDERS - 1; o >= 0 && !length; o--) {
                Slice *rest = slices + first * slots + k * ORDERS + o;
                uint64_t sum = 0;
                for (int64_t s = 0; s < segments_here; s++)
                    sum += (uint64_t)total(segments + first + s, rest[s * slots]);
                if ((int64_t)sum > 0) length = best(segments + first, rest, segments_here, slots, n, heap);
            }
            for (int64_t i = 0; i < length; i++) ids[found++] = heap[i].token;
        }
    }
    HOLDS(found <= pool_count * K * n);
    sort((uint64_t *)ids, (uint64_t *)(heap + n), found, 0);
    for (int64_t i = 0; i < found; i++)
        if (!distinct || ids[distinct - 1] != ids[i]) ids[distinct++] = ids[i];
    return distinct;
}

/* --- both sides ---------------------------------------------------------------------------------------------- */

/* The n largest of p [V], none below 0, into the heap; of equals the first. Returns how many it holds. */
static int64_t likeliest(const float *p, int64_t V, int64_t n, Entry *heap) {
    const int32_t *bits = (const int32_t *)p; /* numbers from 0 on are in the order of their bits */
    int64_t length = 0;
    for (int64_t start = 0; start < V; start += PART) {
        int64_t end = cut(start + PART, V);
        if (length == n && end == start + PART) { /* most parts hold nothing */
            int32_t most = 0;
            for (int64_t i = 0; i < PART; i++) most = bits[start + i] > most ? bits[start + i] : most;
            if (most <= heap[0].count) continue;
        }
        for (int64_t i = start; i < end; i++)
            if (bits[i] >= 0 && (length < n || bits[i] > heap[0].count)) length = keep(heap, length, n, (Entry){bits[i], i});
    }
    return length;
}

/* block, 8 bytes each: contexts [K, L], weights [ORDERS + 1, ORDERS]; then room for ids [most] and p_f [K, most], most
   = n + pool_count * K * n, of which the first C, whose number is returned, and K * C are the answer; then room for what
   follows, as much as kernel.py reckons. p [V] of float. */
EXPORT int64_t nested(const Segment *segments, const Pool *pools, int64_t pool_count, int64_t K, int64_t L, int64_t n,
                      const float *p, int64_t V, void *block) {
    int64_t slots = K * ORDERS, segment_count = pool_count ? pools[pool_count - 1].end : 0, found = 0, C = 0;
    int64_t most = n + pool_count * K * n;
    const int64_t *contexts = block;
    const double *weights = (const double *)(contexts + K * L);
    int64_t *ids = (int64_t *)(weights + (ORDERS + 1) * ORDERS);
    double *p_f = (double *)(ids + most), *heard = p_f + K * most;
    uint64_t *hashes = (uint64_t *)(heard + slots);
    int64_t *lengths = (int64_t *)(hashes + slots);
    Slice *slices = (Slice *)(lengths + K);                        /* [segment_count, slots] */
    Slice *rest = slices + segment_count * slots;                  /* [segment_count] */
    int64_t *totals = (int64_t *)(rest + segment_count);           /* [pool_count, slots] */
    Entry *heap = (Entry *)(totals + pool_count * slots);          /* [n] */
    int64_t *met = (int64_t *)(heap + n), *scratch = met + segment_count * most;

    for (int64_t i = 0; i < slots; i++) heard[i] = 0;
    hash(contexts, K, L, hashes, lengths);
    for (int64_t s = 0; s < segment_count; s++) locate(segments + s, hashes, lengths, K, slices + s * slots);
    int64_t own = likeliest(p, V, n, heap);
    for (int64_t i = 0; i < own; i++) ids[found++] = heap[i].token;
    hear(segments, pools, pool_count, slots, slices, totals, heard);
    for (int64_t w = 0; w < pool_count; w++) {
        int64_t first = pools[w].first, segments_here = pools[w].end - first;
        for (int64_t k = 0; k < K; k++) {
            int64_t length = 0;
            for (int64_t i = (k + 1) * ORDERS - 1; i >= k * ORDERS && !length; i--) {
                if (totals[w * slots + i] <= 0) continue;
                for (int64_t s = 0; s < segments_here; s++) rest[s] = slices[(first + s) * slots + i];
                length = best(segments + first, rest, segments_here, 1, n, heap);
            }
            for (int64_t i = 0; i < length; i++)
                if (heap[i].token < V && p[heap[i].token] >= 0) ids[found++] = heap[i].token;
        }
    }
    HOLDS(found <= most);
    sort((uint64_t *)ids, (uint64_t *)scratch, found, 0);
    for (int64_t i = 0; i < found; i++)
        if (!C || ids[C - 1] != ids[i]) ids[C++] = ids[i];
    if (!C) return 0;
    Wanted wanted = sorted_candidates(ids, C, scratch);
    for (int64_t k = 0; k < K; k++) {
        int64_t m = ORDERS; /* the highest order heard, counted from 1 */
        while (m > 0 && !(heard[k * ORDERS + m - 1] > 0)) m--;
        const double *row = weights + m * ORDERS;
        double remains = 1;
        for (int64_t o = 0; o < ORDERS; o++) remains -= row[o];
        for (int64_t c = 0; c < C; c++) p_f[k * C + c] = remains * p[ids[c]];
        for (int64_t o = 0; o < m; o++) {
            int64_t slot = k * ORDERS + o;
            if (row[o] != 0)
                weigh(segments, pools, pool_count, slots, slices, totals, heard[slot], slot, &wanted, met, row[o],
                      p_f + k * C);
        }
    }
    return C;
}

/* Of this file, given by who compiles it: a library compiled from another one is not used. */
EXPORT uint64_t source_digest(void) { return SOURCE_DIGEST; }
