/* Every end of a connection: flushed works first, then DDP_CLOSED, once, on both sides. */
#include "raw.h"

static void is_over(struct pair *pair) {
    struct end *ends[] = {&pair->active, &pair->passive};
    for (int i = 0; i < 2; i++) {
        if (ends[i]->fd >= 0) {
            FAILS(post(ends[i], (struct ddp_work){.op = DDP_SEND}), EPIPE);
            IS(close(ends[i]->fd), 0);
        }
        no_event(ends[i]);
        IS(close(ends[i]->queue), 0);
        IS(ddp_deregister(ends[i]->stag), 0);
    }
    free(pair);
}

static void terminated(const struct end *end, int status, uint32_t flags, uint32_t code) {
    struct ddp_event closed = event(end, DDP_CLOSED, status);
    IS(closed.flags, flags);
    IS(closed.terminate, code);
    struct ddp_info info;
    IS(ddp_info(end->fd, &info), 0);
    IS(info.failure, status);
    IS(flags == DDP_EVENT_TERMINATE_SENT ? info.terminate_sent : info.terminate_received, code);
}

static void closing(void) {
    struct pair *pair = connected(0);
    IS(receive(&pair->active, 0, 8, 5), 1);
    IS(receive(&pair->passive, 0, 8, 6), 1);
    IS(close(pair->active.fd), 0);
    pair->active.fd = -1;
    /* Before the call had returned. */
    struct ddp_event flushed;
    IS(ddp_events(pair->active.queue, &flushed, 1, 0), 1);
    IS(flushed.kind, DDP_RECEIVE);
    IS(flushed.status, ECANCELED);
    IS(flushed.tag, 5);
    IS(event(&pair->active, DDP_CLOSED, 0).terminate, -1);
    IS(event(&pair->passive, DDP_RECEIVE, ECANCELED).tag, 6);
    event(&pair->passive, DDP_CLOSED, 0);
    is_over(pair);
}

static void closing_over_work(void) {
    struct pair *pair = connected(DDP_ENDPOINT_WAIT);
    struct ddp_sge all = piece(&pair->active, 0, SIZE);
    struct ddp_work send = {.op = DDP_SEND, .list = &all, .count = 1};
    /* Until TCP takes no more. */
    int posted = 0, done = 0;
    struct ddp_event got;
    for (;;) {
        int taken = post(&pair->active, send);
        if (taken == 1) {
            posted++;
            continue;
        }
        IS(errno, EAGAIN);
        int events = ddp_events(pair->active.queue, &got, 1, 200);
        if (events == 0)
            break;
        IS(got.status, 0);
        done++;
    }
    IS(close(pair->active.fd), 0);
    pair->active.fd = -1;
    while (done < posted) {
        event(&pair->active, DDP_SEND, ECANCELED);
        done++;
    }
    event(&pair->active, DDP_CLOSED, ECONNABORTED);
    event(&pair->passive, DDP_CLOSED, ECONNRESET);
    is_over(pair);
}

static void ways(void) {
    struct pair *pair = connected(0);
    IS(receive(&pair->passive, 0, 8, 6), 1);
    FAILS(ddp_disconnect(pair->active.fd, 7), EINVAL);
    IS(ddp_disconnect(pair->active.fd, DDP_TERMINATE), 0);
    terminated(&pair->active, ECONNABORTED, DDP_EVENT_TERMINATE_SENT, 0);
    event(&pair->passive, DDP_RECEIVE, ECANCELED);
    terminated(&pair->passive, EREMOTEIO, DDP_EVENT_TERMINATE_RECEIVED, 0);
    FAILS(ddp_disconnect(pair->active.fd, DDP_TERMINATE), ENOTCONN);
    is_over(pair);

    pair = connected(0);
    IS(receive(&pair->active, 0, 8, 6), 1);
    IS(ddp_disconnect(pair->active.fd, DDP_ABORT), 0);
    event(&pair->active, DDP_RECEIVE, ECANCELED);
    event(&pair->active, DDP_CLOSED, ECANCELED);
    event(&pair->passive, DDP_CLOSED, ECONNRESET);
    is_over(pair);
}

