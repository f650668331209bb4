/* Counts of n-grams by binary search in a suffix array: for the comparison of structures only.
   Compiled where the comparison runs, if there is a compiler. */

#include <stdint.h>
#include <string.h>

#define SCANNED 64 /* ranges up to this are read through instead of searched */

/* next: the text from the column that is compared on; low ... high: a range sorted by it. The first entry not below
   the token. */
static uint32_t lower(const uint16_t *next, const int32_t *array, uint32_t low, uint32_t high, uint32_t token)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (next[array[middle]] < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Where the token's entries end, which begin at low or do not exist; gallops, since they are few as a rule. */
static uint32_t end_of(const uint16_t *next, const int32_t *array, uint32_t low, uint32_t high, uint32_t token)
{
    uint32_t reach = 1;
    if (low == high || next[array[low]] != token)
        return low;
    while (reach < high - low && next[array[low + reach]] == token)
        reach *= 2;
    return lower(next, array, low + reach / 2 + 1, reach < high - low ? low + reach : high, token + 1);
}

/* text: ids, a separator (the largest id) after each document; array: places sorted by what begins there;
   heads[t] ... heads[t + 1]: the range of token t. contexts [drafts, width], newest rightmost; candidates [number];
   index: vocabulary + 1 zeros, given back as zeros; p [drafts, width, number]. */
void step(const uint16_t *text, const int32_t *array, const uint32_t *heads, int32_t separator,
          const int64_t *contexts, int32_t drafts, int32_t width, const int64_t *candidates, int32_t number,
          int32_t *index, double *p)
{
    for (int32_t c = 0; c < number; c++)
        index[candidates[c]] = c + 1;
    memset(p, 0, sizeof *p * drafts * width * number);
    for (int32_t k = 0; k < drafts; k++)
        for (int32_t length = 1; length <= width; length++, p += number) {
            const int64_t *context = contexts + (int64_t)(k + 1) * width - length;
            const uint16_t *next = text + length;
            uint32_t low = heads[context[0]], high = heads[context[0] + 1];
            double total = 0;
            for (int32_t i = 1; i < length && low < high; i++) {
                low = lower(text + i, array, low, high, (uint32_t)context[i]);
                high = end_of(text + i, array, low, high, (uint32_t)context[i]);
            }
            if (high - low <= SCANNED) {
                for (uint32_t i = low; i < high; i++) {
                    uint16_t token = next[array[i]];
                    total += token != separator;
                    if (index[token])
                        p[index[token] - 1] += 1;
                }
            } else {
                if (next[array[high - 1]] == separator) /* the end of a document is no follower */
                    high = lower(next, array, low, high, (uint32_t)separator);
                total = high - low;
                for (int32_t c = 0; c < number; c++) {
                    uint32_t token = (uint32_t)candidates[c], first = lower(next, array, low, high, token);
                    p[c] = end_of(next, array, first, high, token) - first;
                }
            }
            for (int32_t c = 0; total > 0 && c < number; c++)
                p[c] /= total;
        }
    for (int32_t c = 0; c < number; c++)
        index[candidates[c]] = 0;
}
