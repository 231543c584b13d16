/* Programs of several processes: statements that are so, or the process ends, and a place on
 * loopback. */
#ifndef NEED_H
#define NEED_H

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static inline void need(int line, const char *what, int is_so) {
    if (!is_so) {
        fprintf(stderr, "line %d: not so: %s (errno %s)\n", line, what, strerror(errno));
        _exit(1);
    }
}
#define NEED(what) need(__LINE__, #what, (what))

/* The program itself, for `exec`. */
static const char *self;

/* The address that its sockets listen on. */
static struct sockaddr_in here;

/* A socket at a free port. */
static inline int bound(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof here;
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    NEED(bind(fd, (void *)&here, len) == 0);
    NEED(getsockname(fd, (void *)&here, &len) == 0);
    return fd;
}

#endif
