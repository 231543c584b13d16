/* Receives that several endpoints share. */
#include "raw.h"

#include <poll.h>

static struct end own; /* the memory of the receives */

static struct pair *sharing(int receives, int queue, uint64_t tag) {
    return connected_as(0, (struct ddp_endpoint){.receives = receives, .queue = queue, .tag = tag});
}

static int post_receives(int receives, int count, uint64_t tag) {
    struct ddp_work works[16];
    struct ddp_sge into[16];
    for (int i = 0; i < count; i++) {
        into[i] = piece(&own, (tag + i) % 64 * 16, 16);
        works[i] = (struct ddp_work){.op = DDP_RECEIVE, .list = &into[i], .count = 1, .tag = tag + i};
    }
    return ddp_post_shared(receives, works, count);
}

static void send_octet(struct pair *pair, uint8_t octet) {
    struct ddp_sge from = {.to = (uintptr_t)&octet, .length = 1};
    struct ddp_work send = {.op = DDP_SEND, .flags = DDP_INLINE | DDP_QUIET, .list = &from, .count = 1};
    IS(post(&pair->active, send), 1);
}

/* Waits until everything sent has been delivered: the peer has answered a Read behind it. */
static void delivered(struct pair *pair) {
    struct ddp_sge sink = piece(&pair->active, 0, 1);
    struct ddp_work read = {.op = DDP_READ, .list = &sink, .count = 1, .stag = pair->passive.stag};
    read.to = (uintptr_t)pair->passive.memory;
    IS(post(&pair->active, read), 1);
    event(&pair->active, DDP_READ, 0);
}

static void comes(struct pair *pair, uint64_t endpoint, uint64_t tag, uint8_t octet) {
    struct ddp_event got = event(&pair->passive, DDP_RECEIVE, 0);
    IS(got.endpoint, endpoint);
    IS(got.fd, pair->passive.fd);
    IS(got.tag, tag);
    IS(got.length, 1);
    IS(own.memory[tag % 64 * 16], octet);
}

static void ends(struct end *end) {
    IS(close(end->fd), 0);
    IS(ddp_deregister(end->stag), 0);
}

/* In good order, and both ends are told. The passive one's queue stays. */
static void finished(struct pair *pair) {
    IS(ddp_disconnect(pair->active.fd, DDP_GRACEFUL), 0);
    event(&pair->active, DDP_CLOSED, 0);
    event(&pair->passive, DDP_CLOSED, 0);
    ends(&pair->active);
    ends(&pair->passive);
    IS(close(pair->active.queue), 0);
    free(pair);
}

/* Checks that the message found no receive. */
static void starved(struct pair *pair) {
    IS(event(&pair->passive, DDP_CLOSED, EPROTO).terminate, 0x1202);
    event(&pair->active, DDP_CLOSED, EREMOTEIO);
    ends(&pair->active);
    ends(&pair->passive);
    IS(close(pair->active.queue), 0);
    free(pair);
}

static void several(void) {
    int receives = ddp_receives(0, 8, 0), queue = ddp_queue(0);
    IS(receives > 0, 1);
    struct pair *one = sharing(receives, queue, 11), *other = sharing(receives, queue, 22);
    FAILS(receive(&one->passive, 0, 8, 0), EINVAL);
    IS(post_receives(receives, 5, 100), 5);
    IS(post_receives(receives, 5, 105), 3);
    FAILS(post_receives(receives, 1, 108), EAGAIN);
    for (int i = 0; i < 8; i += 2) {
        send_octet(one, i);
        comes(one, 11, 100 + i, i);
        send_octet(other, i + 1);
        comes(other, 22, 101 + i, i + 1);
    }
    /* None is left. The other goes on when there is one. */
    send_octet(one, 9);
    starved(one);
    IS(post_receives(receives, 1, 108), 1);
    send_octet(other, 10);
    comes(other, 22, 108, 10);
    /* An endpoint that ends leaves the posted receives to the others. */
    one = sharing(receives, queue, 33);
    IS(post_receives(receives, 2, 200), 2);
    finished(other);
    send_octet(one, 11);
    comes(one, 33, 200, 11);
    FAILS(ddp_receives_close(receives), EBUSY);
    finished(one);
    IS(ddp_receives_close(receives), 0);
    no_event(&(struct end){.queue = queue});
    IS(close(queue), 0);
}

