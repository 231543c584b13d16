/* Tests of properties that only epoll sets have. */
#include "readiness.h"

static char buf[1000];

static int ctl(int epoll, int operation, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {events, {.u64 = data}};
    return epoll_ctl(epoll, operation, fd, &event);
}

/* The one event that there is within so many milliseconds, with this data; 0: none. */
static int event_of(int epoll, int milliseconds, uint64_t data) {
    struct epoll_event events[4];
    int got = epoll_wait(epoll, events, 4, milliseconds);
    if (got <= 0)
        return got;
    IS(got, 1);
    IS(events[0].data.u64, data);
    return events[0].events;
}

/* Ends of which one has said all that is kept before it may send. */
static void quiet_and_full(int ends[2]) {
    static char early[16 * 1024];
    quiet(ends);
    IS(write(ends[0], early, sizeof early), sizeof early);
}

static void once(void) {
    int ends[2], set = epoll_create1(0);
    ready(ends);
    IS(ctl(set, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLONESHOT, 1), 0);
    /* An event that is not passed on does not disarm the entry. */
    pthread_t thread = trickle(ends[1], 40, 'x');
    IS(event_of(set, LONG, 1), EPOLLIN);
    pthread_join(thread, NULL);
    IS(event_of(set, SOON, 0), 0);
    IS(read(ends[0], buf, 100), 40);
    send_fpdu(ends[1], 1, 'y');
    IS(event_of(set, SOON, 0), 0);
    IS(ctl(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT, 2), 0);
    IS(event_of(set, LONG, 2), EPOLLIN);
    IS(event_of(set, 0, 0), 0);
    close(set);
    /* Events of the startup are not passed on either, and its end must not arm an entry that has
     * fired. */
    set = epoll_create1(0);
    quiet_and_full(ends);
    IS(ctl(set, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLOUT | EPOLLONESHOT, 3), 0);
    IS(event_of(set, SOON, 0), 0);
    request(ends[1]);
    IS(event_of(set, SOON, 0), 0);
    send_fpdu(ends[1], 1, 'z');
    IS(event_of(set, LONG, 3) & ~(EPOLLIN | EPOLLOUT), 0);
    IS(event_of(set, SOON, 0), 0);
    IS(read(ends[0], buf, 100), 1);
    IS(write(ends[0], "x", 1), 1);
    IS(event_of(set, SOON, 0), 0);
}

static void edge(void) {
    int ends[2], set = epoll_create1(0);
    quiet_and_full(ends);
    IS(ctl(set, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 1), 0);
    IS(event_of(set, SOON, 0), 0);
    request(ends[1]);
    IS(event_of(set, SOON, 0), 0);
    send_fpdu(ends[1], 10, 'x');
    int seen = 0;
    while (seen != (EPOLLIN | EPOLLOUT))
        seen |= event_of(set, LONG, 1);
    IS(event_of(set, SOON, 0), 0);
    send_fpdu(ends[1], 10, 'y'); /* more octets: an edge, though the first are there still */
    IS(event_of(set, LONG, 1) & EPOLLIN, EPOLLIN);
    IS(read(ends[0], buf, 100), 20);
    for (int round = 0; round < 3; round++) {
        pthread_t thread = trickle(ends[1], 10, 'z');
        /* An edge tells of all that is ready: of room too. */
        do
            seen = event_of(set, LONG, 1);
        while (seen == EPOLLOUT);
        IS(seen & EPOLLIN, EPOLLIN);
        pthread_join(thread, NULL);
        IS(read(ends[0], buf, 100), 10);
        FAILS(read(ends[0], buf, 100), EAGAIN);
    }
    shutdown(ends[1], SHUT_WR);
    seen = event_of(set, LONG, 1);
    IS(seen & (EPOLLIN | EPOLLRDHUP), EPOLLIN | EPOLLRDHUP);
}

