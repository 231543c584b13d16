/* Peers, most of them plain, that leave as soon as there is a connection: plain_peer WAY. Over
 * plain TCP and framed the program is told the same, but for what the peer has left unread. */
#define _GNU_SOURCE
#include <poll.h>
#include <sys/resource.h>
#include <sys/time.h>

#include <rddp/ddp.h>

#include "check.h"

static struct sockaddr_in here;
static int listener;

/* A socket that stays plain, as the peer's. Without the library all do. */
static int plain(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), off = 0, before = errno;
    setsockopt(fd, SOL_DDP, DDPMODE, &off, sizeof off);
    errno = before;
    return fd;
}

static void waits(int fd, int events) {
    struct pollfd entry = {fd, events, 0};
    IS(poll(&entry, 1, 20000), 1);
    IS(entry.revents & events, events);
}

static int error_of(int fd) {
    int error = -1;
    socklen_t len = sizeof error;
    IS(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len), 0);
    return error;
}

/* The server, in a process of its own, accepts and closes when it is told to: a call of this one
 * would send what waits to be sent. */
static int orders[2], reports[2];

static void serve(void) {
    char octet;
    while (read(orders[0], &octet, 1) == 1) {
        close(accept(listener, NULL, NULL));
        IS(write(reports[1], &octet, 1), 1);
    }
    _exit(0);
}

static void leaves(void) {
    char octet = 0;
    IS(write(orders[1], &octet, 1), 1);
    IS(read(reports[0], &octet, 1), 1);
}

static void sees_end(int fd) {
    char octet;
    IS(read(fd, &octet, 1), 0);
    IS(read(fd, &octet, 1), 0);
    IS(error_of(fd), 0);
    IS(close(fd), 0);
}

/* The server has left when the client, which has not waited, looks. */
static void before_the_client(void) {
    for (int at = 0; at < 4; at++) {
        struct pollfd entry;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        FAILS(connect(fd, (void *)&here, sizeof here), EINPROGRESS);
        leaves();
        if (at & 1)
            waits(fd, POLLOUT);
        IS(error_of(fd), 0);
        entry = (struct pollfd){fd, POLLIN | POLLOUT | POLLRDHUP, 0};
        if (at & 2) {
            IS(poll(&entry, 1, 20000), 1);
            IS(entry.revents & (POLLERR | POLLIN), POLLIN);
        }
        sees_end(fd);
    }
}

/* The server leaves the client's octets unread, if there are any: a Request is some. */
static void behind_the_client(void) {
    struct timeval span = {20, 0};
    for (int at = 0; at < 3; at++) {
        char octet;
        int fd = socket(AF_INET, SOCK_STREAM | (at == 2 ? SOCK_NONBLOCK : 0), 0);
        if (at == 1)
            IS(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &span, sizeof span), 0);
        if (at < 2) {
            IS(connect(fd, (void *)&here, sizeof here), 0);
        } else {
            FAILS(connect(fd, (void *)&here, sizeof here), EINPROGRESS);
            waits(fd, POLLOUT);
        }
        leaves();
        waits(fd, POLLIN);
        /* It was connected. That the server has left since is for the read to tell. */
        if (at == 2)
            IS(error_of(fd), 0);
        if (getenv("RDDP_FAMILY"))
            FAILS(read(fd, &octet, 1), ECONNRESET);
        sees_end(fd);
    }
}

/* Octets of the client have been taken, and are lost. */
static void behind_octets(void) {
    char octet = 'x';
    for (int at = 0; at < 2; at++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        IS(connect(fd, (void *)&here, sizeof here), 0);
        IS(write(fd, &octet, 1), 1);
        leaves();
        FAILS(read(fd, &octet, 1), ECONNRESET);
        sees_end(fd);
    }
}

/* A client that connects and leaves, as one does that asks whether the port is open. */
static void by_the_client(void) {
    int ends = socket(AF_INET, SOCK_STREAM, 0), client = plain();
    struct sockaddr_in there;
    listen_somewhere(ends, &there);
    IS(connect(client, (void *)&there, sizeof there), 0);
    IS(close(client), 0);
    int fd = accept(ends, NULL, NULL);
    waits(fd, POLLIN);
    sees_end(fd);
}

/* A server with the same mode closes behind the startup, and has no descriptor left to stay for the
 * client's next octets: they are answered with a reset. */
static void behind_the_startup(void) {
    struct rlimit few;
    int ends = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in there;
    struct pollfd entry = {fd, POLLOUT, 0};
    listen_somewhere(ends, &there);
    FAILS(connect(fd, (void *)&there, sizeof there), EINPROGRESS);
    poll(&entry, 1, 0);
    int gone = accept(ends, NULL, NULL);
    IS(getrlimit(RLIMIT_NOFILE, &few), 0);
    few.rlim_cur = 3;
    IS(setrlimit(RLIMIT_NOFILE, &few), 0);
    IS(close(gone), 0);
    IS(error_of(fd), 0);
    waits(fd, POLLIN);
    sees_end(fd);
}

static const struct {
    const char *name;
    void (*run)(void);
} WAYS[] = {
    {"before_the_client", before_the_client},
    {"behind_the_client", behind_the_client},
    {"behind_octets", behind_octets},
    {"by_the_client", by_the_client},
    {"behind_the_startup", behind_the_startup},
};

int main(int count, char **words) {
    alarm(60);
    listener = plain();
    listen_somewhere(listener, &here);
    IS(pipe(orders), 0), IS(pipe(reports), 0);
    if (fork() == 0)
        close(orders[1]), serve();
    for (size_t at = 0; at < sizeof WAYS / sizeof *WAYS; at++)
        if (strcmp(words[1], WAYS[at].name) == 0)
            WAYS[at].run(), puts("as it should be");
    return 0;
}
