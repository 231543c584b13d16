/* A model of a program that waits on a socket of SDP: sdp_orders SEED COUNT.
 *
 * One end is the program, which waits in one way for some events, level-triggered, by edges or
 * once; the other one is the peer. Both send and receive in a random order of steps. What holds is
 * known without a look at the program's socket, and must be told: octets, or the end, that have
 * been sent and not received; room, once the peer has received everything. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

#include <rddp/ddp.h>

#include "check.h"

enum way { POLL, SELECT, LEVEL, EDGES, ONCE, ONCE_BY_EDGES, EXCLUSIVE, WAYS };
static const char *const names[] = {"poll", "select", "level", "edges", "once", "once by edges", "exclusive"};
static const uint32_t flags[] = {0, 0, 0, EPOLLET, EPOLLONESHOT, EPOLLONESHOT | EPOLLET, EPOLLEXCLUSIVE};

/* The peer and the program, and the octets that each has sent and received. */
enum { PEER, PROGRAM };
static int ends[2];
static size_t sent[2], received[2];
static int has_ended, end_is_read;

static enum way way;
static int set = -1;
/* The events that are waited for, and those of which each new one must be told. */
static uint32_t want, armed;
static char octets[1 << 18];
/* The steps since the beginning of this order. */
static char steps[4096];
static size_t steps_len;

static uint64_t state;
static uint32_t below(uint32_t bound) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (state >> 20) % bound;
}

static void note(const char *form, ...) {
    va_list list;
    va_start(list, form);
    if (steps_len + 40 < sizeof steps)
        steps_len += vsnprintf(steps + steps_len, 40, form, list);
    va_end(list);
}

static void connection(void) {
    struct sockaddr_in addr;
    int listener = socket(AF_INET, SOCK_STREAM, 0), mode = DDPMODE_SDP;
    IS(setsockopt(listener, SOL_DDP, DDPMODE, &mode, sizeof mode), 0);
    listen_somewhere(listener, &addr);
    ends[PEER] = socket(AF_INET, SOCK_STREAM, 0);
    IS(setsockopt(ends[PEER], SOL_DDP, DDPMODE, &mode, sizeof mode), 0);
    IS(connect(ends[PEER], (void *)&addr, sizeof addr), 0);
    ends[PROGRAM] = accept(listener, NULL, NULL);
    char octet;
    IS(write(ends[PEER], "x", 1), 1);
    IS(read(ends[PROGRAM], &octet, 1), 1);
    close(listener);
    sent[PEER] = sent[PROGRAM] = received[PEER] = received[PROGRAM] = 0;
    has_ended = end_is_read = 0;
}

static int by_edges(void) { return way == EDGES; }

