/* Every operation, and where its octets come to. */
#include "raw.h"

#include <sys/mman.h>

static uint64_t at(const struct end *end, size_t offset) {
    /* The peer's work changes it, so the event comes there and not here. */
    return __atomic_load_n((const uint64_t *)(const void *)(end->memory + offset), __ATOMIC_ACQUIRE);
}

static void sends(struct pair *pair) {
    struct end *from = &pair->active, *to = &pair->passive;
    struct ddp_sge pieces[3] = {piece(from, 0, 3), piece(from, 100, 0), piece(from, 10, 4)};
    struct ddp_sge places[2] = {piece(to, 0, 2), piece(to, 50, 64)};
    memcpy(from->memory, "abcdefghijklmnopqrstuvwxyz", 26);
    IS(post(to, (struct ddp_work){.op = DDP_RECEIVE, .tag = 7, .list = places, .count = 2}), 1);
    IS(post(from, (struct ddp_work){.op = DDP_SEND, .tag = 8, .list = pieces, .count = 3}), 1);
    struct ddp_event sent = event(from, DDP_SEND, 0), got = event(to, DDP_RECEIVE, 0);
    IS(sent.tag, 8);
    IS(sent.endpoint, 1);
    IS(got.tag, 7);
    IS(got.endpoint, 2);
    IS(got.length, 7);
    IS(got.flags, 0);
    IS(memcmp(to->memory, "ab", 2), 0);
    IS(memcmp(to->memory + 50, "cklmn", 5), 0);

    /* Any memory, copied. */
    char octets[] = "copied";
    struct ddp_sge any = {.to = (uintptr_t)octets, .length = 6};
    IS(receive(to, 200, 6, 0), 1);
    struct ddp_work copied = {.op = DDP_SEND, .flags = DDP_INLINE | DDP_SOLICITED, .list = &any, .count = 1};
    IS(post(from, copied), 1);
    memset(octets, 0, sizeof octets);
    event(from, DDP_SEND, 0);
    got = event(to, DDP_RECEIVE, 0);
    IS(got.flags, DDP_EVENT_SOLICITED);
    IS(memcmp(to->memory + 200, "copied", 6), 0);

    /* A Send of no octets, without an event, in one call with another work. */
    struct ddp_work two[] = {
        {.op = DDP_SEND, .flags = DDP_QUIET},
        {.op = DDP_IMMEDIATE, .with.immediate = "8 octets", .tag = 5},
    };
    struct ddp_work none = {.op = DDP_RECEIVE};
    IS(post(to, none), 1);
    IS(post(to, none), 1);
    IS(ddp_post(from->fd, two, 2), 2);
    IS(event(from, DDP_IMMEDIATE, 0).tag, 5);
    IS(event(to, DDP_RECEIVE, 0).length, 0);
    got = event(to, DDP_RECEIVE, 0);
    IS(got.flags, DDP_EVENT_IMMEDIATE);
    IS(got.length, 0);
    IS(memcmp(got.immediate, "8 octets", 8), 0);
}

static void one_sided(struct pair *pair) {
    struct end *from = &pair->active, *to = &pair->passive;
    struct ddp_sge pieces[2] = {piece(from, 0, 26), piece(from, 5, 1)};
    uint64_t there = (uintptr_t)to->memory + 1000;
    struct ddp_work write = {
        .op = DDP_WRITE_IMMEDIATE, .list = pieces, .count = 2, .stag = to->stag, .to = there, .with.immediate = "written"};
    IS(post(to, (struct ddp_work){.op = DDP_RECEIVE}), 1);
    IS(post(from, write), 1);
    event(from, DDP_WRITE, 0);
    struct ddp_event told = event(to, DDP_RECEIVE, 0);
    IS(memcmp(told.immediate, "written", 8), 0);
    IS(told.length, 27);
    IS(memcmp(to->memory + 1000, "abcdefghijklmnopqrstuvwxyzf", 27), 0);

    struct ddp_sge sink = piece(from, 2000, 10);
    IS(post(from, (struct ddp_work){
                      .op = DDP_READ, .list = &sink, .count = 1, .stag = to->stag, .to = there + 3, .tag = 9}),
       1);
    struct ddp_event got = event(from, DDP_READ, 0);
    IS(got.length, 10);
    IS(got.tag, 9);
    IS(memcmp(from->memory + 2000, "defghijklm", 10), 0);
}