/* Receives whose events were not taken count, for all and for the quota of one. */
static void counts(void) {
    int receives = ddp_receives(0, 4, 2), queue = ddp_queue(0);
    struct pair *one = sharing(receives, queue, 1), *other = sharing(receives, queue, 2);
    IS(post_receives(receives, 4, 0), 4);
    for (int i = 0; i < 10; i++) {
        send_octet(one, i);
        comes(one, 1, i, i);
        IS(post_receives(receives, 1, i + 4), 1);
    }
    send_octet(one, 10);
    send_octet(one, 11);
    delivered(one);
    FAILS(post_receives(receives, 1, 14), EAGAIN);
    send_octet(other, 12);
    delivered(other);
    comes(one, 1, 10, 10);
    IS(post_receives(receives, 1, 14), 1);
    FAILS(post_receives(receives, 1, 15), EAGAIN);
    send_octet(one, 13);
    delivered(one);
    send_octet(one, 14); /* a third, while two are not taken */
    event(&one->active, DDP_CLOSED, EREMOTEIO);
    comes(one, 1, 11, 11);
    comes(other, 2, 12, 12);
    comes(one, 1, 13, 13);
    IS(event(&one->passive, DDP_CLOSED, EPROTO).terminate, 0x1202);
    send_octet(other, 15);
    comes(other, 2, 14, 15);
    finished(other);
    IS(ddp_receives_close(receives), 0);
    ends(&one->active);
    ends(&one->passive);
    free(one);
}

/* A queue that is closed gives back the receives in it. */
static void closed_queues(void) {
    int receives = ddp_receives(0, 3, 0);
    for (int turn = 0; turn < 3; turn++) {
        struct pair *pair = sharing(receives, 0, 1);
        IS(post_receives(receives, 3, 0), 3);
        for (int i = 0; i < 3; i++)
            send_octet(pair, i);
        delivered(pair);
        FAILS(post_receives(receives, 1, 0), EAGAIN);
        FAILS(ddp_receives_close(receives), EBUSY);
        IS(close(pair->passive.queue), 0);
        event(&pair->active, DDP_CLOSED, 0);
        ends(&pair->active);
        ends(&pair->passive);
        free(pair);
    }
    IS(post_receives(receives, 3, 0), 3);
    IS(ddp_receives_close(receives), 0);
}

static void limits(void) {
    int receives = ddp_receives(0, 8, 0), queue = ddp_queue(0);
    struct pair *pair = sharing(receives, queue, 7);
    IS(post_receives(receives, 6, 0), 6);
    IS(ddp_receives_arm(receives, 4), 0);
    send_octet(pair, 0);
    comes(pair, 7, 0, 0);
    send_octet(pair, 1);
    comes(pair, 7, 1, 1);
    no_event(&pair->passive);
    send_octet(pair, 2); /* leaves three */
    struct ddp_event got[2];
    for (int seen = 0; seen < 2;)
        seen += ddp_events(queue, got + seen, 2 - seen, PATIENCE);
    struct ddp_event *limit = got[0].kind == DDP_LIMIT ? got : got + 1;
    IS(limit->kind, DDP_LIMIT);
    IS(limit->tag, receives);
    IS(limit->endpoint, 7);
    IS(limit->fd, pair->passive.fd);
    IS(limit->status, 0);
    send_octet(pair, 3);
    comes(pair, 7, 3, 3);
    IS(ddp_receives_arm(receives, 4), 0); /* two are left: told at once */
    IS(ddp_events(queue, got, 1, PATIENCE), 1);
    IS(got[0].kind, DDP_LIMIT);
    IS(got[0].tag, receives);
    IS(ddp_receives_arm(receives, 2), 0);
    IS(ddp_receives_arm(receives, 0), 0);
    send_octet(pair, 4);
    comes(pair, 7, 4, 4);
    no_event(&pair->passive);
    finished(pair);
    IS(ddp_receives_close(receives), 0);
}

