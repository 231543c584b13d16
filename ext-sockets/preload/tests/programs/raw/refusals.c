/* Arguments that make no sense: an errno for each, and nothing has changed. */
#include "raw.h"

#include <sys/mman.h>

static void memory(struct pair *pair) {
    uint32_t stag = 17;
    char *memory = pair->active.memory;
    FAILS(ddp_register(0, NULL, 10, 0, &stag), EFAULT);
    FAILS(ddp_register(0, memory, 10, 0, NULL), EFAULT);
    FAILS(ddp_register(99, memory, 10, 0, &stag), EINVAL);
    FAILS(ddp_register(0, memory, 10, 1024, &stag), EINVAL);
    FAILS(ddp_register(0, memory, 10, -1, &stag), EINVAL);
    FAILS(ddp_register(0, memory, 10, DDP_REMOTE_WRITE, &stag), EINVAL);
    FAILS(ddp_register(0, memory, 10, DDP_CAN_BIND | DDP_ZERO_BASED, &stag), EINVAL);
    FAILS(ddp_register(0, memory, ~0ul, 0, &stag), EFAULT);
    char *pages = mmap(NULL, 3 * SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FAILS(ddp_register(0, pages, SIZE, DDP_LOCAL_WRITE, &stag), EACCES);
    munmap(pages + SIZE, SIZE);
    FAILS(ddp_register(0, pages, 3 * SIZE, 0, &stag), EFAULT);
    IS(stag, 17);
    IS(ddp_register(0, pages, SIZE, DDP_POPULATE, &stag), 0);
    IS(ddp_deregister(stag), 0);
    FAILS(ddp_reregister(stag, 0, &stag), EINVAL);
    FAILS(ddp_reregister(pair->active.stag, 0, NULL), EFAULT);
    FAILS(ddp_deregister(12345), EINVAL);
    FAILS(ddp_deregister(0), EINVAL);
    FAILS(ddp_window(99, &stag), EINVAL);
    FAILS(ddp_window(0, NULL), EFAULT);
    FAILS(ddp_stag(12345, &stag), EINVAL);
    FAILS(ddp_domain_close(0), EINVAL);
    FAILS(ddp_domain_close(12), EINVAL);
}

static void queues(struct pair *pair) {
    struct ddp_event event;
    int null = open("/dev/null", O_RDWR);
    FAILS(ddp_queue(2), EINVAL);
    FAILS(ddp_events(pair->active.queue, NULL, 1, 0), EFAULT);
    FAILS(ddp_events(pair->active.queue, &event, 0, 0), EINVAL);
    FAILS(ddp_events(pair->active.queue, &event, -1, 0), EINVAL);
    FAILS(ddp_events(-1, &event, 1, 0), EBADF);
    FAILS(ddp_events(null, &event, 1, 0), EINVAL);
    FAILS(ddp_events(pair->active.fd, &event, 1, 0), EINVAL);
    int queue = ddp_queue(0);
    IS(close(queue), 0);
    FAILS(ddp_events(queue, &event, 1, 0), EBADF);
    IS(dup2(null, queue), queue);
    FAILS(ddp_events(queue, &event, 1, 0), EINVAL);
    IS(close(queue), 0);
    IS(close(null), 0);
}

static void descriptors(struct pair *pair) {
    struct ddp_endpoint how = {.queue = pair->active.queue};
    struct ddp_work work = {.op = DDP_SEND};
    struct ddp_info info;
    int null = open("/dev/null", O_RDWR), plain = socket(AF_INET, SOCK_STREAM, 0), raw = raw_socket();
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    struct {
        int fd, attach, other;
    } all[] = {{-1, EBADF, EBADF},
               {null, ENOTSOCK, ENOTSOCK},
               {udp, EOPNOTSUPP, EOPNOTSUPP},
               {plain, EOPNOTSUPP, EOPNOTSUPP},
               {raw, 0, ENOTCONN},
               {pair->active.fd, EALREADY, 0},
               {pair->active.queue, ENOTSOCK, ENOTSOCK}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].other != 0) {
            FAILS(ddp_post(all[i].fd, &work, 1), all[i].other);
            FAILS(ddp_info(all[i].fd, &info), all[i].other);
            FAILS(ddp_disconnect(all[i].fd, DDP_GRACEFUL), all[i].other);
            FAILS(ddp_begin(all[i].fd), all[i].other);
        }
        if (all[i].attach != 0)
            FAILS(ddp_attach(all[i].fd, &how), all[i].attach);
    }
    FAILS(ddp_attach(raw, NULL), EFAULT);
    how.queue = -1;
    FAILS(ddp_attach(raw, &how), EBADF);
    how.queue = raw;
    FAILS(ddp_attach(raw, &how), EINVAL);
    how.queue = pair->active.queue;
    how.domain = 99;
    FAILS(ddp_attach(raw, &how), EINVAL);
    how.domain = 0;
    how.flags = 64;
    FAILS(ddp_attach(raw, &how), EINVAL);
    how.flags = 0;
    how.reserved = 1;
    FAILS(ddp_attach(raw, &how), EINVAL);
    how.reserved = 0;
    how.max_send = 65537;
    FAILS(ddp_attach(raw, &how), EINVAL);
    how.max_send = 0;
    IS(ddp_attach(raw, &how), 0);
    /* Attached, not connected. */
    FAILS(ddp_attach(raw, &how), EALREADY);
    FAILS(set(raw, DDP_CRC, 0), EINVAL);
    FAILS(set(raw, DDPMODE, 0), EINVAL);
    FAILS(set(raw, DDPMODE, 1), EINVAL);
    FAILS(ddp_disconnect(raw, DDP_GRACEFUL), ENOTCONN);
    FAILS(ddp_disconnect(raw, 3), EINVAL);
    FAILS(ddp_begin(raw), ENOTCONN);
    IS(ddp_info(raw, &info), 0);
    IS(info.mode, DDP_MODE_ASKED);
    IS(receive(&(struct end){.fd = raw, .stag = pair->active.stag}, 0, 0, 77), 1);
    IS(close(raw), 0);
    IS(event(&pair->active, DDP_RECEIVE, ECANCELED).tag, 77);
    event(&pair->active, DDP_CLOSED, ECANCELED);
    struct sockaddr_in addr;
    int listener = raw_listener(&addr);
    FAILS(ddp_attach(listener, &how), EINVAL);
    int others[] = {listener, null, udp, plain};
    for (int i = 0; i < 4; i++)
        IS(close(others[i]), 0);
}

