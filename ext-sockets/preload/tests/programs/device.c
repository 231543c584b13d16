/* Sockets whose streams a device may carry: device CASE. A program sees nothing of that: each case
 * but `forked`, `bereft`, `deaf` and `removed` holds over TCP, too. Client and server are threads
 * of one process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"

static struct sockaddr_in here;
static int listener;

static int tcp(int flags) {
    int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
    IS(fd >= 0, 1);
    return fd;
}

static int connected(void) {
    int fd = tcp(0);
    IS(connect(fd, (void *)&here, sizeof here), 0);
    return fd;
}

static int accepted(void) {
    int fd = accept(listener, NULL, NULL);
    IS(fd >= 0, 1);
    return fd;
}

static void listens(void) {
    listener = tcp(0);
    listen_somewhere(listener, &here);
}

/* The events that hold within ten seconds, or `none` that do not come in a moment. */
static int polled(int fd, int events, int timeout) {
    struct pollfd one = {.fd = fd, .events = events};
    return poll(&one, 1, timeout) > 0 ? one.revents : 0;
}
#define SOON(fd, event) IS(polled(fd, event, 10000) & (event), event)

static void echo(void) {
    listens();
    int a = connected(), b = accepted();
    char got[16];
    IS(send(a, "hello", 5, 0), 5);
    IS(recv(b, got, sizeof got, MSG_PEEK), 5);
    IS(recv(b, got, 5, MSG_WAITALL), 5);
    IS(memcmp(got, "hello", 5), 0);
    FAILS(recv(b, got, sizeof got, MSG_DONTWAIT), EAGAIN);
    struct iovec two[2] = {{"ab", 2}, {"cde", 3}}, into[2] = {{got, 1}, {got + 8, 8}};
    IS(writev(b, two, 2), 5);
    SOON(a, POLLIN);
    int there = 0;
    IS(ioctl(a, FIONREAD, &there), 0);
    IS(there, 5);
    IS(readv(a, into, 2), 5);
    IS(memcmp(got + 8, "bcde", 4), 0);
    /* The end comes behind what was sent, and the other direction goes on. */
    IS(write(a, "x", 1), 1);
    IS(shutdown(a, SHUT_WR), 0);
    SOON(b, POLLRDHUP);
    IS(read(b, got, sizeof got), 1);
    IS(read(b, got, sizeof got), 0);
    IS(read(b, got, sizeof got), 0);
    IS(write(b, "late", 4), 4);
    IS(read(a, got, sizeof got), 4);
    FAILS(send(a, "y", 1, MSG_NOSIGNAL), EPIPE);
    IS(close(b), 0);
    IS(read(a, got, sizeof got), 0);
    IS(close(a), 0);
}

