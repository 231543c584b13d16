/* Waits of processes that share a socket of SDP: sdp_waits CASE [COUNT].
 *
 * The buffers of the peer are few (RDDP_SDP_BUFS), so that senders soon have no credits. A wake-up
 * that is missed ends by the alarm. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <time.h>

#include <rddp/ddp.h>

#include "check.h"

static int ends[2];
static int count = 300;

/* Makes the connection: of SDP, or of plain TCP without the library. */
static void connection(void) {
    struct sockaddr_in addr;
    int listener = socket(AF_INET, SOCK_STREAM, 0), mode = DDPMODE_SDP;
    int speaks_sdp = getenv("LD_PRELOAD") != NULL;
    if (speaks_sdp)
        IS(setsockopt(listener, SOL_DDP, DDPMODE, &mode, sizeof mode), 0);
    listen_somewhere(listener, &addr);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (speaks_sdp)
        IS(setsockopt(ends[0], SOL_DDP, DDPMODE, &mode, sizeof mode), 0);
    IS(connect(ends[0], (void *)&addr, sizeof addr), 0);
    ends[1] = accept(listener, NULL, NULL);
    char octet;
    IS(write(ends[0], "x", 1), 1);
    IS(read(ends[1], &octet, 1), 1);
    IS(write(ends[1], "x", 1), 1);
    IS(read(ends[0], &octet, 1), 1);
    close(listener);
}

static uint64_t counter(int fd, int which) {
    struct ddp_sdp_info info;
    socklen_t len = sizeof info;
    IS(getsockopt(fd, SOL_DDP, DDP_SDP_INFO, &info, &len), 0);
    return info.counters[which];
}

static void drain(int fd, size_t octets) {
    static char buffer[4096];
    while (octets > 0) {
        ssize_t got = recv(fd, buffer, octets < sizeof buffer ? octets : sizeof buffer, 0);
        IS(got > 0, 1);
        octets -= got;
    }
}

static size_t use_up(int fd) {
    size_t sent = 0;
    while (send(fd, "c", 1, MSG_DONTWAIT) == 1)
        sent++;
    IS(errno, EAGAIN);
    IS(sent > 0, 1);
    return sent;
}

/* Runs `what` in a child. */
#define CHILD(pid, ...) \
    pid_t pid = fork(); \
    if (pid == 0) { \
        alarm(100); \
        __VA_ARGS__; \
        _exit(0); \
    }

static void join(pid_t pid) {
    int status = -1;
    IS(waitpid(pid, &status, 0), pid);
    IS(status, 0);
}

/* Sends three octets for each octet of the other end, and takes those fifty at a time. */
static void exchange(void) {
    for (int i = 0; i < count; i++) {
        IS(send(ends[0], "abc", 3, 0), 3);
        if (i % 50 == 49)
            drain(ends[0], 50);
    }
    drain(ends[0], count % 50);
}

/* One process sends without credits, another reads on the same socket, and may take them. */
static void missed(void) {
    CHILD(sender, for (int i = 0; i < count; i++) IS(send(ends[1], "s", 1, 0), 1));
    CHILD(reader, for (int i = 0; i < count; i++) drain(ends[1], 3));
    close(ends[1]);
    exchange();
    join(sender);
    join(reader);
}

/* As above; the sender waits in its program's poll, select or epoll, each for room. */
static void wait_for_room(int fd, int way, int set) {
    struct pollfd one = {fd, POLLOUT, 0};
    struct epoll_event event;
    fd_set out;
    FD_ZERO(&out);
    FD_SET(fd, &out);
    switch (way) {
    case 0: IS(poll(&one, 1, 90000), 1); break;
    case 1: IS(select(fd + 1, NULL, &out, NULL, NULL), 1); break;
    default:
        IS(epoll_wait(set, &event, 1, 90000), 1);
        IS(event.events & EPOLLOUT, EPOLLOUT);
    }
}

static int set_of(int fd, int way) {
    static const uint32_t flags[] = {0, EPOLLET, EPOLLONESHOT, EPOLLEXCLUSIVE};
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLOUT | flags[way % 4], .data.fd = fd};
    IS(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
    return set;
}

