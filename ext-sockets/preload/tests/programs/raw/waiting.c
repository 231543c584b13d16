/* Waiting: on the queue's descriptor, in ddp_events, for a receive; and what fork leaves. */
#include "raw.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>

static int readable(int fd, int timeout) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, timeout);
}

static void by_descriptor(struct pair *pair) {
    struct end *from = &pair->active, *to = &pair->passive;
    struct epoll_event ready, interest = {.events = EPOLLIN, .data.u32 = 77};
    int set = epoll_create1(0);
    IS(epoll_ctl(set, EPOLL_CTL_ADD, to->queue, &interest), 0);
    for (int turn = 0; turn < 50; turn++) {
        IS(readable(to->queue, 0), 0);
        IS(epoll_wait(set, &ready, 1, 0), 0);
        for (int i = 0; i < 3; i++) {
            IS(receive(to, 0, 8, i), 1);
            IS(post(from, (struct ddp_work){.op = DDP_SEND, .flags = DDP_QUIET}), 1);
        }
        if (turn % 3 == 0)
            IS(readable(to->queue, PATIENCE), 1);
        if (turn % 3 == 1)
            IS(epoll_wait(set, &ready, 1, PATIENCE), 1);
        if (turn % 3 == 2) {
            fd_set fds;
            FD_ZERO(&fds);
            FD_SET(to->queue, &fds);
            struct timeval patience = {.tv_sec = PATIENCE / 1000};
            IS(select(to->queue + 1, &fds, NULL, NULL, &patience), 1);
        }
        for (int i = 0; i < 3; i++) {
            /* While there is one more. */
            IS(readable(to->queue, PATIENCE), 1);
            IS(event(to, DDP_RECEIVE, 0).tag, i);
        }
    }
    IS(close(set), 0);
}

static volatile sig_atomic_t alarms;
static void on_alarm(int signal) { alarms++; }

static void by_call(struct pair *pair) {
    struct ddp_event events[4];
    IS(ddp_events(pair->active.queue, events, 4, 20), 0);
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval soon = {.it_value = {.tv_usec = 20000}, .it_interval = {.tv_usec = 20000}}, never = {0};
    setitimer(ITIMER_REAL, &soon, NULL);
    FAILS(ddp_events(pair->active.queue, events, 4, -1), EINTR);
    setitimer(ITIMER_REAL, &never, NULL);
    IS(alarms > 0, 1);
}

static void *wait_for_closed(void *end) {
    event(end, DDP_CLOSED, ECANCELED);
    return NULL;
}

/* Another thread's disconnect wakes who waits. */
static void woken(struct pair *pair) {
    pthread_t thread;
    IS(pthread_create(&thread, NULL, wait_for_closed, &pair->active), 0);
    usleep(20000);
    IS(ddp_disconnect(pair->active.fd, DDP_ABORT), 0);
    IS(pthread_join(thread, NULL), 0);
    IS(readable(pair->passive.queue, PATIENCE), 1);
    event(&pair->passive, DDP_CLOSED, ECONNRESET);
    IS(readable(pair->passive.queue, 0), 0);
}

void readiness(void) {
    struct pair *pair = connected(0);
    by_descriptor(pair);
    by_call(pair);
    woken(pair);
}

void patience(void) {
    struct pair *pair = connected(DDP_ENDPOINT_WAIT);
    struct end *from = &pair->active, *to = &pair->passive;
    struct ddp_info info;
    IS(ddp_info(from->fd, &info), 0);
    IS(info.ird, 0);
    IS(info.ord, 0);
    for (int i = 0; i < 100; i++) {
        struct ddp_sge octets = {.to = (uintptr_t)&i, .length = sizeof i};
        IS(post(from, (struct ddp_work){.op = DDP_SEND, .flags = DDP_INLINE, .list = &octets, .count = 1}), 1);
        event(from, DDP_SEND, 0);
    }
    usleep(50000);
    no_event(to);
    for (int i = 0; i < 100; i++) {
        IS(receive(to, 8, 4, i), 1);
        IS(event(to, DDP_RECEIVE, 0).tag, i);
        IS(memcmp(to->memory + 8, &i, sizeof i), 0);
    }
    struct ddp_sge sink = piece(from, 0, 8);
    IS(post(from, (struct ddp_work){.op = DDP_READ, .list = &sink, .count = 1, .stag = to->stag}), 1);
    event(from, DDP_READ, EOPNOTSUPP);
    event(from, DDP_CLOSED, ECONNABORTED);
    event(to, DDP_CLOSED, EREMOTEIO);
}

static void child(const struct pair *pair, int receives) {
    struct ddp_event event;
    struct ddp_info info;
    struct ddp_work receive = {.op = DDP_RECEIVE};
    FAILS(ddp_post_shared(receives, &receive, 1), EINVAL);
    FAILS(ddp_answer(pair->active.fd, DDP_ACCEPT, NULL, 0), ECONNABORTED);
    FAILS(post(&pair->active, (struct ddp_work){.op = DDP_SEND}), ECONNABORTED);
    FAILS(ddp_info(pair->active.fd, &info), ECONNABORTED);
    FAILS(ddp_disconnect(pair->active.fd, DDP_ABORT), ECONNABORTED);
    FAILS(ddp_events(pair->active.queue, &event, 1, -1), EBADF);
    FAILS(ddp_deregister(pair->active.stag), EINVAL);
    /* The child's objects are its own. */
    disconnected(connected(0));
    FAILS(ddp_events(pair->active.queue, &event, 1, -1), EINVAL);
    IS(close(pair->active.fd), 0);
    IS(close(pair->active.queue), 0);
    exit(0);
}

void forks(void) {
    struct pair *pair = connected(0);
    int status, receives = ddp_receives(0, 1, 0);
    pid_t process = fork();
    if (process == 0)
        child(pair, receives);
    IS(waitpid(process, &status, 0), process);
    IS(status, 0);
    IS(receive(&pair->passive, 0, 8, 0), 1);
    IS(post(&pair->active, (struct ddp_work){.op = DDP_SEND, .flags = DDP_QUIET}), 1);
    event(&pair->passive, DDP_RECEIVE, 0);
    disconnected(pair);
}
