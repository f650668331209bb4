/* What is left of a mapped file that somebody cuts short: zeros, where the system would end the process.

   Who reads a mapped page that its file does not reach any more, or that the disk cannot give, gets a signal, and
   its default is the end. Here the rest of a watched mapping is replaced by zeros and the reading goes on: tables may
   hold anything, so that zeros give wrong numbers until the table is opened again. systemd's journal does the same.
   What is not watched goes to whoever was asked before.

   Windows lets nobody cut a mapped file short. Knows no C library: the functions that it calls are given to it. */

#if !defined(_WIN32)

#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>

enum { WATCHED = 1024 };

typedef struct {
    volatile uintptr_t start, end; /* of whole pages; end 0: unused */
} Range;

static Range watched[WATCHED];
static struct sigaction before, ours;
static int (*set_action)(int, const struct sigaction *, struct sigaction *);
static void *(*map_pages)(void *, size_t, int, int, int, off_t);
static int (*raise_again)(int);
static uintptr_t page;

static void bear(int number, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)info->si_addr & ~(page - 1);
    (void)context;
    for (int i = 0; info->si_code > 0 && i < WATCHED; i++) { /* others are sent by a process */
        uintptr_t end = watched[i].end;
        if (at < watched[i].start || at >= end) continue;
        if (map_pages((void *)at, end - at, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
            return;
    }
    set_action(SIGBUS, &before, 0); /* a fault comes again as soon as this returns */
    if (info->si_code <= 0) raise_again(number);
}

/* Be asked first from now on; the functions are the C library's sigaction, mmap and raise. Returns whether it worked. */
EXPORT int64_t guard(void *sigaction_, void *mmap_, void *raise_, int64_t page_size) {
    set_action = (int (*)(int, const struct sigaction *, struct sigaction *))(uintptr_t)sigaction_;
    map_pages = (void *(*)(void *, size_t, int, int, int, off_t))(uintptr_t)mmap_;
    raise_again = (int (*)(int))(uintptr_t)raise_;
    page = (uintptr_t)page_size;
    ours.sa_sigaction = bear;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    return set_action(SIGBUS, &ours, &before) == 0;
}

/* Watch a mapping of so many bytes. Returns what `forget` wants, or -1 if there are too many. One thread at a time. */
EXPORT int64_t watch(uint64_t start, int64_t length) {
    for (int i = 0; i < WATCHED; i++) {
        if (watched[i].end) continue;
        watched[i].start = (uintptr_t)start;
        watched[i].end = ((uintptr_t)start + (uintptr_t)length + page - 1) & ~(page - 1);
        return i;
    }
    return -1;
}

EXPORT void forget(int64_t place) { watched[place].end = 0; }

#endif