static void works(struct pair *pair) {
    struct end *end = &pair->active;
    struct ddp_sge good = piece(end, 0, 8), bad = good;
    struct ddp_sge many[33];
    FAILS(ddp_post(end->fd, NULL, 1), EFAULT);
    struct ddp_work work = {.op = DDP_SEND, .list = &bad, .count = 1};
    FAILS(ddp_post(end->fd, &work, 0), EINVAL);
    FAILS(ddp_post(end->fd, &work, -1), EINVAL);
    for (int receives = 0; receives < 2; receives++) {
        work.op = receives ? DDP_RECEIVE : DDP_SEND;
        bad = good;
        bad.stag ^= 1;
        FAILS(post(end, work), EINVAL);
        bad.stag = 0;
        FAILS(post(end, work), EINVAL);
        bad = good;
        bad.to = (uintptr_t)end->memory - 1;
        FAILS(post(end, work), EFAULT);
        bad.to = (uintptr_t)end->memory + SIZE - 7;
        FAILS(post(end, work), EFAULT);
        bad.to = ~0ull;
        FAILS(post(end, work), EFAULT);
        work.list = NULL;
        FAILS(post(end, work), EFAULT);
        work.list = many;
        work.count = 33;
        FAILS(post(end, work), EINVAL);
        work.list = &bad;
        work.count = 1;
    }
    for (uint32_t op = 0; op < 100; op += 13) {
        work = (struct ddp_work){.op = op};
        FAILS(post(end, work), EINVAL);
    }
    work = (struct ddp_work){.op = DDP_SEND, .flags = 32};
    FAILS(post(end, work), EINVAL);
    bad = good;
    bad.length = 513;
    work = (struct ddp_work){.op = DDP_SEND, .flags = DDP_INLINE, .list = &bad, .count = 1};
    FAILS(post(end, work), EMSGSIZE);
    bad.length = 5;
    bad.to = 0;
    FAILS(post(end, work), EFAULT);
    /* A Read has one sink; that of an atomic has 8 octets. */
    struct ddp_sge two[2] = {good, good};
    for (uint32_t op = DDP_READ; op <= DDP_CMP_SWAP; op++)
        FAILS(post(end, (struct ddp_work){.op = op, .list = two, .count = 2}), EINVAL);
    FAILS(post(end, (struct ddp_work){.op = DDP_READ}), EINVAL);
    FAILS(post(end, (struct ddp_work){.op = DDP_INVALIDATE, .stag = 5}), EINVAL);
    FAILS(post(end, (struct ddp_work){.op = DDP_BIND, .stag = 5, .list = &good, .count = 1}), EINVAL);

    uint32_t stag;
    IS(ddp_register(0, end->memory, 8, DDP_REMOTE_READ, &stag), 0);
    good.stag = stag;
    FAILS(post(end, (struct ddp_work){.op = DDP_RECEIVE, .list = &good, .count = 1}), EACCES);
    IS(ddp_deregister(stag), 0);
    int domain = ddp_domain();
    IS(domain > 0, 1);
    IS(ddp_register(domain, end->memory, 8, DDP_LOCAL_WRITE, &stag), 0);
    good.stag = stag;
    FAILS(post(end, (struct ddp_work){.op = DDP_RECEIVE, .list = &good, .count = 1}), EACCES);
    FAILS(post(end, (struct ddp_work){.op = DDP_INVALIDATE, .stag = stag}), EACCES);
    IS(ddp_deregister(stag), 0);
    IS(ddp_domain_close(domain), 0);

    /* The first good ones of a list are taken. */
    struct ddp_work list[3] = {{.op = DDP_RECEIVE, .tag = 1}, {.op = DDP_SEND, .tag = 2, .flags = DDP_QUIET}, {.op = 50}};
    IS(post(&pair->passive, (struct ddp_work){.op = DDP_RECEIVE}), 1);
    IS(ddp_post(end->fd, list, 3), 2);
    event(&pair->passive, DDP_RECEIVE, 0);
    IS(post(&pair->passive, (struct ddp_work){.op = DDP_SEND, .flags = DDP_QUIET}), 1);
    IS(event(end, DDP_RECEIVE, 0).tag, 1);
}

