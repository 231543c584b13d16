/* Threads that connect, post, disconnect and close at any moment: each endpoint ends once, and
 * nobody waits for ever. */
#include "raw.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { CLIENTS = 4, CONNECTIONS = 150, RECEIVES = 3 };

static struct end shared;
static struct sockaddr_in addr;
static int listener, pool; /* of receives */
static atomic_int attached, ended, received;
/* Gives each receive memory of its own: two threads must not write the same. */
static uint8_t places[CLIENTS * CONNECTIONS * (RECEIVES + 1)][SIZE];
static uint32_t places_stag;
static atomic_bool last;

static struct ddp_work any_send(unsigned *seed, struct ddp_sge *from) {
    *from = piece(&shared, 0, rand_r(seed) % SIZE);
    return (struct ddp_work){.op = DDP_SEND, .list = from, .count = 1};
}

/* To the endpoint, or to the pool that it takes from. */
static void receives(int fd, int pool, int count) {
    for (int i = 0; i < count; i++) {
        struct ddp_sge into = {.to = (uintptr_t)places[received++], .length = SIZE, .stag = places_stag};
        struct ddp_work work = {.op = DDP_RECEIVE, .list = &into, .count = 1};
        IS(pool != 0 ? ddp_post_shared(pool, &work, 1) : ddp_post(fd, &work, 1), 1);
    }
}

static void *accepting(void *arg) {
    unsigned seed = 7;
    int fd;
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        struct ddp_endpoint how = {.queue = shared.queue, .flags = rand_r(&seed) % 2 ? DDP_ENDPOINT_WAIT : 0};
        how.receives = how.flags == 0 && rand_r(&seed) % 2 ? pool : 0;
        how.flags |= rand_r(&seed) % 2 ? DDP_ENDPOINT_ASK : 0;
        bool at_once = rand_r(&seed) % 4 == 0;
        how.tag = at_once ? 0 : fd; /* to be closed when it has ended */
        IS(ddp_attach(fd, &how), 0);
        attached++;
        receives(fd, how.receives, RECEIVES);
        if (ddp_begin(fd) != 0) /* the client has gone */
            IS(ddp_disconnect(fd, DDP_ABORT), 0);
        if (at_once)
            IS(close(fd), 0);
    }
    return arg;
}

static void *taking(void *arg) {
    struct ddp_event events[32];
    while (!last || ended < attached) {
        int count = ddp_events(shared.queue, events, 32, 50);
        IS(count >= 0, 1);
        for (int i = 0; i < count; i++) {
            if (events[i].kind == DDP_REQUESTED) /* one in three is rejected, if not ended yet */
                ddp_answer(events[i].fd, events[i].fd % 3 == 0 ? DDP_REJECT : DDP_ACCEPT, "as you like", 11);
            if (events[i].kind != DDP_CLOSED)
                continue;
            if (events[i].endpoint != 0)
                IS(close(events[i].endpoint), 0);
            ended++;
        }
    }
    return arg;
}

static void *connecting(void *arg) {
    unsigned seed = (uintptr_t)arg;
    for (int turn = 0; turn < CONNECTIONS; turn++) {
        int fd = raw_socket();
        struct ddp_sge from;
        struct ddp_endpoint how = {.queue = shared.queue, .timeout = PATIENCE};
        IS(ddp_attach(fd, &how), 0);
        attached++;
        receives(fd, 0, 1);
        if (rand_r(&seed) % 8 != 0)
            connect(fd, (void *)&addr, sizeof addr); /* unless the server closes first */
        for (int sends = rand_r(&seed) % 6; sends > 0; sends--) {
            struct ddp_work work = any_send(&seed, &from);
            ddp_post(fd, &work, 1);
        }
        if (rand_r(&seed) % 3 == 0)
            ddp_disconnect(fd, rand_r(&seed) % 3);
        if (rand_r(&seed) % 2 == 0)
            usleep(rand_r(&seed) % 2000);
        IS(close(fd), 0);
    }
    return arg;
}

void crowds(void) {
    pthread_t takers[2], clients[CLIENTS], server;
    shared.queue = ddp_queue(0);
    IS(ddp_register(0, shared.memory, SIZE, DDP_LOCAL_WRITE, &shared.stag), 0);
    pool = ddp_receives(0, RECEIVES * CLIENTS * CONNECTIONS, 2);
    IS(ddp_register(0, places, sizeof places, DDP_LOCAL_WRITE, &places_stag), 0);
    listener = raw_listener(&addr);
    IS(pthread_create(&server, NULL, accepting, NULL), 0);
    for (int i = 0; i < 2; i++)
        IS(pthread_create(&takers[i], NULL, taking, NULL), 0);
    for (uintptr_t i = 0; i < CLIENTS; i++)
        IS(pthread_create(&clients[i], NULL, connecting, (void *)(i + 1)), 0);
    for (int i = 0; i < CLIENTS; i++)
        IS(pthread_join(clients[i], NULL), 0);
    IS(shutdown(listener, SHUT_RDWR), 0);
    IS(pthread_join(server, NULL), 0);
    last = true;
    for (int i = 0; i < 2; i++)
        IS(pthread_join(takers[i], NULL), 0);
    IS(ended, attached);
    IS(ddp_receives_close(pool), 0);
}