static void send_by_waits(int way) {
    int fd = ends[1], set = way >= 2 ? set_of(fd, way - 2) : -1;
    for (int i = 0; i < count; i++)
        while (send(fd, "s", 1, MSG_DONTWAIT) != 1) {
            IS(errno, EAGAIN);
            wait_for_room(fd, way, set);
            struct epoll_event again = {.events = EPOLLOUT | EPOLLONESHOT, .data.fd = fd};
            if (way == 4)
                IS(epoll_ctl(set, EPOLL_CTL_MOD, fd, &again), 0);
        }
}

static void missed_by_waits(void) {
    for (int way = 0; way < 6; way++) {
        CHILD(sender, send_by_waits(way));
        CHILD(reader, for (int i = 0; i < count; i++) drain(ends[1], 3));
        exchange();
        join(sender);
        join(reader);
    }
}

/* A wait for room without credits, with octets that nobody reads, sleeps until credits come; each
 * arrival wakes it once. */
static void wakeups(void) {
    for (int way = 0; way < 6; way++) {
        size_t sent = use_up(ends[1]);
        IS(send(ends[0], "unread", 6, 0), 6);
        CHILD(peer, close(ends[1]); for (int i = 0; i < 20; i++) {
            usleep(2000);
            IS(send(ends[0], "more", 4, 0), 4);
        } drain(ends[0], sent));
        struct rusage before, after;
        int set = way >= 2 ? set_of(ends[1], way - 2) : -1;
        getrusage(RUSAGE_SELF, &before);
        wait_for_room(ends[1], way, set);
        getrusage(RUSAGE_SELF, &after);
        long slept = after.ru_nvcsw - before.ru_nvcsw;
        if (slept > 60)
            printf("way %d woke %ld times\n", way, slept);
        IS(slept <= 60, 1);
        join(peer);
        if (set >= 0) {
            struct epoll_event event;
            if (way == 2 || way == 5) /* level-triggered again */
                IS(epoll_wait(set, &event, 1, 0), 1);
            close(set);
        }
        drain(ends[1], 6 + 20 * 4);
    }
    /* A set in a set. */
    size_t sent = use_up(ends[1]);
    IS(send(ends[0], "unread", 6, 0), 6);
    int inner = set_of(ends[1], 0), outer = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = 7};
    IS(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event), 0);
    CHILD(peer, usleep(20000); drain(ends[0], sent));
    do
        IS(epoll_wait(outer, &event, 1, 90000), 1);
    while (epoll_wait(inner, &event, 1, 0) == 0);
    IS(event.events & EPOLLOUT, EPOLLOUT);
    join(peer);
}

/* One of two processes on a socket is stopped in each of its waits; the other reads and sends. */
static void stopped(void) {
    for (int at = 0; at < 8; at++) {
        size_t sent = at >= 4 ? use_up(ends[1]) : 0;
        IS(send(ends[0], "front", 5, 0), 5);
        if (at < 4)
            drain(ends[1], 5);
        CHILD(other, {
            struct pollfd one = {ends[1], at < 4 ? POLLIN : POLLOUT, 0};
            char octets[5];
            if (at % 4 == 0)
                poll(&one, 1, -1);
            else if (at % 4 == 1)
                epoll_wait(set_of(ends[1], 0), &(struct epoll_event){0}, 1, -1);
            else if (at < 4)
                recv(ends[1], octets, 5, MSG_WAITALL);
            else
                send(ends[1], "x", 1, 0);
            pause();
        });
        usleep(20000);
        IS(kill(other, SIGSTOP), 0);
        IS(waitpid(other, NULL, WUNTRACED), other);
        if (at >= 4) {
            drain(ends[1], 5);
            drain(ends[0], sent);
        }
        for (int i = 0; i < 1000; i++) {
            IS(send(ends[0], "to the one that runs", 20, 0), 20);
            drain(ends[1], 20);
            IS(send(ends[1], "back", 4, 0), 4);
            drain(ends[0], 4);
        }
        IS(kill(other, SIGKILL), 0);
        IS(waitpid(other, NULL, 0), other);
        IS(send(ends[0], "goes on", 7, 0), 7);
        drain(ends[1], 7);
    }
}