static void names(void) {
    listens();
    int a = tcp(0), one = 1, value = 0;
    socklen_t len = sizeof value;
    IS(setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), 0);
    IS(setsockopt(a, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one), 0);
    IS(connect(a, (void *)&here, sizeof here), 0);
    struct sockaddr_in name, from;
    socklen_t size = sizeof from;
    int b = accept4(listener, (void *)&from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    IS(b >= 0, 1);
    IS(fcntl(b, F_GETFD), FD_CLOEXEC);
    IS(fcntl(b, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    IS(size, sizeof from);
    IS(from.sin_addr.s_addr, here.sin_addr.s_addr);
    IS((getsockname(a, (void *)&name, &(socklen_t){sizeof name}), name.sin_port), from.sin_port);
    IS((getpeername(a, (void *)&name, &(socklen_t){sizeof name}), name.sin_port), here.sin_port);
    IS((getpeername(b, (void *)&name, &(socklen_t){sizeof name}), name.sin_port), from.sin_port);
    FAILS(getpeername(listener, (void *)&name, &(socklen_t){sizeof name}), ENOTCONN);
    errno = 0;
    struct {
        int fd, level, name, value;
    } asked[] = {
        {a, IPPROTO_TCP, TCP_NODELAY, 1}, {a, SOL_SOCKET, SO_KEEPALIVE, 1},      {a, SOL_SOCKET, SO_TYPE, SOCK_STREAM},
        {b, SOL_SOCKET, SO_ERROR, 0},     {b, SOL_SOCKET, SO_DOMAIN, AF_INET},   {b, SOL_SOCKET, SO_TYPE, SOCK_STREAM},
        {a, SOL_SOCKET, SO_ERROR, 0},     {a, SOL_SOCKET, SO_PROTOCOL, IPPROTO_TCP},
    };
    for (size_t at = 0; at < sizeof asked / sizeof *asked; at++) {
        IS(getsockopt(asked[at].fd, asked[at].level, asked[at].name, &value, &len), 0);
        IS(value, asked[at].value);
    }
    char got[4];
    FAILS(read(b, got, 4), EAGAIN);
    struct timeval moment = {.tv_usec = 20000};
    IS(setsockopt(a, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof moment), 0);
    FAILS(read(a, got, 4), EAGAIN);
    FAILS(connect(a, (void *)&here, sizeof here), EISCONN);
    int again = dup(a);
    IS(close(a), 0);
    IS(write(again, "dup", 3), 3);
    SOON(b, POLLIN);
    IS(read(b, got, 4), 3);
    IS(polled(b, POLLIN, 0), 0);
    IS(shutdown(b, SHUT_RD), 0);
    SOON(b, POLLIN);
    IS(read(b, got, 4), 0);
}

/* Waits for an edge that tells this. Of others there may be more than TCP has. */
static void edge(int set, unsigned events) {
    struct epoll_event told = {0};
    while ((told.events & events) != events)
        IS(epoll_wait(set, &told, 1, 10000), 1);
    IS(told.data.u64, 7);
}

/* Parts of a file, from its own place and from another. */
static void file(void) {
    listens();
    int a = connected(), b = accepted();
    FILE *made = tmpfile();
    int from = fileno(made);
    static char octets[300000], got[300000];
    for (size_t at = 0; at < sizeof octets; at++)
        octets[at] = at * 2654435761u >> 13;
    IS(write(from, octets, sizeof octets), sizeof octets);
    IS(lseek(from, 10, SEEK_SET), 10);
    IS(sendfile(a, from, NULL, 1000), 1000);
    IS(lseek(from, 0, SEEK_CUR), 1010);
    IS(recv(b, got, 1000, MSG_WAITALL), 1000);
    IS(memcmp(got, octets + 10, 1000), 0);
    off_t at = 1;
    IS(sendfile(a, from, &at, sizeof octets), sizeof octets - 1);
    IS(at, sizeof octets);
    IS(recv(b, got, sizeof octets - 1, MSG_WAITALL), sizeof octets - 1);
    IS(memcmp(got, octets + 1, sizeof octets - 1), 0);
    IS(sendfile(a, from, &at, 5), 0);
}

/* In sets before `connect`, by level and by edges, and accepted by a set. */
static void sets(void) {
    listens();
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.u64 = 7}, told[4];
    int edges = epoll_create1(0), level = epoll_create1(0), a = tcp(SOCK_NONBLOCK), error = 1;
    IS(epoll_ctl(edges, EPOLL_CTL_ADD, a, &event), 0);
    event = (struct epoll_event){.events = EPOLLIN, .data.u64 = 8};
    IS(epoll_ctl(level, EPOLL_CTL_ADD, a, &event), 0);
    event = (struct epoll_event){.events = EPOLLIN, .data.u64 = 9};
    IS(epoll_ctl(level, EPOLL_CTL_ADD, listener, &event), 0);
    /* A socket that is not connected shows an end, in both sets. */
    epoll_wait(edges, told, 4, 0);
    if (connect(a, (void *)&here, sizeof here) != 0)
        IS(errno, EINPROGRESS);
    errno = 0;
    IS(fcntl(a, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    SOON(a, POLLOUT);
    IS((getsockopt(a, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}), error), 0);
    edge(edges, EPOLLOUT);
    IS(epoll_wait(level, told, 4, 10000), 1);
    IS(told[0].data.u64, 9);
    int b = accepted();
    IS(epoll_wait(level, told, 4, 0), 0);
    char got[8];
    for (int turn = 0; turn < 100; turn++) {
        IS(write(b, "12", 2), 2);
        edge(edges, EPOLLIN);
        IS(epoll_wait(level, told, 4, 10000), 1);
        IS(told[0].data.u64, 8);
        IS(read(a, got, 1), 1);
        /* More makes an edge, though something is there. */
        while (epoll_wait(edges, told, 4, 0) > 0) {
        }
        IS(write(b, "3", 1), 1);
        edge(edges, EPOLLIN);
        IS(epoll_wait(level, told, 4, 0), 1);
        IS(read(a, got, 8), 2);
        while (epoll_wait(edges, told, 4, 0) > 0) {
        }
        IS(epoll_wait(level, told, 4, 0), 0);
    }
    IS(close(b), 0);
    edge(edges, EPOLLRDHUP);
    IS(close(a), 0);
    IS(epoll_wait(level, told, 4, 0), 0);
}

/* Nobody listens there. */
static void refused(void) {
    listens();
    IS(close(listener), 0);
    int a = tcp(0);
    FAILS(connect(a, (void *)&here, sizeof here), ECONNREFUSED);
    int b = tcp(SOCK_NONBLOCK), error = 0;
    FAILS(connect(b, (void *)&here, sizeof here), EINPROGRESS);
    errno = 0;
    SOON(b, POLLOUT);
    IS((getsockopt(b, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}), error), ECONNREFUSED);
    IS((getsockopt(b, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}), error), 0);
    /* A socket whose connect has failed may connect once more. */
    listens();
    IS(connect(a, (void *)&here, sizeof here), 0);
    /* What nobody has accepted ends with the listener. */
    char octet;
    SOON(listener, POLLIN);
    IS(close(listener), 0);
    FAILS(read(a, &octet, 1), ECONNRESET);
}

