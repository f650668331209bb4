/* The n-gram query in C: the same numbers as numpy_query.py, bit for bit.

   In: the arrays of tables (format.py), contexts, candidates. Out: probabilities, successors. Needs neither Python nor
   a C library, allocates nothing and keeps nothing between calls: any number of threads may call it at once.

   A query mostly waits for memory, so each step is done for all drafts and orders before the next step begins, and
   prefetches what the next one reads.

   K drafts, L tokens of context, C candidates, V vocabulary; a slot is one draft and order, K * ORDER_COUNT of them. */

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-loop-distribute-patterns") /* would call memset, and there is no C library */
#endif

#define _DEFAULT_SOURCE 1 /* for sigbus_guard.h; before anything is included */
#define _DARWIN_C_SOURCE 1

#include "rows.h"

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#include "sigbus_guard.h"

#ifndef SOURCE_DIGEST
#define SOURCE_DIGEST 0
#endif

enum {
    BLOCK = 32,   /* probabilities compared at a time in search of large ones */
    SEARCHED = 32 /* rows with at least this many entries are searched for the candidates */
};

typedef struct {
    int64_t count, token;
} Entry;

/* --- sorting ------------------------------------------------------------------------------------------------- */

/* Stable radix sort by the four bytes above the lowest `shift` bits. `spare` is as long as `keys`. */
static void radix_sort(uint64_t *keys, uint64_t *spare, int64_t length, int shift) {
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

/* Sort ids and keep each once. Returns how many are left. */
static int64_t sort_unique(int64_t *ids, int64_t length, int64_t *spare) {
    int64_t unique = 0;
    radix_sort((uint64_t *)ids, (uint64_t *)spare, length, 0);
    for (int64_t i = 0; i < length; i++)
        if (!unique || ids[unique - 1] != ids[i]) ids[unique++] = ids[i];
    return unique;
}

/* --- probabilities ------------------------------------------------------------------------------------------- */

/* The candidates, sorted and each once. */
typedef struct {
    int64_t length, repeat_count;
    uint32_t *tokens; /* [length] */
    int64_t *places;  /* [length] the first place of each among the candidates as given */
    int64_t *repeats; /* [repeat_count] the other places: the same token as at `firsts[place]` */
    int64_t *firsts;  /* [C] */
    int64_t *sums;    /* [length] pooled counts; 0 between uses */
    int64_t *cursors; /* [length] for the search in a wide row */
} Candidates;

/* scratch [6 * C]. What no table can hold is left out. */
static Candidates sort_candidates(const int64_t *candidates, int64_t C, int64_t *scratch) {
    Candidates sorted = {0, 0, (uint32_t *)scratch, scratch + C, scratch + 2 * C, scratch + 3 * C, scratch + 4 * C,
                         scratch + 5 * C};
    uint64_t *keys = (uint64_t *)sorted.sums;
    int64_t length = 0;
    for (int64_t c = 0; c < C; c++)
        if (candidates[c] >= 0 && candidates[c] <= UINT32_MAX)
            keys[length++] = (uint64_t)candidates[c] << 32 | (uint64_t)c;
    radix_sort(keys, (uint64_t *)sorted.cursors, length, 32);
    for (int64_t i = 0; i < length; i++) {
        uint32_t token = (uint32_t)(keys[i] >> 32);
        int64_t c = (int64_t)(uint32_t)keys[i];
        if (sorted.length && sorted.tokens[sorted.length - 1] == token) {
            sorted.firsts[c] = sorted.places[sorted.length - 1];
            sorted.repeats[sorted.repeat_count++] = c;
        } else {
            sorted.tokens[sorted.length] = token;
            sorted.places[sorted.length++] = c;
        }
    }
    for (int64_t i = 0; i < length; i++) sorted.sums[i] = 0;
    return sorted;
}

/* Add a row's counts to the candidates' sums. Appends the candidates found, each once, to hits; returns its length. */
static int64_t add_counts(const Segment *s, Slice slice, const Candidates *candidates, int64_t *hits, int64_t length) {
    const uint64_t tokens = (uint64_t)(uintptr_t)candidates->tokens;
    if (slice.width < SEARCHED) {
        int64_t next = 0; /* tokens ascend; where a bad row repeats some, a candidate is still found only once */
        for (int64_t place = slice.start; place < slice.start + slice.width; place++) {
            int64_t token = token_at(s, place);
            int64_t i = bisect(tokens, 0, candidates->length, (uint32_t)token);
            if (candidates->tokens[i] != token || token >= s->other || i < next) continue;
            candidates->sums[i] += slice_count(s, &slice, place);
            hits[length++] = i;
            next = i + 1;
        }
        return length;
    }
    /* All candidates take each step of the search together, so that none waits for the memory of another. */
    int64_t *cursors = candidates->cursors;
    for (int64_t i = 0; i < candidates->length; i++) cursors[i] = slice.start;
    for (int64_t width = slice.width; width > 1; width -= width >> 1) {
        int64_t half = width >> 1;
        for (int64_t i = 0; i < candidates->length; i++)
            cursors[i] += UNPREDICTABLE(token_at(s, cursors[i] + half) <= candidates->tokens[i]) ? half : 0;
    }
    for (int64_t i = 0; i < candidates->length; i++) {
        if (token_at(s, cursors[i]) != candidates->tokens[i] || candidates->tokens[i] >= s->other) continue;
        candidates->sums[i] += slice_count(s, &slice, cursors[i]);
        hits[length++] = i;
    }
    return length;
}

/* Add to p [C] how likely each candidate is in one slot, times `scale`. hits [segment_count * C] */
static void add_probabilities(const Tables *t, const Matches *m, int64_t slot, const Candidates *candidates,
                              int64_t *hits, double scale, double *p) {
    for (int64_t w = 0; w < t->pool_count; w++) {
        const Pool *pool = t->pools + w;
        int64_t total = m->totals[w * m->slots + slot], length = 0;
        if (total <= 0) continue;
        for (int64_t s = pool->first; s < pool->end; s++)
            length = add_counts(t->segments + s, m->slices[s * m->slots + slot], candidates, hits, length);
        ASSERT(length <= (pool->end - pool->first) * candidates->length);
        double share = pool->weight / m->matched[slot];
        for (int64_t h = 0; h < length; h++) {
            int64_t count = candidates->sums[hits[h]];
            candidates->sums[hits[h]] = 0; /* a candidate in two segments is in `hits` twice */
            if (count <= 0) continue;
            double likely = (double)count / (double)total;
            p[candidates->places[hits[h]]] += scale * (share * (likely < 1 ? likely : 1));
        }
    }
}

/* block, 8 bytes each: p [K, ORDER_COUNT, C] and matched [K, ORDER_COUNT], given as zeros; contexts [K, L],
   candidates [C]; then scratch as large as kernel.py computes. */
EXPORT void probabilities(const Tables *t, int64_t K, int64_t L, int64_t C, void *block) {
    int64_t slots = K * ORDER_COUNT;
    double *p = block, *matched = p + slots * C;
    const int64_t *contexts = (const int64_t *)(matched + slots), *given = contexts + K * L;
    int64_t *scratch = (int64_t *)given + C;
    Candidates candidates = sort_candidates(given, C, scratch);
    Matches m = match_contexts(t, contexts, K, L, matched, scratch + 6 * C);

    for (int64_t slot = 0; slot < slots && candidates.length; slot++) {
        double *row = p + slot * C;
        add_probabilities(t, &m, slot, &candidates, m.scratch, 1, row);
        for (int64_t r = 0; r < candidates.repeat_count; r++)
            row[candidates.repeats[r]] = row[candidates.firsts[candidates.repeats[r]]];
    }
}

/* --- successors ---------------------------------------------------------------------------------------------- */

static int is_worse(Entry a, Entry b) { return a.count < b.count || (a.count == b.count && a.token > b.token); }

/* Keep the n best entries: a heap whose root is the worst of them. Returns how many it holds. */
static int64_t heap_push(Entry *heap, int64_t length, int64_t n, Entry entry) {
    int64_t i = 0;
    if (length < n) {
        for (i = length++; i > 0 && is_worse(entry, heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    } else {
        if (!is_worse(heap[0], entry)) return length;
        for (int64_t child = 1; child < length; child = 2 * i + 1) {
            if (child + 1 < length && is_worse(heap[child + 1], heap[child])) child++;
            if (!is_worse(heap[child], entry)) break;
            heap[i] = heap[child];
            i = child;
        }
    }
    heap[i] = entry;
    return length;
}

/* top_tokens for one segment, the usual case: most entries are too rare to be kept and are skipped, and the overflow is
   walked beside the row. */
static int64_t top_tokens_of_one(const Segment *s, Slice slice, int64_t n, Entry *heap) {
    const uint8_t *small = s->count_size == 1 ? (const uint8_t *)(uintptr_t)s->counts : 0;
    int64_t length = 0, worst = 0, over = -1; /* tokens ascend: of equally common ones the first is kept */
    for (int64_t place = slice.start; place < slice.start + slice.width; place++) {
        int64_t at = slice.counts + place - slice.start;
        int64_t count = slice.counts < 0 ? 1 : small ? small[at] : count_at(s, at);
        if (small && count == COUNT_OVERFLOW && s->overflows) {
            if (over < 0) over = bisect(s->overflow_places, 0, s->overflows, (uint32_t)at);
            while (over + 1 < s->overflows && u32_at(s->overflow_places, over) < (uint32_t)at) over++;
            if (u32_at(s->overflow_places, over) == (uint32_t)at) count = u32_at(s->overflow_counts, over);
        }
        if (count <= worst) continue;
        int64_t token = token_at(s, place);
        if (token >= s->other) continue;
        length = heap_push(heap, length, n, (Entry){count, token});
        if (length == n) worst = heap[0].count;
    }
    return length;
}

/* The n commonest tokens of a pool after one context, into the heap: merges the segments' sorted rows, which are used
   up. rows [segment_count] */
static int64_t top_tokens(const Segment *segments, Slice *rows, int64_t segment_count, int64_t n, Entry *heap) {
    int64_t length = 0;
    if (segment_count == 1) return top_tokens_of_one(segments, *rows, n, heap);
    for (;;) {
        int64_t token = INT64_MAX, other = INT64_MAX;
        for (int64_t s = 0; s < segment_count; s++) {
            if (rows[s].width && token_at(segments + s, rows[s].start) < token) {
                token = token_at(segments + s, rows[s].start);
                other = segments[s].other;
            }
        }
        if (token == INT64_MAX) return length;
        uint64_t sum = 0;
        for (int64_t s = 0; s < segment_count; s++) {
            if (!rows[s].width || token_at(segments + s, rows[s].start) != token) continue;
            sum += (uint64_t)slice_count(segments + s, rows + s, rows[s].start);
            rows[s].counts += rows[s].counts >= 0;
            rows[s].start++;
            rows[s].width--;
        }
        if ((int64_t)sum > 0 && token < other) length = heap_push(heap, length, n, (Entry){(int64_t)sum, token});
    }
}

/* Append to ids the n commonest tokens of each pool and draft after the longest context with any; with p [V], only
   tokens below V whose p is not negative. scratch [SLICE_WORDS * segment_count + 2 * n]. Returns the new length. */
static int64_t append_successors(const Tables *t, const Matches *m, int64_t n, const float *p, int64_t V,
                                 int64_t *ids, int64_t id_count, int64_t *scratch) {
    Slice *rows = (Slice *)scratch;
    Entry *heap = (Entry *)(rows + t->segment_count);
    for (int64_t w = 0; w < t->pool_count; w++) {
        int64_t first = t->pools[w].first, segment_count = t->pools[w].end - first;
        for (int64_t draft = 0; draft < m->slots; draft += ORDER_COUNT) {
            int64_t length = 0;
            for (int64_t slot = draft + ORDER_COUNT - 1; slot >= draft && !length; slot--) {
                int64_t total = m->totals ? m->totals[w * m->slots + slot] : pool_total(t, m, w, slot);
                if (total <= 0) continue;
                for (int64_t s = 0; s < segment_count; s++) rows[s] = m->slices[(first + s) * m->slots + slot];
                length = top_tokens(t->segments + first, rows, segment_count, n, heap);
            }
            for (int64_t i = 0; i < length; i++)
                if (!p || (heap[i].token < V && p[heap[i].token] >= 0)) ids[id_count++] = heap[i].token;
        }
    }
    return id_count;
}

/* block, 8 bytes each: contexts [K, L]; ids [pool_count * K * n], of which as many are the answer as is returned; then
   scratch as large as kernel.py computes. */
EXPORT int64_t successors(const Tables *t, int64_t K, int64_t L, int64_t n, void *block) {
    const int64_t *contexts = block;
    int64_t max_ids = t->pool_count * K * n, *ids = (int64_t *)block + K * L, *spare = ids + max_ids;
    int64_t *scratch = spare + max_ids;
    Matches m = match_contexts(t, contexts, K, L, 0, scratch + SLICE_WORDS * t->segment_count + 2 * n);
    int64_t id_count = append_successors(t, &m, n, 0, 0, ids, 0, scratch);
    ASSERT(id_count <= max_ids);
    return sort_unique(ids, id_count, spare);
}

/* --- candidates of model and tables -------------------------------------------------------------------------- */

/* The n largest of p [V], none below 0, into the heap; of equals the first. Returns how many it holds. */
static int64_t top_probabilities(const float *p, int64_t V, int64_t n, Entry *heap) {
    const int32_t *bits = (const int32_t *)p; /* floats from 0 on compare like their bits */
    int64_t length = 0;
    for (int64_t start = 0; start < V; start += BLOCK) {
        int64_t end = at_most(start + BLOCK, V);
        if (length == n && end == start + BLOCK) { /* most blocks hold nothing */
            int32_t largest = 0;
            for (int64_t i = 0; i < BLOCK; i++) largest = bits[start + i] > largest ? bits[start + i] : largest;
            if (largest <= heap[0].count) continue;
        }
        for (int64_t i = start; i < end; i++)
            if (bits[i] >= 0 && (length < n || bits[i] > heap[0].count))
                length = heap_push(heap, length, n, (Entry){bits[i], i});
    }
    return length;
}

/* The order weights of a history: the mean of those of the pools that know its longest context, by their shares.
   order_weights [pool_count, ORDER_COUNT + 1, ORDER_COUNT], row [ORDER_COUNT]. Returns how many orders matched. */
static int64_t mean_order_weights(const Tables *t, const Matches *m, int64_t k, const double *order_weights,
                                  double *row) {
    int64_t longest = ORDER_COUNT; /* order that matched, counted from 1 */
    while (longest > 0 && !(m->matched[k * ORDER_COUNT + longest - 1] > 0)) longest--;
    for (int64_t o = 0; o < ORDER_COUNT; o++) row[o] = 0;
    int64_t slot = k * ORDER_COUNT + longest - 1;
    for (int64_t w = 0; longest && w < t->pool_count; w++) {
        if (m->totals[w * m->slots + slot] <= 0) continue;
        const double *weights = order_weights + (w * (ORDER_COUNT + 1) + longest) * ORDER_COUNT;
        double share = t->pools[w].weight / m->matched[slot];
        for (int64_t o = 0; o < longest; o++) row[o] += share * weights[o];
    }
    return longest;
}

/* Mix the model's probabilities [K, C] with those of the tables, in place. */
static void mix_rows(const Tables *t, const Matches *m, int64_t K, int64_t C, const Candidates *candidates,
                     const double *order_weights, double *mixed) {
    for (int64_t k = 0; k < K; k++) {
        double weights[ORDER_COUNT], model_weight = 1;
        int64_t longest = mean_order_weights(t, m, k, order_weights, weights);
        for (int64_t o = 0; o < ORDER_COUNT; o++) model_weight -= weights[o];
        for (int64_t c = 0; c < C; c++) mixed[k * C + c] *= model_weight;
        for (int64_t o = 0; o < longest && candidates->length; o++)
            if (weights[o] != 0)
                add_probabilities(t, m, k * ORDER_COUNT + o, candidates, m->scratch, weights[o], mixed + k * C);
    }
}

/* block, 8 bytes each: mixed [K, C], given as the model's probabilities; contexts [K, L], candidates [C], each once,
   order_weights [pool_count, ORDER_COUNT + 1, ORDER_COUNT]; then scratch as large as kernel.py computes. */
EXPORT void mix(const Tables *t, int64_t K, int64_t L, int64_t C, void *block) {
    double *mixed = block;
    const int64_t *contexts = (const int64_t *)(mixed + K * C), *given = contexts + K * L;
    const double *order_weights = (const double *)(given + C);
    double *matched = (double *)(order_weights + t->pool_count * (ORDER_COUNT + 1) * ORDER_COUNT);
    int64_t *scratch = (int64_t *)(matched + K * ORDER_COUNT);
    Candidates candidates = sort_candidates(given, C, scratch);
    Matches m = match_contexts(t, contexts, K, L, matched, scratch + 6 * C);
    mix_rows(t, &m, K, C, &candidates, order_weights, mixed);
}

/* block, 8 bytes each: contexts [K, L], order_weights [pool_count, ORDER_COUNT + 1, ORDER_COUNT]; ids [max_ids] and
   mixed [K, max_ids], max_ids = n + pool_count * K * n, of which the first C, the number returned, and K * C are the
   answer; then scratch as large as kernel.py computes. p [V] of float. */
EXPORT int64_t mix_candidates(const Tables *t, int64_t K, int64_t L, int64_t n, const float *p, int64_t V,
                              void *block) {
    int64_t max_ids = n + t->pool_count * K * n, id_count = 0;
    const int64_t *contexts = block;
    const double *order_weights = (const double *)(contexts + K * L);
    int64_t *ids = (int64_t *)(order_weights + t->pool_count * (ORDER_COUNT + 1) * ORDER_COUNT);
    double *mixed = (double *)(ids + max_ids), *matched = mixed + K * max_ids;
    int64_t *sorting = (int64_t *)(matched + K * ORDER_COUNT), *scratch = sorting + 6 * max_ids;
    Entry *heap = (Entry *)scratch;
    Matches m = match_contexts(t, contexts, K, L, matched, scratch + SLICE_WORDS * t->segment_count + 2 * n);

    int64_t likely_count = top_probabilities(p, V, n, heap);
    for (int64_t i = 0; i < likely_count; i++) ids[id_count++] = heap[i].token;
    id_count = append_successors(t, &m, n, p, V, ids, id_count, scratch);
    ASSERT(id_count <= max_ids);
    int64_t C = sort_unique(ids, id_count, sorting);
    if (!C) return 0;
    Candidates candidates = sort_candidates(ids, C, sorting);
    for (int64_t k = 0; k < K; k++)
        for (int64_t c = 0; c < C; c++) mixed[k * C + c] = p[ids[c]];
    mix_rows(t, &m, K, C, &candidates, order_weights, mixed);
    return C;
}

/* Identifies the sources; set when they are compiled. A library compiled from others is not used. */
EXPORT uint64_t source_digest(void) { return SOURCE_DIGEST; }