static void exclusive(void) {
    int ends[2], set = epoll_create1(0);
    quiet_and_full(ends);
    IS(ctl(set, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLOUT | EPOLLEXCLUSIVE, 5), 0);
    FAILS(ctl(set, EPOLL_CTL_MOD, ends[0], EPOLLIN, 5), EINVAL);
    IS(event_of(set, SOON, 0), 0);
    request(ends[1]);
    IS(event_of(set, SOON, 0), 0);
    send_fpdu(ends[1], 10, 'x');
    while (event_of(set, LONG, 5) != (EPOLLIN | EPOLLOUT))
        ;
    IS(ctl(set, EPOLL_CTL_DEL, ends[0], 0, 0), 0);
    IS(event_of(set, 0, 0), 0);
    FAILS(ctl(set, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLRDHUP | EPOLLEXCLUSIVE, 5), EINVAL);
}

static void nested(void) {
    int ends[2], inner = epoll_create1(0), outer = epoll_create1(0);
    ready(ends);
    IS(ctl(inner, EPOLL_CTL_ADD, ends[0], EPOLLIN, 1), 0);
    IS(ctl(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 2), 0);
    struct pollfd one = {inner, POLLIN, 0};
    IS(event_of(outer, 0, 0), 0);
    send_fpdu(ends[1], 10, 'x');
    IS(event_of(outer, LONG, 2), EPOLLIN);
    IS(poll(&one, 1, LONG), 1);
    IS(event_of(inner, 0, 1), EPOLLIN);
    IS(read(ends[0], buf, 100), 10);
    IS(poll(&one, 1, 0), 0);
    IS(event_of(outer, 0, 0), 0);
}

/* The errors of `epoll_ctl` are the kernel's. */
static void errors(void) {
    int ends[2], tube[2], set = epoll_create1(0);
    ready(ends);
    IS(pipe(tube), 0);
    FAILS(ctl(set, EPOLL_CTL_MOD, ends[0], EPOLLIN, 1), ENOENT);
    FAILS(ctl(set, EPOLL_CTL_DEL, ends[0], EPOLLIN, 1), ENOENT);
    IS(ctl(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 1), 0);
    FAILS(ctl(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 2), EEXIST);
    FAILS(ctl(tube[0], EPOLL_CTL_ADD, ends[0], EPOLLIN, 2), EINVAL);
    FAILS(ctl(777, EPOLL_CTL_ADD, ends[0], EPOLLIN, 2), EBADF);
    FAILS(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], NULL), EFAULT);
    FAILS(ctl(set, 9, ends[0], 0, 0), EINVAL);
    FAILS(epoll_wait(set, NULL, 0, 0), EINVAL);
    FAILS(epoll_wait(tube[0], (void *)buf, 1, 0), EINVAL);
    send_fpdu(ends[1], 1, 'x');
    IS(event_of(set, LONG, 1), EPOLLIN); /* the refused call has changed nothing */
    IS(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL), 0);
    FAILS(ctl(set, EPOLL_CTL_DEL, ends[0], 0, 0), ENOENT);
    IS(event_of(set, 0, 0), 0);
}

/* RD5: data is what it was, also where it is by chance what the library gives the kernel for one
 * of its own. */
static void data(void) {
    int ends[2], tube[2], set = epoll_create1(0);
    ready(ends);
    IS(pipe(tube), 0);
    IS(ctl(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, ~0ull), 0);
    char path[50], text[1000] = "";
    sprintf(path, "/proc/self/fdinfo/%d", set);
    int info = open(path, O_RDONLY);
    IS(read(info, text, sizeof text - 1) > 0, 1);
    close(info);
    unsigned long long key = strtoull(strstr(text, "data:") + 5, NULL, 16);
    IS(key != ~0ull, 1);
    IS(ctl(set, EPOLL_CTL_ADD, tube[0], EPOLLIN, key), 0);
    IS(write(tube[1], "x", 1), 1);
    IS(event_of(set, LONG, key), EPOLLIN);
    IS(read(tube[0], buf, 1), 1);
    send_fpdu(ends[1], 1, 'x');
    IS(event_of(set, LONG, ~0ull), EPOLLIN);
    IS(ctl(set, EPOLL_CTL_MOD, ends[0], EPOLLIN, key), 0);
    IS(event_of(set, LONG, key), EPOLLIN);
    /* An entry that was plain, changed by MOD. */
    IS(ctl(set, EPOLL_CTL_DEL, ends[0], 0, 0), 0);
    IS(ctl(set, EPOLL_CTL_ADD, tube[1], EPOLLOUT, 7), 0);
    IS(ctl(set, EPOLL_CTL_MOD, tube[1], EPOLLOUT, key + 1), 0);
    IS(event_of(set, LONG, key + 1), EPOLLOUT);
    IS(ctl(set, EPOLL_CTL_DEL, tube[1], 0, 0), 0);
    close(tube[0]);
    IS(event_of(set, 0, 0), 0);
}

