/* A program that waits for edges, and believes two things that TCP keeps to: when a read gives less
 * than there was room for, or more than FIONREAD had told of, an edge for what is left is still to
 * come. nginx reads like this.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define NEED(what)                                                                                                     \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "line %d: not so: %s (%s)\n", __LINE__, #what, strerror(errno));                           \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define SIZE (16 << 20)
#define ROOM 40960
static char sent[SIZE], got[SIZE + ROOM];
static struct sockaddr_in here;

static void *send_all(void *nothing) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    NEED(connect(fd, (void *)&here, sizeof here) == 0);
    /* No two writes alike: FPDUs end anywhere. */
    for (size_t at = 0, count = 1; at < SIZE; count = count * 31 % 100003) {
        ssize_t done = write(fd, sent + at, count < SIZE - at ? count : SIZE - at);
        NEED(done > 0);
        at += done;
    }
    NEED(close(fd) == 0);
    return nothing;
}

/* Reads until an edge is to come. */
static size_t read_on(int fd, char *to) {
    size_t all = 0;
    for (int available = -1;;) {
        ssize_t count = read(fd, to + all, ROOM);
        if (count < 0) {
            NEED(errno == EAGAIN);
            return all;
        }
        all += count;
        if (count < ROOM) {
            return all;
        }
        if (available < 0) {
            NEED(ioctl(fd, FIONREAD, &available) == 0);
        } else if ((available -= count) < 0) {
            return all;
        }
    }
}

int main(void) {
    socklen_t len = sizeof here;
    int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    NEED(bind(listener, (void *)&here, len) == 0 && listen(listener, 1) == 0);
    NEED(getsockname(listener, (void *)&here, &len) == 0);
    for (size_t at = 0; at < SIZE; at++) {
        sent[at] = at * 2654435761u >> 24;
    }
    pthread_t sender;
    NEED(pthread_create(&sender, NULL, send_all, NULL) == 0);
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    NEED(fd >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    size_t all = 0;
    while (all < SIZE) {
        NEED(epoll_wait(epoll, &event, 1, 20000) == 1);
        all += read_on(fd, got + all);
    }
    NEED(all == SIZE && memcmp(sent, got, SIZE) == 0);
    pthread_join(sender, NULL);
    puts("as it should be");
}