static void atomics(struct pair *pair) {
    struct end *from = &pair->active, *to = &pair->passive;
    uint64_t value = 40;
    memcpy(to->memory + 3000, &value, sizeof value);
    struct ddp_sge sink = piece(from, 3000, 8);
    struct ddp_work work = {
        .op = DDP_FETCH_ADD, .list = &sink, .count = 1, .stag = to->stag, .to = (uintptr_t)to->memory + 3000};
    work.with.fetch_add.add = 2;
    IS(post(from, work), 1);
    IS(event(from, DDP_FETCH_ADD, 0).length, 8);
    IS(at(from, 3000), 40);
    IS(at(to, 3000), 42);
    work.op = DDP_CMP_SWAP;
    work.with.cmp_swap.compare = 42;
    work.with.cmp_swap.compare_mask = work.with.cmp_swap.swap_mask = ~0ull;
    work.with.cmp_swap.swap = 99;
    IS(post(from, work), 1);
    event(from, DDP_CMP_SWAP, 0);
    IS(at(from, 3000), 42);
    IS(at(to, 3000), 99);
    sink.length = 9;
    FAILS(post(from, work), EINVAL);
}

static void invalidations(struct pair *pair) {
    struct end *from = &pair->active, *to = &pair->passive;
    uint32_t stag, now;
    IS(ddp_register(0, to->memory, 16, DDP_LOCAL_WRITE | DDP_REMOTE_WRITE | DDP_REMOTE_INVALIDATE, &stag), 0);
    IS(receive(to, 0, 8, 0), 1);
    IS(post(from, (struct ddp_work){.op = DDP_SEND_INVALIDATE, .stag = stag, .flags = DDP_QUIET}), 1);
    struct ddp_event got = event(to, DDP_RECEIVE, 0);
    IS(got.flags, DDP_EVENT_INVALIDATED);
    IS(got.stag, stag);
    IS(ddp_reregister(stag, DDP_LOCAL_WRITE | DDP_REMOTE_WRITE, &now), 0);
    IS(now != stag, 1);
    FAILS(ddp_reregister(stag, DDP_LOCAL_WRITE, &stag), EINVAL);
    struct ddp_sge octet = {.to = (uintptr_t)to->memory, .length = 1, .stag = stag};
    FAILS(post(to, (struct ddp_work){.op = DDP_SEND, .list = &octet, .count = 1}), EINVAL);
    IS(post(to, (struct ddp_work){.op = DDP_INVALIDATE, .stag = now}), 1);
    event(to, DDP_INVALIDATE, 0);
    IS(ddp_deregister(now), 0);
    FAILS(ddp_deregister(now), EINVAL);

    IS(ddp_register(0, from->memory, 16, DDP_LOCAL_WRITE, &stag), 0);
    struct ddp_sge sink = {.to = (uintptr_t)from->memory, .length = 4, .stag = stag};
    struct ddp_work read = {.op = DDP_READ_INVALIDATE, .list = &sink, .count = 1, .stag = to->stag};
    read.to = (uintptr_t)to->memory + 1000;
    IS(post(from, read), 1);
    event(from, DDP_READ, 0);
    IS(memcmp(from->memory, "abcd", 4), 0);
    IS(ddp_deregister(stag), 0);
}

/* Tagged Offsets from 0 on, here and there. */
static void zero_based(struct pair *pair) {
    struct end *from = &pair->active, *to = &pair->passive;
    uint32_t here, there;
    IS(ddp_register(0, from->memory + 100, 50, DDP_ZERO_BASED, &here), 0);
    IS(ddp_register(0, to->memory + 300, 50, DDP_ZERO_BASED | DDP_LOCAL_WRITE | DDP_REMOTE_WRITE, &there), 0);
    memcpy(from->memory + 110, "zero based", 10);
    struct ddp_sge octets = {.to = 10, .length = 10, .stag = here};
    struct ddp_work write = {.op = DDP_WRITE, .list = &octets, .count = 1, .stag = there, .to = 40};
    IS(post(to, (struct ddp_work){.op = DDP_RECEIVE}), 1);
    IS(post(from, write), 1);
    event(from, DDP_WRITE, 0);
    /* Behind it, so that it is there. */
    IS(post(from, (struct ddp_work){.op = DDP_SEND, .flags = DDP_QUIET | DDP_READ_FENCE | DDP_FENCE}), 1);
    event(to, DDP_RECEIVE, 0);
    IS(memcmp(to->memory + 340, "zero based", 10), 0);
    octets.to = 45;
    FAILS(post(from, write), EFAULT);
    IS(ddp_deregister(here), 0);
    IS(ddp_deregister(there), 0);
}

