/* Tests of the contract of rddp/raw.h: `program TEST`. */
#include "raw.h"

#include <signal.h>

int set(int fd, int option, int value) { return setsockopt(fd, SOL_DDP, option, &value, sizeof value); }

int get(int fd, int option) {
    int value = -1;
    socklen_t len = sizeof value;
    return getsockopt(fd, SOL_DDP, option, &value, &len) == 0 ? value : -1;
}

struct ddp_mode_info mode_info(int fd) {
    struct ddp_mode_info info;
    socklen_t len = sizeof info;
    IS(getsockopt(fd, SOL_DDP, DDP_MODE_INFO, &info, &len), 0);
    return info;
}

int raw_socket(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    IS(fd >= 0, 1);
    IS(set(fd, DDPMODE, DDPMODE_RAW), 0);
    return fd;
}

int raw_listener(struct sockaddr_in *addr) {
    int fd = raw_socket();
    listen_somewhere(fd, addr);
    return fd;
}

void attach_as(struct end *end, struct ddp_endpoint how) {
    how.queue = end->queue;
    how.timeout = PATIENCE;
    IS(ddp_attach(end->fd, &how), 0);
}

void attach(struct end *end, uint32_t flags, uint64_t tag) {
    attach_as(end, (struct ddp_endpoint){.tag = tag, .flags = flags});
}

static void begin_once(struct end *end) {
    IS(ddp_begin(end->fd), 0);
    FAILS(ddp_begin(end->fd), EALREADY);
}

void begin(struct end *end, uint32_t flags, uint64_t tag) {
    attach(end, flags, tag);
    begin_once(end);
}

struct pair *connected(uint32_t flags) {
    return connected_as(flags, (struct ddp_endpoint){.flags = flags, .tag = 2});
}

struct pair *connected_as(uint32_t flags, struct ddp_endpoint passive) {
    struct pair *pair = calloc(1, sizeof *pair);
    struct end *ends[] = {&pair->active, &pair->passive};
    struct sockaddr_in addr;
    int listener = raw_listener(&addr);
    for (int i = 0; i < 2; i++) {
        ends[i]->queue = i == 1 && passive.queue != 0 ? passive.queue : ddp_queue(0);
        IS(ends[i]->queue >= 0, 1);
        IS(ddp_register(0, ends[i]->memory, SIZE, ALL_RIGHTS, &ends[i]->stag), 0);
    }
    pair->active.fd = raw_socket();
    IS(fcntl(pair->active.fd, F_SETFL, O_NONBLOCK), 0);
    attach(&pair->active, flags, 1);
    FAILS(connect(pair->active.fd, (void *)&addr, sizeof addr), EINPROGRESS);
    pair->passive.fd = accept(listener, NULL, NULL);
    IS(pair->passive.fd >= 0, 1);
    attach_as(&pair->passive, passive);
    begin_once(&pair->passive);
    IS(event(&pair->active, DDP_CONNECTED, 0).endpoint, 1);
    IS(event(&pair->passive, DDP_CONNECTED, 0).fd, pair->passive.fd);
    IS(close(listener), 0);
    return pair;
}

void disconnected(struct pair *pair) {
    IS(ddp_disconnect(pair->active.fd, DDP_GRACEFUL), 0);
    event(&pair->active, DDP_CLOSED, 0);
    event(&pair->passive, DDP_CLOSED, 0);
    struct end *ends[] = {&pair->active, &pair->passive};
    for (int i = 0; i < 2; i++) {
        no_event(ends[i]);
        IS(close(ends[i]->fd), 0);
        IS(close(ends[i]->queue), 0);
        IS(ddp_deregister(ends[i]->stag), 0);
    }
    free(pair);
}

struct ddp_sge piece(const struct end *end, size_t offset, uint32_t length) {
    return (struct ddp_sge){.to = (uintptr_t)end->memory + offset, .length = length, .stag = end->stag};
}

int post(const struct end *end, struct ddp_work work) { return ddp_post(end->fd, &work, 1); }

int receive(const struct end *end, size_t offset, uint32_t length, uint64_t tag) {
    struct ddp_sge into = piece(end, offset, length);
    return post(end, (struct ddp_work){.op = DDP_RECEIVE, .list = &into, .count = 1, .tag = tag});
}

struct ddp_event event(const struct end *end, uint32_t kind, int32_t status) {
    struct ddp_event event;
    IS(ddp_events(end->queue, &event, 1, PATIENCE), 1);
    IS(event.kind, kind);
    IS(event.status, status);
    return event;
}

void no_event(const struct end *end) {
    struct ddp_event event;
    IS(ddp_events(end->queue, &event, 1, 0), 0);
}

int main(int count, char **args) {
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        {"operations", operations}, {"files", files}, {"windows", windows}, {"refusals", refusals},
        {"bad_pointers", bad_pointers},
        {"connections", connections}, {"peers", peers}, {"endings", endings},
        {"readiness", readiness}, {"patience", patience}, {"forks", forks}, {"crowds", crowds},
        {"answers", answered}, {"unanswered", unanswered}, {"shared", shared_receives}, {"names", names},
        {"allocated", allocated}, {"placement", placement},
    };
    alarm(120);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (count > 1 && strcmp(args[1], tests[i].name) == 0) {
            tests[i].run();
            puts("all is so");
            return 0;
        }
    return 2;
}