static void nonsense(void) {
    int receives = ddp_receives(0, 8, 0), domain = ddp_domain(), queue = ddp_queue(0), raw = raw_socket();
    struct ddp_work send = {.op = DDP_SEND}, bad = {.op = DDP_RECEIVE, .flags = 32};
    FAILS(ddp_receives(99, 8, 0), EINVAL);
    FAILS(ddp_receives(0, 0, 0), EINVAL);
    FAILS(ddp_receives(0, 1048577, 0), EINVAL);
    FAILS(ddp_post_shared(receives, &send, 1), EINVAL);
    FAILS(ddp_post_shared(receives, &bad, 1), EINVAL);
    FAILS(ddp_post_shared(receives, NULL, 1), EFAULT);
    FAILS(ddp_post_shared(receives, &bad, 0), EINVAL);
    for (int number = receives + 1, i = 0; i < 3; i++, number = i == 1 ? 0 : -1) {
        FAILS(post_receives(number, 1, 0), EINVAL);
        FAILS(ddp_receives_arm(number, 1), EINVAL);
        FAILS(ddp_receives_close(number), EINVAL);
        if (number != 0)
            FAILS(ddp_attach(raw, &(struct ddp_endpoint){.queue = queue, .receives = number}), EINVAL);
    }
    struct ddp_endpoint how = {.queue = queue, .receives = receives, .max_recv = 1};
    FAILS(ddp_attach(raw, &how), EINVAL);
    how.max_recv = 0;
    how.flags = DDP_ENDPOINT_WAIT;
    FAILS(ddp_attach(raw, &how), EINVAL);
    /* Memory of another domain. */
    int others = ddp_receives(domain, 8, 0);
    FAILS(post_receives(others, 1, 0), EACCES);
    IS(ddp_domain_close(domain), 0);
    IS(ddp_receives_close(others), 0);
    FAILS(ddp_receives_close(others), EINVAL);
    IS(ddp_receives_close(receives), 0);
    how.flags = 0;
    FAILS(ddp_attach(raw, &how), EINVAL);
    IS(close(raw), 0);
    IS(close(queue), 0);
}

/* A queue has room for all completions that its endpoints may come to, and for shared receives
 * once. */
static void room(void) {
    enum { ALL = 1048576 };
    int queue = ddp_queue(0), receives[4], fds[40];
    for (int i = 0; i < 4; i++)
        receives[i] = ddp_receives(0, ALL, 0);
    for (int i = 0; i < 40; i++) {
        struct ddp_endpoint how = {.queue = queue, .receives = receives[i % 3]};
        fds[i] = raw_socket();
        IS(ddp_attach(fds[i], &how), 0);
    }
    int last = raw_socket();
    struct ddp_endpoint how = {.queue = queue, .receives = receives[3]};
    FAILS(ddp_attach(last, &how), ENOBUFS);
    for (int i = 0; i < 40; i += 3) {
        IS(close(fds[i]), 0);
        event(&(struct end){.queue = queue}, DDP_CLOSED, ECANCELED);
    }
    IS(ddp_receives_close(receives[0]), 0);
    FAILS(ddp_receives_close(receives[1]), EBUSY);
    IS(ddp_attach(last, &how), 0);
}

void shared_receives(void) {
    IS(ddp_register(0, own.memory, SIZE, DDP_LOCAL_WRITE, &own.stag), 0);
    several();
    counts();
    closed_queues();
    limits();
    nonsense();
    room();
}