/* A file that is not mapped: Reads of the peer, own Sends, and an end where it is cut short. */
void files(void) {
    struct pair *pair = connected(0);
    struct end *from = &pair->active, *to = &pair->passive;
    char octets[6000];
    for (size_t i = 0; i < sizeof octets; i++)
        octets[i] = (char)(i * 7 + i / 256);
    int fd = memfd_create("file", MFD_CLOEXEC);
    IS(write(fd, octets, sizeof octets), sizeof octets);
    uint32_t stag, zero_based;
    uint64_t base, none;
    IS(ddp_register_file(0, fd, 1000, 5000, DDP_REMOTE_READ, &stag, &base), 0);
    IS(ddp_register_file(0, fd, 0, 6000, DDP_REMOTE_READ | DDP_ZERO_BASED, &zero_based, &none), 0);
    IS(none, 0);

    FAILS(ddp_register_file(0, fd, 0, 6001, DDP_REMOTE_READ, &stag, &base), EINVAL);
    FAILS(ddp_register_file(0, fd, ~0ull, 1, DDP_REMOTE_READ, &stag, &base), EINVAL);
    FAILS(ddp_register_file(0, fd, 0, 1, DDP_LOCAL_WRITE, &stag, &base), EINVAL);
    FAILS(ddp_register_file(0, fd, 0, 1, DDP_POPULATE, &stag, &base), EINVAL);
    FAILS(ddp_register_file(99, fd, 0, 1, DDP_REMOTE_READ, &stag, &base), EINVAL);
    FAILS(ddp_register_file(0, from->fd, 0, 0, DDP_REMOTE_READ, &stag, &base), EINVAL);
    FAILS(ddp_register_file(0, -1, 0, 1, DDP_REMOTE_READ, &stag, &base), EBADF);
    FAILS(ddp_register_file(0, fd, 0, 1, DDP_REMOTE_READ, NULL, &base), EFAULT);
    FAILS(ddp_register_file(0, fd, 0, 1, DDP_REMOTE_READ, &stag, NULL), EFAULT);
    IS(ftruncate(fd, 5900), 0);
    IS(close(fd), 0);

    struct ddp_sge sink = piece(to, 0, 4000);
    struct ddp_work read = {.op = DDP_READ, .list = &sink, .count = 1, .stag = stag, .to = base + 900};
    IS(post(to, read), 1);
    event(to, DDP_READ, 0);
    IS(memcmp(to->memory, octets + 1900, 4000), 0);

    struct ddp_sge own = {.to = 10, .length = 20, .stag = zero_based};
    IS(receive(to, 0, 64, 0), 1);
    IS(post(from, (struct ddp_work){.op = DDP_SEND, .list = &own, .count = 1}), 1);
    event(from, DDP_SEND, 0);
    IS(event(to, DDP_RECEIVE, 0).length, 20);
    IS(memcmp(to->memory, octets + 10, 20), 0);
    own.to = 5990;
    FAILS(post(from, (struct ddp_work){.op = DDP_SEND, .list = &own, .count = 1}), EFAULT);
    struct ddp_sge place = {.to = base, .length = 10, .stag = stag};
    FAILS(post(from, (struct ddp_work){.op = DDP_RECEIVE, .list = &place, .count = 1}), EACCES);

    read.to = base + 1000;
    IS(post(to, read), 1);
    event(to, DDP_READ, EREMOTEIO);
    IS(event(to, DDP_CLOSED, EREMOTEIO).terminate, 0x0101);
    IS(ddp_deregister(stag), 0);
    IS(ddp_deregister(zero_based), 0);
}

void operations(void) {
    struct pair *pair = connected(0);
    sends(pair);
    one_sided(pair);
    atomics(pair);
    invalidations(pair);
    zero_based(pair);
    struct ddp_info info;
    IS(ddp_info(pair->active.fd, &info), 0);
    IS(info.mode, DDP_MODE_ON);
    IS(info.ird, 32);
    IS(info.ord, 32);
    IS(info.revision, 2);
    IS(info.flags, DDP_INFO_CRC);
    IS(info.terminate_sent, -1);
    IS(info.octets_sent > 100 && info.octets_received > 10, 1);
    disconnected(pair);
}

void windows(void) {
    struct pair *pair = connected(0);
    struct end *from = &pair->active, *to = &pair->passive;
    uint32_t window, now;
    IS(ddp_window(0, &window), 0);
    struct ddp_sge range = piece(to, 64, 64);
    struct ddp_work bind = {.op = DDP_BIND, .list = &range, .count = 1, .stag = window, .with.access = DDP_REMOTE_WRITE};
    IS(post(to, bind), 1);
    event(to, DDP_BIND, 0);
    IS(ddp_stag(window, &now), 0);
    IS(now != window, 1);
    FAILS(post(to, bind), EINVAL); /* by its old key */
    FAILS(ddp_deregister(to->stag), EBUSY);
    memcpy(from->memory, "through a window", 16);
    struct ddp_sge octets = piece(from, 0, 16);
    struct ddp_work write = {.op = DDP_WRITE, .list = &octets, .count = 1, .stag = now, .to = range.to};
    IS(post(to, (struct ddp_work){.op = DDP_RECEIVE}), 1);
    IS(post(from, write), 1);
    event(from, DDP_WRITE, 0);
    IS(post(from, (struct ddp_work){.op = DDP_SEND}), 1);
    event(from, DDP_SEND, 0);
    event(to, DDP_RECEIVE, 0);
    IS(memcmp(to->memory + 64, "through a window", 16), 0);
    bind.with.access = 256;
    bind.stag = now;
    FAILS(post(to, bind), EINVAL);
    IS(ddp_deregister(now), 0);
    FAILS(ddp_stag(now, &now), EINVAL);
    disconnected(pair);
}