/* RD6: a socket leaves with its last number. */
static void closing(void) {
    int ends[2], again[2], set = epoll_create1(0);
    ready(ends);
    IS(ctl(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 1), 0);
    send_fpdu(ends[1], 10, 'x');
    IS(event_of(set, LONG, 1), EPOLLIN);
    int copy = dup(ends[0]);
    IS(close(ends[0]), 0);
    IS(event_of(set, LONG, 1), EPOLLIN);
    IS(read(copy, buf, 100), 10);
    IS(event_of(set, 0, 0), 0);
    pthread_t thread = trickle(ends[1], 10, 'y');
    IS(event_of(set, LONG, 1), EPOLLIN);
    pthread_join(thread, NULL);
    IS(close(copy), 0);
    IS(event_of(set, 0, 0), 0);
    close(ends[1]);
    for (int round = 0; round < 50; round++) {
        ready(again);
        IS(ctl(set, EPOLL_CTL_ADD, again[0], EPOLLIN, 100 + round), 0);
        send_fpdu(again[1], 10, 'z');
        IS(event_of(set, LONG, 100 + round), EPOLLIN);
        close(again[0]);
        close(again[1]);
        IS(event_of(set, 0, 0), 0);
    }
    /* A set that has the number of one that was closed. */
    ready(again);
    for (int round = 0; round < 5; round++) {
        close(set);
        set = epoll_create1(0);
        IS(ctl(set, EPOLL_CTL_ADD, again[0], EPOLLOUT, round), 0);
        IS(event_of(set, LONG, round), EPOLLOUT);
    }
    /* With octets that TCP has no room for: the set hears nothing while they go out. */
    while (send(again[0], buf, sizeof buf, MSG_NOSIGNAL) > 0)
        ;
    IS(ctl(set, EPOLL_CTL_MOD, again[0], EPOLLIN, 9), 0);
    close(again[0]);
    long before = sleeps();
    close(again[1]);
    IS(event_of(set, SOON, 0), 0);
}

/* Another number of the set. */
static void copies(void) {
    int ends[2], set = epoll_create1(0), copy = dup(set);
    ready(ends);
    IS(ctl(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 1), 0);
    send_fpdu(ends[1], 10, 'x');
    IS(event_of(copy, LONG, 1), EPOLLIN);
    IS(ctl(copy, EPOLL_CTL_MOD, ends[0], EPOLLIN, 2), 0);
    IS(event_of(set, LONG, 2), EPOLLIN);
    close(set);
    IS(ctl(copy, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLOUT, 3), 0);
    IS(event_of(copy, LONG, 3), EPOLLIN | EPOLLOUT);
    IS(ctl(copy, EPOLL_CTL_DEL, ends[0], 0, 0), 0);
    IS(event_of(copy, 0, 0), 0);
}

static void join(pid_t child) {
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
}