/* As many works are accepted as were asked for, and again when their events were taken. */
static void fullness(void) {
    struct pair pair = {0};
    struct sockaddr_in addr;
    int listener = raw_listener(&addr);
    pair.active.queue = ddp_queue(0);
    struct ddp_endpoint how = {.queue = pair.active.queue, .max_send = 2, .max_recv = 3};
    pair.active.fd = raw_socket();
    IS(ddp_attach(pair.active.fd, &how), 0);
    for (int i = 0; i < 3; i++)
        IS(post(&pair.active, (struct ddp_work){.op = DDP_RECEIVE}), 1);
    FAILS(post(&pair.active, (struct ddp_work){.op = DDP_RECEIVE}), EAGAIN);
    struct ddp_work sends[5] = {{.op = DDP_SEND}, {.op = DDP_SEND, .flags = DDP_QUIET}, {.op = DDP_SEND},
                                {.op = DDP_SEND}, {.op = DDP_SEND}};
    IS(ddp_post(pair.active.fd, sends, 5), 3);
    FAILS(ddp_post(pair.active.fd, sends, 1), EAGAIN);
    struct ddp_event events[20];
    IS(close(pair.active.fd), 0);
    IS(ddp_events(pair.active.queue, events, 20, PATIENCE), 7);
    IS(events[6].kind, DDP_CLOSED);
    IS(close(pair.active.queue), 0);
    IS(close(listener), 0);
}

/* An address at which no program has memory. */
#define NOWHERE ((void *)0x1000)

/* Pointers that are no good, and lists that end at a page that is not there: EFAULT, and nothing
 * has happened. */
void bad_pointers(void) {
    static char octets[10];
    FAILS(ddp_register(0, octets, 10, 0, NOWHERE), EFAULT);
    struct pair *pair = connected(0);
    struct end *end = &pair->active;
    uint32_t stag = end->stag, now;
    int raw = raw_socket();
    FAILS(ddp_register(0, NOWHERE, 10, 0, &stag), EFAULT);
    FAILS(ddp_register(0, end->memory, 10, 0, NOWHERE), EFAULT);
    FAILS(ddp_window(0, NOWHERE), EFAULT);
    FAILS(ddp_reregister(stag, DDP_LOCAL_WRITE, NOWHERE), EFAULT);
    FAILS(ddp_stag(stag, NOWHERE), EFAULT);
    IS(ddp_stag(stag, &now), 0);
    IS(now, stag);
    FAILS(ddp_attach(raw, NOWHERE), EFAULT);
    IS(mode_info(raw).mode, DDP_MODE_ASKED);
    FAILS(ddp_info(end->fd, NULL), EFAULT);
    FAILS(ddp_info(end->fd, NOWHERE), EFAULT);
    FAILS(ddp_answer(end->fd, DDP_ACCEPT, NOWHERE, 10), EFAULT);

    char *pages = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages + SIZE, SIZE);
    FAILS(ddp_post(end->fd, NOWHERE, 1), EFAULT);
    FAILS(post(end, (struct ddp_work){.op = DDP_SEND, .list = NOWHERE, .count = 1}), EFAULT);
    struct ddp_sge *pieces = (void *)(pages + SIZE - sizeof *pieces);
    *pieces = piece(end, 0, 8);
    FAILS(post(end, (struct ddp_work){.op = DDP_SEND, .list = pieces, .count = 2}), EFAULT);
    *pieces = (struct ddp_sge){.to = (uintptr_t)pages + SIZE - 3, .length = 8};
    FAILS(post(end, (struct ddp_work){.op = DDP_SEND, .flags = DDP_INLINE, .list = pieces, .count = 1}), EFAULT);
    /* The works before the bad page are carried out. */
    IS(receive(&pair->passive, 0, 8, 5), 1);
    struct ddp_work *works = (void *)(pages + SIZE - sizeof *works);
    *works = (struct ddp_work){.op = DDP_SEND, .tag = 9};
    IS(ddp_post(end->fd, works, 2), 1);
    IS(event(&pair->passive, DDP_RECEIVE, 0).tag, 5);
    FAILS(ddp_events(end->queue, NOWHERE, 1, 0), EFAULT);
    FAILS(ddp_events(end->queue, (void *)(pages + SIZE - 8), 1, 0), EFAULT);
    IS(event(end, DDP_SEND, 0).tag, 9);
    IS(munmap(pages, SIZE), 0);
    IS(close(raw), 0);
    disconnected(pair);
}

void refusals(void) {
    struct pair *pair = connected(0);
    memory(pair);
    queues(pair);
    descriptors(pair);
    works(pair);
    fullness();
    disconnected(pair);
}