/* Sends that nobody reads return; both ends send at once and nobody receives. */
static void unread(void) {
    for (int i = 0; i < 200; i++)
        IS(send(ends[0], "ten octets", 10, 0), 10);
    drain(ends[1], 2000);
    static char all[2 << 20];
    for (size_t size = 1024; size <= sizeof all; size *= 2) {
        CHILD(one, IS(send(ends[0], all, size, 0), size));
        CHILD(other, IS(send(ends[1], all, size, 0), size));
        join(one);
        join(other);
        drain(ends[0], size);
        drain(ends[1], size);
    }
    IS(counter(ends[0], 1) >= 2000, 1);
    IS(counter(ends[1], 2) >= 2000, 1);
}

/* A wait for the peer's end while the own one waits for credits, with octets that nobody reads,
 * sleeps until the peer's has come; each arrival wakes it once. */
static void wakeups_at_the_end(void) {
    for (int way = 0; way < 2; way++) {
        size_t sent = use_up(ends[1]);
        IS(shutdown(ends[1], SHUT_WR), 0);
        CHILD(peer, close(ends[1]); for (int i = 0; i < 20; i++) {
            usleep(2000);
            IS(send(ends[0], "more", 4, 0), 4);
        } IS(shutdown(ends[0], SHUT_WR), 0); drain(ends[0], sent); IS(read(ends[0], &(char){0}, 1), 0));
        int set = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLRDHUP};
        struct pollfd one = {ends[1], POLLRDHUP, 0};
        IS(epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event), 0);
        struct rusage before, after;
        getrusage(RUSAGE_SELF, &before);
        IS(way == 0 ? poll(&one, 1, 90000) : epoll_wait(set, &event, 1, 90000), 1);
        getrusage(RUSAGE_SELF, &after);
        IS((way == 0 ? one.revents : (int)event.events) & POLLRDHUP, POLLRDHUP);
        long slept = after.ru_nvcsw - before.ru_nvcsw;
        if (slept > 60)
            printf("way %d woke %ld times\n", way, slept);
        IS(slept <= 60, 1);
        close(set);
        drain(ends[1], 20 * 4);
        IS(read(ends[1], &(char){0}, 1), 0);
        join(peer);
        close(ends[0]), close(ends[1]);
        connection();
    }
}

static void *send_now_and_then(void *unused) {
    for (int i = 0; i < 20; i++) {
        usleep(20000);
        IS(send(ends[0], "more", 4, 0), 4);
    }
    return unused;
}

static double processor_time(void) {
    struct timespec time;
    IS(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* A wait for octets while an advert that nobody reads holds the own end back sleeps between two
 * arrivals. */
static void wakeups_behind_an_advert(void) {
    static char octets[100000];
    for (int way = 0; way < 3; way++) {
        int all = 0;
        struct timeval soon = {0, 10000};
        IS(setsockopt(ends[1], SOL_DDP, DDP_SDP_SOURCE_THRESHOLD, &all, sizeof all), 0);
        IS(setsockopt(ends[1], SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon), 0);
        ssize_t sent = send(ends[1], octets, sizeof octets, 0);
        IS(sent > 0, 1);
        IS(shutdown(ends[1], SHUT_WR), 0);
        pthread_t peer;
        IS(pthread_create(&peer, NULL, send_now_and_then, NULL), 0);
        int set = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN};
        struct pollfd one = {ends[1], POLLIN, 0};
        IS(epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event), 0);
        struct rusage before, after;
        double began = processor_time();
        getrusage(RUSAGE_THREAD, &before);
        for (int left = 80; left > 0;) {
            if (way > 0)
                IS(way == 1 ? poll(&one, 1, 90000) : epoll_wait(set, &event, 1, 90000), 1);
            ssize_t got = recv(ends[1], octets, left, way == 0 ? MSG_WAITALL : MSG_DONTWAIT);
            IS(got > 0 || errno == EAGAIN, 1);
            left -= got > 0 ? got : 0;
        }
        getrusage(RUSAGE_THREAD, &after);
        /* The arrivals take 400 ms, for which one that does not sleep uses the processor. */
        IS(processor_time() - began < 0.2, 1);
        /* Each arrival takes a few sleeps, those for locks among them; one a millisecond would be
         * 400. */
        IS(after.ru_nvcsw - before.ru_nvcsw <= 200, 1);
        IS(pthread_join(peer, NULL), 0);
        close(set);
        drain(ends[0], sent);
        IS(read(ends[0], octets, 1), 0);
        close(ends[0]), close(ends[1]);
        connection();
    }
}

