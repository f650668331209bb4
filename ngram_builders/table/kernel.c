/* The n-gram query: how likely tokens are after contexts, and how tables and a model mix.

   In: the arrays of tables (format.py), contexts, candidates. Out: probabilities, successors. Needs neither Python nor
   a C library, allocates nothing and keeps nothing between calls: any number of threads may call it at once. query.py
   says what each function returns.

   K drafts, L tokens of context, C candidates, V vocabulary; a slot is one draft and order, K * ORDER_COUNT of them.
   scratch is as large as query.py computes. */

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

/* --- probabilities ------------------------------------------------------------------------------------------- */

/* Add to p [C] how likely each candidate is in one slot, times `scale`. */
static void add_probabilities(const Tables *t, const Matches *m, int64_t slot, const int64_t *candidates, int64_t C,
                              double scale, double *p) {
    for (int64_t w = 0; w < t->pool_count; w++) {
        const Pool *pool = t->pools + w;
        int64_t total = m->totals[w * m->slots + slot];
        if (total <= 0) continue;
        double share = pool->weight / m->matched[slot];
        for (int64_t c = 0; c < C; c++) {
            uint64_t count = 0;
            for (int64_t s = pool->first; s < pool->end; s++)
                count += (uint64_t)count_of(t->segments + s, m->slices[s * m->slots + slot], candidates[c]);
            if ((int64_t)count <= 0) continue;
            double likely = (double)(int64_t)count / (double)total;
            p[c] += scale * (share * (likely < 1 ? likely : 1)); /* a change may take away more than a table has */
        }
    }
}

/* p [K, ORDER_COUNT, C], given as zeros, and matched [K, ORDER_COUNT]. */
EXPORT void probabilities(const Tables *t, int64_t K, int64_t L, const int64_t *contexts, int64_t C,
                          const int64_t *candidates, double *p, double *matched, int64_t *scratch) {
    Matches m = match_contexts(t, contexts, K, L, matched, scratch);
    for (int64_t slot = 0; slot < m.slots; slot++) add_probabilities(t, &m, slot, candidates, C, 1, p + slot * C);
}

/* --- the most frequent --------------------------------------------------------------------------------------- */

typedef struct {
    int64_t count, token;
} Entry;

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

/* The n commonest tokens of a pool after one context, into the heap: merges the segments' sorted rows, which are used
   up. rows [segment_count] */
