/* The ends of a connection, whatever state it is in: how calls and poll answer at both ends. Prints
 * what they answered, which a run over plain TCP prints, too.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "need.h"

static struct sockaddr_in here;
static int listener;

static void pair(int ends[2]) {
    char octet;
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    NEED(connect(ends[0], (void *)&here, sizeof here) == 0);
    ends[1] = accept(listener, NULL, NULL);
    NEED(ends[1] >= 0);
    /* Both may send from here on. */
    NEED(write(ends[0], "a", 1) == 1 && read(ends[1], &octet, 1) == 1);
    NEED(write(ends[1], "b", 1) == 1 && read(ends[0], &octet, 1) == 1);
}

static void tell(const char *call, long result) {
    printf("  %s %ld%s%s\n", call, result, result < 0 ? " " : "", result < 0 ? strerrorname_np(errno) : "");
}

/* Waits until an end sees something new, and tells what: only once nothing more can come are the
 * events the same each time. */
static void look(int fd) {
    struct pollfd entry = {fd, POLLIN | POLLRDHUP, 0};
    NEED(poll(&entry, 1, 20000) == 1);
    usleep(50000);
    entry.revents = 0;
    NEED(poll(&entry, 1, 0) == 1);
    printf("  events %#x\n", entry.revents);
}

static void drain(int fd) {
    static char octets[100000];
    long all = 0, count;
    while ((count = read(fd, octets, sizeof octets)) > 0)
        all += count;
    int error = errno;
    tell("octets", all);
    errno = error;
    tell("end", count);
    tell("again", read(fd, octets, sizeof octets));
}

static void closes(int how, int fd) {
    struct linger now = {1, 0};
    switch (how) {
    case 0: NEED(close(fd) == 0); break;
    case 1: NEED(shutdown(fd, SHUT_WR) == 0); break;
    case 2: NEED(shutdown(fd, SHUT_RD) == 0); break;
    case 3: NEED(shutdown(fd, SHUT_RDWR) == 0); break;
    default:
        NEED(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
        NEED(close(fd) == 0);
    }
}

int main(void) {
    static const char *ways[] = {"close", "shutdown WR", "shutdown RD", "shutdown RDWR", "reset"};
    static const char *states[] = {"idle", "unread", "queued"};
    static char much[1 << 20];
    socklen_t len = sizeof here;
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    NEED(bind(listener, (void *)&here, sizeof here) == 0 && listen(listener, 9) == 0);
    NEED(getsockname(listener, (void *)&here, &len) == 0);
    for (int side = 0; side < 2; side++)
        for (int how = 0; how < 5; how++)
            for (int state = 0; state < 3; state++) {
                int ends[2];
                pair(ends);
                int one = ends[side], other = ends[!side];
                printf("%s, %s, %s\n", side ? "server" : "client", ways[how], states[state]);
                if (state == 1) {
                    NEED(write(other, "unread", 6) == 6);
                    struct pollfd entry = {one, POLLIN, 0};
                    NEED(poll(&entry, 1, 20000) == 1);
                }
                if (state == 2)
                    NEED(write(one, much, sizeof much) == sizeof much);
                closes(how, one);
                /* A reset takes along what is under way: how much is not told. */
                int is_reset = how == 4 || (how == 0 && state == 1);
                if (how != 2 && !(is_reset && state == 2)) {
                    look(other);
                    drain(other);
                    tell("send", send(other, "x", 1, MSG_NOSIGNAL));
                }
                if (how != 0 && how != 4) {
                    if (how == 2) {
                        look(one);
                        drain(one);
                        tell("send", send(one, "y", 1, MSG_NOSIGNAL));
                    }
                    if (how == 1) {
                        look(one);
                        errno = 0;
                        tell("send", send(one, "y", 1, MSG_NOSIGNAL));
                        NEED(close(other) == 0);
                        look(one);
                        drain(one);
                        other = -1;
                    }
                    close(one);
                }
                close(other);
            }
    return 0;
}