static void *send_records(void *unused) {
    static char record[7000];
    for (int i = 0; i < count; i++) {
        int octets = i % 3 == 0 ? 100 : i % 3 == 1 ? 3000 : 7000;
        IS(send(ends[0], "head", 4, 0), 4);
        IS(send(ends[0], record, octets, 0), octets);
    }
    return unused;
}

/* Waits that SO_RCVLOWAT sets to the rest of a record end, and hold until it is read, where a
 * record comes by an advert, by octets, or by both. */
static void low_water(void) {
    static char record[7000];
    for (int way = 0; way < 2; way++) {
        int threshold = way == 0 ? 0 : 2000;
        IS(setsockopt(ends[0], SOL_DDP, DDP_SDP_SOURCE_THRESHOLD, &threshold, sizeof threshold), 0);
        pthread_t peer;
        IS(pthread_create(&peer, NULL, send_records, NULL), 0);
        struct pollfd one = {ends[1], POLLIN, 0};
        for (int i = 0; i < 2 * count; i++) {
            int octets = i % 2 == 0 ? 4 : i / 2 % 3 == 0 ? 100 : i / 2 % 3 == 1 ? 3000 : 7000;
            for (int left = octets; left > 0;) {
                int mark = left - left / 4;
                IS(setsockopt(ends[1], SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark), 0);
                for (int again = 0; again < 3; again++)
                    IS(poll(&one, 1, 90000), 1);
                ssize_t got = recv(ends[1], record, left, MSG_DONTWAIT);
                IS(got > 0, 1);
                left -= got;
            }
        }
        IS(pthread_join(peer, NULL), 0);
        close(ends[0]), close(ends[1]);
        connection();
    }
}

/* Returns the third number of a file of the kernel: the most octets that a buffer of TCP has. */
static size_t most(const char *path) {
    size_t numbers[3];
    FILE *file = fopen(path, "r");
    IS(file != NULL, 1);
    IS(fscanf(file, "%zu %zu %zu", numbers, numbers + 1, numbers + 2), 3);
    fclose(file);
    return numbers[2];
}

static size_t all_octets;
static int returned;

static void *send_all(void *end) {
    char *octets = calloc(1, all_octets);
    IS(send(*(int *)end, octets, all_octets, 0), all_octets);
    __atomic_add_fetch(&returned, 1, __ATOMIC_SEQ_CST);
    free(octets);
    return NULL;
}

static void *drain_all(void *end) {
    drain(*(int *)end, all_octets);
    return NULL;
}

/* Sends of more than all buffers hold, those of TCP and the stream's own, do not return while
 * nobody receives, and all octets arrive once somebody does. */
static void blocks(void) {
    pthread_t threads[4];
    all_octets = most("/proc/sys/net/ipv4/tcp_wmem") + most("/proc/sys/net/ipv4/tcp_rmem") + (8 << 20);
    for (int i = 0; i < 2; i++)
        IS(pthread_create(&threads[i], NULL, send_all, &ends[i]), 0);
    sleep(2);
    IS(__atomic_load_n(&returned, __ATOMIC_SEQ_CST), 0);
    for (int i = 0; i < 2; i++)
        IS(pthread_create(&threads[2 + i], NULL, drain_all, &ends[i]), 0);
    for (int i = 0; i < 4; i++)
        IS(pthread_join(threads[i], NULL), 0);
    IS(returned, 2);
}

int main(int words_count, char **words) {
    static const struct {
        const char *name;
        void (*call)(void);
    } cases[] = {{"missed", missed},
                 {"missed_by_waits", missed_by_waits},
                 {"wakeups", wakeups},
                 {"wakeups_at_the_end", wakeups_at_the_end},
                 {"wakeups_behind_an_advert", wakeups_behind_an_advert},
                 {"low_water", low_water},
                 {"stopped", stopped},
                 {"unread", unread},
                 {"blocks", blocks}};
    if (words_count > 2)
        count = atoi(words[2]);
    alarm(words_count > 2 ? 1000 : 100);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (words_count > 1 && strcmp(words[1], cases[i].name) == 0) {
            connection();
            cases[i].call();
            printf("all is so\n");
            return 0;
        }
    puts("no such case");
    return 1;
}