/* RD5: a set that two processes have. */
static void processes(void) {
    int ends[2], later[2], set = epoll_create1(0), tube[2];
    IS(pipe(tube), 0);
    ready(ends);
    quiet_and_full(later);
    IS(ctl(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 1), 0);
    send_fpdu(ends[1], 10, 'x');
    pid_t child = fork();
    if (child == 0) {
        IS(event_of(set, LONG, 1), EPOLLIN);
        IS(read(ends[0], buf, 100), 10);
        IS(ctl(set, EPOLL_CTL_MOD, ends[0], EPOLLIN, 2), 0);
        IS(ctl(set, EPOLL_CTL_ADD, later[0], EPOLLIN | EPOLLOUT, 3), 0);
        IS(write(tube[1], "x", 1), 1);
        IS(close(ends[0]), 0); /* the parent has it */
        _exit(0);
    }
    IS(read(tube[0], buf, 1), 1);
    join(child);
    send_fpdu(ends[1], 10, 'y');
    IS(event_of(set, LONG, 2), EPOLLIN);
    IS(read(ends[0], buf, 100), 10);
    /* The entry that the child added. */
    IS(event_of(set, SOON, 0), 0);
    request(later[1]);
    IS(event_of(set, SOON, 0), 0);
    send_fpdu(later[1], 1, 'z');
    while (event_of(set, LONG, 3) != (EPOLLIN | EPOLLOUT))
        ;
    IS(ctl(set, EPOLL_CTL_DEL, later[0], 0, 0), 0);
    IS(ctl(set, EPOLL_CTL_DEL, ends[0], 0, 0), 0);
    IS(event_of(set, 0, 0), 0);
}

static void *wait_for_two(void *of) {
    struct epoll_event event;
    int set = *(int *)of;
    IS(epoll_wait(set, &event, 1, LONG), 1);
    IS(event.data.u64, 2);
    IS(event.events, EPOLLOUT);
    return NULL;
}

/* An event that one thread causes wakes another that sleeps. */
static void threads(void) {
    int ends[2], set = epoll_create1(0);
    pthread_t thread;
    quiet_and_full(ends);
    request(ends[1]);
    IS(ctl(set, EPOLL_CTL_ADD, ends[0], EPOLLOUT | EPOLLET, 2), 0);
    pthread_create(&thread, NULL, wait_for_two, &set);
    usleep(20000);
    send_fpdu(ends[1], 3, 'x');
    struct pollfd one = {ends[0], POLLIN, 0};
    IS(poll(&one, 1, LONG), 1);
    IS(read(ends[0], buf, 100), 3);
    pthread_join(thread, NULL);
}

/* Listeners, and sockets that were never connected, are the kernel's. */
static void strangers(void) {
    struct sockaddr_in addr;
    int set = epoll_create1(0), on = 1, fd = socket(AF_INET, SOCK_STREAM, 0), ends[2];
    IS(setsockopt(fd, SOL_DDP, DDPMODE, &on, sizeof on), 0);
    IS(ctl(set, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT, 1), 0);
    IS(event_of(set, 0, 1), EPOLLOUT | EPOLLHUP);
    IS(ctl(set, EPOLL_CTL_MOD, fd, EPOLLIN, 2), 0);
    memset(&addr, 0, sizeof addr);
    addr.sin_family = AF_INET;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof addr;
    IS(bind(fd, (void *)&addr, len), 0);
    IS(listen(fd, 5), 0);
    IS(getsockname(fd, (void *)&addr, &len), 0);
    IS(event_of(set, 0, 0), 0);
    ends[1] = socket(AF_INET, SOCK_STREAM, 0);
    IS(connect(ends[1], (void *)&addr, len), 0);
    IS(event_of(set, LONG, 2), EPOLLIN);
    ends[0] = accept(fd, NULL, NULL);
    IS(event_of(set, 0, 0), 0);
}

void sets(void) {
    static const struct {
        const char *name;
        void (*try)(void);
    } all[] = {{"once", once},       {"edge", edge},           {"exclusive", exclusive}, {"nested", nested},
               {"errors", errors},   {"data", data},           {"closing", closing},     {"copies", copies},
               {"threads", threads}, {"processes", processes}, {"strangers", strangers}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        doing = all[i].name;
        all[i].try();
    }
}