/* Those beyond the queue of a listener wait until there is room. TCP has one more than was asked
 * for. */
static void crowded(void) {
    listens();
    IS(listen(listener, 1), 0);
    connected();
    SOON(listener, POLLIN);
    int beyond[2];
    for (int at = 0; at < 2; at++) {
        beyond[at] = tcp(SOCK_NONBLOCK);
        if (connect(beyond[at], (void *)&here, sizeof here) != 0)
            IS(errno, EINPROGRESS);
        errno = 0;
    }
    IS(polled(beyond[1], POLLOUT, 50), 0);
    accepted();
    accepted();
    SOON(beyond[1], POLLOUT);
}

enum { BULK = 20 << 20 };

static void *pours(void *to) {
    char octets[5000];
    for (long at = 0, count; at < BULK; at += count) {
        for (size_t n = 0; n < sizeof octets; n++)
            octets[n] = (at + n) * 2654435761u >> 13;
        count = write(*(int *)to, octets, BULK - at < (long)sizeof octets ? BULK - at : sizeof octets);
        if (count < 0 && errno == EAGAIN) {
            errno = 0;
            SOON(*(int *)to, POLLOUT);
            count = 0;
        }
        IS(count >= 0, 1);
    }
    IS(shutdown(*(int *)to, SHUT_WR), 0);
    return NULL;
}

/* Both directions at once, with a sender that waits for room and one that sleeps in its calls. */
static void bulk(void) {
    listens();
    int ends[2] = {connected(), accepted()};
    pthread_t threads[2];
    IS(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    for (int n = 0; n < 2; n++)
        IS(pthread_create(&threads[n], NULL, pours, &ends[n]), 0);
    long at[2] = {0, 0};
    for (int open = 2; open > 0;) {
        fd_set reads;
        FD_ZERO(&reads);
        for (int n = 0; n < 2; n++)
            if (at[n] >= 0)
                FD_SET(ends[n], &reads);
        IS(select(FD_SETSIZE, &reads, NULL, NULL, &(struct timeval){10, 0}) > 0, 1);
        for (int n = 0; n < 2; n++) {
            static unsigned char got[70000];
            if (!FD_ISSET(ends[n], &reads))
                continue;
            long count = recv(ends[n], got, sizeof got, MSG_DONTWAIT);
            if (count < 0 && errno == EAGAIN) {
                errno = 0;
                continue;
            }
            IS(count >= 0, 1);
            for (long n2 = 0; n2 < count; n2++)
                if (got[n2] != (unsigned char)((at[n] + n2) * 2654435761u >> 13))
                    IS(at[n] + n2, -1);
            at[n] += count;
            if (count == 0) {
                IS(at[n], BULK);
                at[n] = -1;
                open--;
            }
        }
    }
    for (int n = 0; n < 2; n++)
        IS(pthread_join(threads[n], NULL), 0);
}

/* A sender that the peer does not read from is told so by a wait, and when there is room. */
static void full(void) {
    listens();
    int a = connected(), b = accepted();
    static char octets[1 << 16];
    long sent = 0, count, got = 0;
    IS(fcntl(a, F_SETFL, O_NONBLOCK), 0);
    do {
        while ((count = write(a, octets, sizeof octets)) > 0)
            sent += count;
        IS(errno, EAGAIN);
        errno = 0;
    } while (polled(a, POLLOUT, 50) != 0);
    for (; got < sent; got += count) {
        count = read(b, octets, sizeof octets);
        IS(count > 0, 1);
    }
    SOON(a, POLLOUT);
}

/* What a child of `fork` inherits of a device is of no use there, and the parent goes on. */
static void fork_beside(void (*of_child)(void)) {
    listens();
    int a = connected(), b = accepted(), status = 0;
    char got[4];
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        FAILS(read(b, got, 4), ECONNABORTED);
        FAILS(send(a, "x", 1, 0), ECONNABORTED);
        FAILS(accept(listener, NULL, NULL), EINVAL);
        close(a);
        close(b);
        close(listener);
        of_child();
        exit(0);
    }
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    IS(write(a, "on", 2), 2);
    IS(read(b, got, 4), 2);
}