static int64_t top_tokens(const Segment *segments, Slice *rows, int64_t segment_count, int64_t n, Entry *heap) {
    int64_t length = 0;
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

/* Insert an id into sorted ids, each once. Returns the new length. */
static int64_t insert(int64_t *ids, int64_t length, int64_t id) {
    int64_t at = length;
    while (at > 0 && ids[at - 1] > id) at--;
    if (at > 0 && ids[at - 1] == id) return length;
    for (int64_t i = length; i > at; i--) ids[i] = ids[i - 1];
    ids[at] = id;
    return length + 1;
}

/* Insert into ids the n commonest tokens of each pool and draft after the longest context with any; with p [V], only
   tokens below V whose p is not negative. scratch [SLICE_WORDS * segment_count + 2 * n]. Returns the new length. */
static int64_t insert_successors(const Tables *t, const Matches *m, int64_t n, const float *p, int64_t V,
                                 int64_t *ids, int64_t id_count, int64_t *scratch) {
    Slice *rows = (Slice *)scratch;
    Entry *heap = (Entry *)(rows + t->segment_count);
    for (int64_t w = 0; w < t->pool_count; w++) {
        int64_t first = t->pools[w].first, segment_count = t->pools[w].end - first;
        for (int64_t draft = 0; draft < m->slots; draft += ORDER_COUNT) {
            int64_t length = 0;
            for (int64_t slot = draft + ORDER_COUNT - 1; slot >= draft && !length; slot--) {
                if (m->totals[w * m->slots + slot] <= 0) continue;
                for (int64_t s = 0; s < segment_count; s++) rows[s] = m->slices[(first + s) * m->slots + slot];
                length = top_tokens(t->segments + first, rows, segment_count, n, heap);
            }
            for (int64_t i = 0; i < length; i++)
                if (!p || (heap[i].token < V && p[heap[i].token] >= 0))
                    id_count = insert(ids, id_count, heap[i].token);
        }
    }
    return id_count;
}

/* ids [pool_count * K * n], of which as many are the answer as is returned. */
EXPORT int64_t successors(const Tables *t, int64_t K, int64_t L, const int64_t *contexts, int64_t n, int64_t *ids,
                          double *matched, int64_t *scratch) {
    int64_t *rest = scratch + SLICE_WORDS * t->segment_count + 2 * n;
    Matches m = match_contexts(t, contexts, K, L, matched, rest);
    int64_t id_count = insert_successors(t, &m, n, 0, 0, ids, 0, scratch);
    ASSERT(id_count <= t->pool_count * K * n);
    return id_count;
}

/* --- model and tables ---------------------------------------------------------------------------------------- */

/* The n largest of p [V], none below 0, into the heap; of equals the first. Returns how many it holds. */
static int64_t top_probabilities(const float *p, int64_t V, int64_t n, Entry *heap) {
    const int32_t *bits = (const int32_t *)p; /* floats from 0 on compare like their bits */
    int64_t length = 0;
    int32_t worst = -1;
    for (int64_t i = 0; i < V; i++) {
        if (bits[i] <= worst) continue;
        length = heap_push(heap, length, n, (Entry){bits[i], i});
        if (length == n) worst = (int32_t)heap[0].count;
    }
    return length;
}

/* The order weights of a history: those for the longest context that pools know, their mean by the pools' shares. Pools
   whose weights sum to less than 1 have only so much of a say; the rest is for the longest context that more of them
   know, and at last for the model. order_weights [pool_count, ORDER_COUNT + 1, ORDER_COUNT], row [ORDER_COUNT]. */
static void mean_order_weights(const Tables *t, const Matches *m, int64_t k, const double *order_weights, double *row) {
    double given = 0;
    for (int64_t o = 0; o < ORDER_COUNT; o++) row[o] = 0;
    for (int64_t longest = ORDER_COUNT; longest > 0 && given < 1; longest--) {
        int64_t slot = k * ORDER_COUNT + longest - 1;
        double matched = m->matched[slot], say = (matched < 1 ? matched : 1) - given;
        if (!(say > 0)) continue;
        for (int64_t w = 0; w < t->pool_count; w++) {
            if (m->totals[w * m->slots + slot] <= 0) continue;
            const double *weights = order_weights + (w * (ORDER_COUNT + 1) + longest) * ORDER_COUNT;
            double share = say * (t->pools[w].weight / matched);
            for (int64_t o = 0; o < longest; o++) row[o] += share * weights[o];
        }
        given += say;
    }
}

/* Mix the model's probabilities [K, C] with those of the tables, in place. */
static void mix_rows(const Tables *t, const Matches *m, int64_t K, const int64_t *candidates, int64_t C,
                     const double *order_weights, double *mixed) {
    for (int64_t k = 0; k < K; k++) {
        double weights[ORDER_COUNT], model_weight = 1;
        mean_order_weights(t, m, k, order_weights, weights);
        for (int64_t o = 0; o < ORDER_COUNT; o++) model_weight -= weights[o];
        for (int64_t c = 0; c < C; c++) mixed[k * C + c] *= model_weight;
        for (int64_t o = 0; o < ORDER_COUNT; o++)
            if (weights[o] != 0)
                add_probabilities(t, m, k * ORDER_COUNT + o, candidates, C, weights[o], mixed + k * C);
    }
}

/* mixed [K, C], given as the model's probabilities; order_weights [pool_count, ORDER_COUNT + 1, ORDER_COUNT]. */
EXPORT void mix(const Tables *t, int64_t K, int64_t L, const int64_t *contexts, int64_t C, const int64_t *candidates,
                const double *order_weights, double *mixed, double *matched, int64_t *scratch) {
    Matches m = match_contexts(t, contexts, K, L, matched, scratch);
    mix_rows(t, &m, K, candidates, C, order_weights, mixed);
}

/* p [V]; ids [max_ids] and mixed [K, max_ids], max_ids = n + pool_count * K * n, of which the first C, the number
   returned, and K * C are the answer. */
EXPORT int64_t mix_candidates(const Tables *t, int64_t K, int64_t L, const int64_t *contexts, int64_t V, const float *p,
                              int64_t n, const double *order_weights, int64_t *ids, double *mixed, double *matched,
                              int64_t *scratch) {
    int64_t *rest = scratch + SLICE_WORDS * t->segment_count + 2 * n, C = 0;
    Entry *heap = (Entry *)scratch;
    Matches m = match_contexts(t, contexts, K, L, matched, rest);
    int64_t likely_count = top_probabilities(p, V, n, heap);
    for (int64_t i = 0; i < likely_count; i++) C = insert(ids, C, heap[i].token);
    C = insert_successors(t, &m, n, p, V, ids, C, scratch);
    ASSERT(C <= n + t->pool_count * K * n);
    for (int64_t k = 0; k < K; k++)
        for (int64_t c = 0; c < C; c++) mixed[k * C + c] = p[ids[c]];
    mix_rows(t, &m, K, ids, C, order_weights, mixed);
    return C;
}

/* Identifies the sources; set when they are compiled. A library compiled from others is not used. */
EXPORT uint64_t source_digest(void) { return SOURCE_DIGEST; }
