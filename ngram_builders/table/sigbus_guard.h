/* Zeros for what is left of a mapped file that is truncated, where the system would end the process.

   Reading a mapped page that its file no longer reaches, or that the disk cannot deliver, raises SIGBUS, which by
   default ends the process. Here the rest of a watched mapping is replaced by zeros and the reading goes on: queries
   survive any bytes, so zeros give wrong numbers until the table is opened again. systemd's journal does the same.
   Faults elsewhere go to the handler that was there before.

   Windows does not let a mapped file be truncated. There is no C library: the functions needed are passed in. */

#if !defined(_WIN32)

#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>

enum { MAX_WATCHED = 1024 };

typedef struct {
    volatile uintptr_t start, end; /* of whole pages; end 0: unused */
} Range;

static Range watched[MAX_WATCHED];
static struct sigaction previous_action, own_action;
static int (*set_action)(int, const struct sigaction *, struct sigaction *);
static void *(*map_pages)(void *, size_t, int, int, int, off_t);
static int (*raise_signal)(int);
static uintptr_t page;

static void handle_sigbus(int number, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)info->si_addr & ~(page - 1);
    (void)context;
    for (int i = 0; info->si_code > 0 && i < MAX_WATCHED; i++) { /* others are sent by a process */
        uintptr_t end = watched[i].end;
        if (at < watched[i].start || at >= end) continue;
        if (map_pages((void *)at, end - at, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
            return;
    }
    set_action(SIGBUS, &previous_action, 0); /* a fault comes again as soon as this returns */
    if (info->si_code <= 0) raise_signal(number);
}

/* Handle SIGBUS first from now on. The functions are the C library's sigaction, mmap and raise. Returns success. */
EXPORT int64_t install_guard(void *sigaction_, void *mmap_, void *raise_, int64_t page_size) {
    set_action = (int (*)(int, const struct sigaction *, struct sigaction *))(uintptr_t)sigaction_;
    map_pages = (void *(*)(void *, size_t, int, int, int, off_t))(uintptr_t)mmap_;
    raise_signal = (int (*)(int))(uintptr_t)raise_;
    page = (uintptr_t)page_size;
    own_action.sa_sigaction = handle_sigbus;
    own_action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    return set_action(SIGBUS, &own_action, &previous_action) == 0;
}

/* Watch a mapping. Returns its number for `unwatch`, or -1 if there are too many. One thread at a time. */
EXPORT int64_t watch(uint64_t start, int64_t length) {
    for (int i = 0; i < MAX_WATCHED; i++) {
        if (watched[i].end) continue;
        watched[i].start = (uintptr_t)start;
        watched[i].end = ((uintptr_t)start + (uintptr_t)length + page - 1) & ~(page - 1);
        return i;
    }
    return -1;
}

EXPORT void unwatch(int64_t number) { watched[number].end = 0; }

#endif