/* A work that the peer may not do: the events at each end. */
static void misdeed(struct ddp_work work, int wrong_stag, int status, uint32_t code) {
    struct pair *pair = connected(0);
    struct ddp_sge octets = piece(&pair->active, 0, 64);
    if (work.op != DDP_SEND || work.count == 1) {
        work.list = &octets;
        work.count = 1;
    }
    work.stag = pair->passive.stag ^ (wrong_stag ? 0x5a5a5a00 : 0);
    work.to += (uintptr_t)pair->passive.memory;
    IS(post(&pair->active, work), 1);
    struct ddp_event done;
    IS(ddp_events(pair->active.queue, &done, 1, PATIENCE), 1);
    IS(done.kind, work.op);
    /* TCP has taken a Send or a Write most often before the Terminate comes. */
    if (work.op == DDP_READ || done.status != 0)
        IS(done.status, status);
    terminated(&pair->passive, EPROTO, DDP_EVENT_TERMINATE_SENT, code);
    terminated(&pair->active, EREMOTEIO, DDP_EVENT_TERMINATE_RECEIVED, code);
    is_over(pair);
}

static void misdeeds(void) {
    misdeed((struct ddp_work){.op = DDP_WRITE}, 1, ECANCELED, 0x1100);
    misdeed((struct ddp_work){.op = DDP_WRITE, .to = SIZE - 32}, 0, ECANCELED, 0x1101);
    misdeed((struct ddp_work){.op = DDP_READ}, 1, EREMOTEIO, 0x0100);
    misdeed((struct ddp_work){.op = DDP_READ, .to = SIZE - 32}, 0, EREMOTEIO, 0x0101);
    misdeed((struct ddp_work){.op = DDP_SEND}, 0, ECANCELED, 0x1202);
}

static void receives_that_are_no_good(void) {
    struct pair *pair = connected(0);
    struct ddp_sge octets = piece(&pair->active, 0, 64);
    struct ddp_work send = {.op = DDP_SEND, .flags = DDP_QUIET, .list = &octets, .count = 1};
    IS(receive(&pair->passive, 0, 63, 1), 1);
    IS(post(&pair->active, send), 1);
    event(&pair->passive, DDP_RECEIVE, EMSGSIZE);
    terminated(&pair->passive, EPROTO, DDP_EVENT_TERMINATE_SENT, 0x1205);
    terminated(&pair->active, EREMOTEIO, DDP_EVENT_TERMINATE_RECEIVED, 0x1205);
    is_over(pair);

    pair = connected(0);
    octets = piece(&pair->active, 0, 64);
    uint32_t stag;
    IS(ddp_register(0, pair->passive.memory, 64, DDP_LOCAL_WRITE, &stag), 0);
    struct ddp_sge gone = {.to = (uintptr_t)pair->passive.memory, .length = 64, .stag = stag};
    IS(post(&pair->passive, (struct ddp_work){.op = DDP_RECEIVE, .list = &gone, .count = 1}), 1);
    IS(ddp_deregister(stag), 0);
    IS(post(&pair->active, send), 1);
    event(&pair->passive, DDP_RECEIVE, EFAULT);
    terminated(&pair->passive, ECONNABORTED, DDP_EVENT_TERMINATE_SENT, 0);
    terminated(&pair->active, EREMOTEIO, DDP_EVENT_TERMINATE_RECEIVED, 0);
    is_over(pair);
}

static void queues_that_are_closed(void) {
    struct pair *pair = connected(0);
    IS(close(pair->passive.queue), 0);
    event(&pair->active, DDP_CLOSED, 0);
    pair->passive.queue = ddp_queue(0);
    is_over(pair);
}

void endings(void) {
    closing();
    closing_over_work();
    ways();
    misdeeds();
    receives_that_are_no_good();
    queues_that_are_closed();
}
