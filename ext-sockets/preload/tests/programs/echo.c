/* Echoes on all connections, in one loop: prints its port, then at the end of its input
 * what it has seen. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROOM = 70000, MOST = 20000 };

static struct connection {
    int fd;
    size_t from, to;
    unsigned char *octets;
} connections[MOST];

static int epoll;
static unsigned errors[200], ends, accepted;

static void fatal(const char *what) {
    perror(what);
    exit(1);
}

static void watch(int command, struct connection *one) {
    struct epoll_event event = {.events = one->from < one->to ? EPOLLOUT : EPOLLIN, .data.fd = one->fd};
    if (epoll_ctl(epoll, command, one->fd, &event) != 0)
        fatal("epoll_ctl");
}

static void is_over(struct connection *one, int error) {
    if (error)
        errors[error]++;
    else
        ends++;
    close(one->fd);
    free(one->octets);
    one->octets = NULL;
}

static void serve(struct connection *one) {
    if (one->from == one->to) {
        if (!one->octets)
            one->octets = malloc(ROOM);
        ssize_t got = read(one->fd, one->octets, ROOM);
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0)
            return is_over(one, got < 0 ? errno : 0);
        one->from = 0;
        one->to = got;
    }
    ssize_t took = send(one->fd, one->octets + one->from, one->to - one->from, MSG_NOSIGNAL);
    if (took < 0 && errno != EAGAIN)
        return is_over(one, errno);
    one->from += took > 0 ? took : 0;
    if (one->from == one->to) {
        free(one->octets);
        one->octets = NULL;
    }
    watch(EPOLL_CTL_MOD, one);
}

static void accept_one(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    if (fd < 0 || fd >= MOST)
        return;
    accepted++;
    connections[fd] = (struct connection){.fd = fd};
    watch(EPOLL_CTL_ADD, &connections[fd]);
}

static void report(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    for (int i = 0; i < 200; i++)
        if (errors[i])
            printf("%s: %u\n", strerrorname_np(i), errors[i]);
    printf("accepted: %u\nends: %u\nmemory: %ld\nprocessor: %ld\n", accepted, ends, used.ru_maxrss,
           (long)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000);
    exit(0);
}

int main(void) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    struct rlimit most = {MOST, MOST};
    setrlimit(RLIMIT_NOFILE, &most);
    epoll = epoll_create1(0);
    if (bind(listener, (void *)&addr, len) != 0 || listen(listener, 4096) != 0)
        fatal("listen");
    getsockname(listener, (void *)&addr, &len);
    struct epoll_event of_listener = {.events = EPOLLIN, .data.fd = listener}, of_input = {.events = EPOLLIN, .data.fd = 0};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &of_listener);
    epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &of_input);
    printf("%d\n", ntohs(addr.sin_port));
    fflush(stdout);
    for (;;) {
        struct epoll_event events[64];
        int count = epoll_wait(epoll, events, 64, -1);
        if (count < 0)
            fatal("epoll_wait");
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == 0)
                report();
            if (fd == listener)
                accept_one(listener);
            else
                serve(&connections[fd]);
        }
    }
}