static void has_its_own(void) {
    char got[4];
    listens();
    int a = connected(), b = accepted();
    IS(write(a, "own", 3), 3);
    IS(read(b, got, 4), 3);
}

static void forked(void) {
    fork_beside(has_its_own);
}

static void has_none(void) {
    FAILS(connect(tcp(0), (void *)&here, sizeof here), ENODEV);
    FAILS(listen(tcp(0), 5), ENODEV);
}

/* A device of the host is its opener's alone. */
static void bereft(void) {
    fork_beside(has_none);
}

static pthread_barrier_t ready;

static void *sleeps(void *socket) {
    char octet;
    pthread_barrier_wait(&ready);
    recv((int)(intptr_t)socket, &octet, 1, 0);
    return NULL;
}

/* An exit while threads sleep in calls waits for all of them together, and not for each: that
 * would be two seconds each. */
static void asleep(void) {
    enum { THREADS = 20 };
    pthread_t thread;
    listens();
    pthread_barrier_init(&ready, NULL, THREADS + 1);
    for (int at = 0; at < THREADS; at++) {
        int a = connected();
        accepted();
        IS(pthread_create(&thread, NULL, sleeps, (void *)(intptr_t)a), 0);
    }
    pthread_barrier_wait(&ready);
    /* One that is not in its call yet is not waited for, which is well, too. */
    usleep(500000);
    alarm(30);
}

static void reads_all(int from) {
    static char got[1 << 16];
    long all = 0, count;
    while ((count = read(from, got, sizeof got)) > 0)
        all += count;
    printf("%ld\n", all);
    fflush(stdout);
}

/* leaves PORT: sends much, and exits at once. takes PORT: prints how much comes. */
static void leaves(void) {
    static char octets[1 << 20];
    int a = connected(), error = -1;
    IS(getsockopt(a, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}), 0);
    IS(error, 0);
    IS(send(a, octets, sizeof octets, 0), sizeof octets);
    exit(0);
}

/* lacks PORT: the device cannot connect, which is tried twice. */
static void lacks(void) {
    for (int turn = 0; turn < 2; turn++)
        FAILS(connect(tcp(0), (void *)&here, sizeof here), ENOMEM);
}

/* silent PORT: a host that does not answer, and a connect that has a time limit. */
static void silent(void) {
    struct timeval moment = {.tv_usec = 100000};
    int a = tcp(0);
    IS(setsockopt(a, SOL_SOCKET, SO_SNDTIMEO, &moment, sizeof moment), 0);
    FAILS(connect(a, (void *)&here, sizeof here), EINPROGRESS);
    FAILS(connect(a, (void *)&here, sizeof here), EALREADY);
}

/* A listener whose device is taken away, which the played one's library does. */
static void removed(void) {
    listens();
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
    void (*take_away)(int) = dlsym(library, "fake_remove");
    take_away(0);
    SOON(listener, POLLIN);
    FAILS(accept(listener, NULL, NULL), EINVAL);
}

/* Neither at an address of another device, nor where somebody listens, which is tried twice. */
static void deaf(void) {
    struct sockaddr_in other = {AF_INET, 0, {inet_addr("127.101.0.1")}};
    int elsewhere = tcp(0);
    listens();
    IS(bind(elsewhere, (void *)&other, sizeof other), 0);
    FAILS(listen(elsewhere, 5), EADDRNOTAVAIL);
    for (int turn = 0; turn < 2; turn++) {
        int beside = tcp(0), one = 1;
        IS(setsockopt(beside, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
        IS(bind(beside, (void *)&here, sizeof here), 0);
        FAILS(listen(beside, 5), EADDRINUSE);
    }
}

int main(int count, char **words) {
    struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"echo", echo}, {"names", names}, {"file", file}, {"sets", sets}, {"refused", refused},
                 {"bulk", bulk}, {"full", full},   {"forked", forked}, {"bereft", bereft},
                 {"asleep", asleep}, {"deaf", deaf}, {"crowded", crowded}, {"removed", removed}};
    /* An emulated guest takes its time. */
    alarm(300);
    if (count == 3) {
        const char *at = getenv("HERE");
        here = (struct sockaddr_in){AF_INET, htons(atoi(words[2])), {inet_addr(at ? at : "127.0.0.1")}};
        strcmp(words[1], "leaves") == 0 ? leaves() : strcmp(words[1], "lacks") == 0 ? lacks() : silent();
        return 0;
    }
    if (count == 2 && strcmp(words[1], "takes") == 0) {
        listens();
        printf("%d\n", ntohs(here.sin_port));
        fflush(stdout);

        reads_all(accepted());
        return 0;
    }
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++)
        if (count == 2 && strcmp(words[1], cases[at].name) == 0) {
            cases[at].run();
            puts("all is so");
            return 0;
        }
    return 2;
}