/* Sends from one end, and returns whether there was room. */
static int send_some(int end, size_t count) {
    ssize_t got = send(ends[end], octets, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (got < 0)
        IS(errno, EAGAIN);
    if (got < 0 && end == PROGRAM)
        armed |= EPOLLOUT;
    sent[end] += got > 0 ? got : 0;
    return got > 0;
}

static int receive_some(int end, size_t count) {
    ssize_t got = recv(ends[end], octets, count, MSG_DONTWAIT);
    if (got < 0)
        IS(errno, EAGAIN);
    if (got < 0 && end == PROGRAM)
        armed |= EPOLLIN;
    if (got == 0)
        IS(has_ended && end == PROGRAM, end_is_read = 1);
    received[end] += got > 0 ? got : 0;
    return got > 0;
}

static void control(int operation) {
    struct epoll_event event = {.events = want | flags[way]};
    if (set >= 0)
        IS(epoll_ctl(set, operation, ends[PROGRAM], &event), 0);
    armed = EPOLLIN | EPOLLOUT;
}

static void ask_for(uint32_t events) {
    want = events;
    if (way == EXCLUSIVE)
        control(EPOLL_CTL_DEL), control(EPOLL_CTL_ADD);
    else
        control(EPOLL_CTL_MOD);
}

/* Waits in the program's way. Returns what was told of the events that it waits for. */
static uint32_t waits(int milliseconds) {
    int fd = ends[PROGRAM], count;
    uint32_t told = 0;
    if (way == POLL) {
        struct pollfd one = {fd, want, 0};
        IS((count = poll(&one, 1, milliseconds)) >= 0, 1);
        told = one.revents;
    } else if (way == SELECT) {
        fd_set in, out;
        struct timeval limit = {0, milliseconds * 1000};
        FD_ZERO(&in);
        FD_ZERO(&out);
        if (want & EPOLLIN)
            FD_SET(fd, &in);
        if (want & EPOLLOUT)
            FD_SET(fd, &out);
        IS((count = select(fd + 1, &in, &out, NULL, &limit)) >= 0, 1);
        told = (FD_ISSET(fd, &in) ? EPOLLIN : 0) | (FD_ISSET(fd, &out) ? EPOLLOUT : 0);
    } else {
        struct epoll_event event;
        IS((count = epoll_wait(set, &event, 1, milliseconds)) >= 0, 1);
        told = count > 0 ? event.events : 0;
    }
    told &= want;
    if (by_edges())
        armed &= ~told;
    return told;
}

/* Returns the events that the program must be told of, if it waits now. */
static uint32_t holds(void) {
    uint32_t in = sent[PEER] > received[PROGRAM] || has_ended && !end_is_read ? EPOLLIN : 0;
    uint32_t out = received[PEER] == sent[PROGRAM] ? EPOLLOUT : 0;
    return (in | out) & want & (by_edges() ? armed : ~0u);
}

/* Waits until all that holds is told, while the peer does what it owes. */
static void all_is_told(void) {
    uint32_t must = holds(), told = 0;
    time_t until = time(NULL) + 20;
    while ((told |= waits(told ? 0 : 5)) != (told | must)) {
        struct pollfd peer = {ends[PEER], POLLIN | POLLOUT, 0};
        IS(poll(&peer, 1, 0) >= 0, 1);
        if (flags[way] & EPOLLONESHOT)
            control(EPOLL_CTL_MOD);
        if (time(NULL) > until) {
            printf("%s: 0x%x of 0x%x told, sent %zu %zu, received %zu %zu:%s\n", names[way], told, must,
                   sent[PEER], sent[PROGRAM], received[PEER], received[PROGRAM], steps);
            fflush(stdout);
            _exit(1);
        }
    }
    if (flags[way] & EPOLLONESHOT)
        control(EPOLL_CTL_MOD);
}

static size_t some(void) {
    static const uint32_t sizes[] = {1, 10, 1000, 9000, 40000, 131072, sizeof octets};
    return 1 + below(sizes[below(sizeof sizes / sizeof *sizes)]);
}

static void step(void) {
    static const uint32_t wants[] = {EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT, EPOLLIN | EPOLLOUT};
    int end = below(2);
    size_t count = some();
    uint32_t told;
    switch (below(10)) {
    case 0:
    case 1:
        note(" %d+%zu", end, count);
        if (sent[end] - received[!end] < 6 << 20)
            send_some(end, count);
        break;
    case 2: /* about as many as there are credits for */
        note(" %d++", end);
        for (int i = 200 + below(80); i > 0 && send_some(end, 1); i--)
            ;
        break;
    case 3:
        note(" %d-%zu", end, count);
        receive_some(end, count);
        break;
    case 4:
        note(" %d--", end);
        while (receive_some(end, sizeof octets))
            ;
        break;
    case 5:
        ask_for(wants[below(4)]);
        note(" w%x", want);
        break;
    case 6:
        note(" told");
        all_is_told();
        break;
    default:
        note(" w");
        told = waits(0);
        if (told && flags[way] & EPOLLONESHOT)
            control(EPOLL_CTL_MOD);
        if (told & EPOLLIN && below(3))
            do
                note(" r%zu", count);
            while (receive_some(PROGRAM, count) && by_edges());
        if (told & EPOLLOUT && below(3))
            send_some(PROGRAM, count);
    }
}

int main(int words_count, char **words) {
    IS(words_count, 3);
    state = strtoull(words[1], NULL, 0) * 0x9e3779b97f4a7c15 + 1;
    alarm(20000);
    connection();
    for (long i = 0, count = atol(words[2]); i < count; i++) {
        steps_len = 0, steps[0] = 0;
        way = below(WAYS);
        want = EPOLLIN | EPOLLOUT;
        set = way > SELECT ? epoll_create1(0) : -1;
        control(EPOLL_CTL_ADD);
        for (int left = 4 + below(20); left > 0; left--)
            step();
        if (below(20) == 0) {
            note(" end");
            IS(shutdown(ends[PEER], SHUT_WR), 0);
            has_ended = 1;
        }
        all_is_told();
        if (set >= 0)
            close(set);
        while (received[PEER] < sent[PROGRAM] || received[PROGRAM] < sent[PEER]) {
            receive_some(PEER, sizeof octets);
            receive_some(PROGRAM, sizeof octets);
        }
        if (has_ended) {
            close(ends[PEER]), close(ends[PROGRAM]);
            connection();
        }
    }
    printf("all is so\n");
    return 0;
}
