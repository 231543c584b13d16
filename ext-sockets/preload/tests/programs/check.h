/* A program of statements that are so, or it ends with the line of the one that is not. */
#ifndef CHECK_H
#define CHECK_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Names the place of a statement: the file, unless the program defines something better. */
#ifndef WHERE
#define WHERE __FILE_NAME__
#endif

static inline int is_so(const char *where, int line, const char *what, long got, long wanted) {
    if (got == wanted)
        return 1;
    printf("%s, line %d: %s is %ld, not %ld (errno %s)\n", where, line, what, got, wanted, strerror(errno));
    fflush(stdout);
    _exit(1);
}
/* A call that succeeds leaves errno as it was. */
#define IS(what, wanted)                                                                                               \
    ({                                                                                                                 \
        int before_ = errno;                                                                                           \
        long got_ = (long)(what);                                                                                      \
        is_so(WHERE, __LINE__, #what, got_, (long)(wanted));                                                           \
        is_so(WHERE, __LINE__, "errno behind " #what, got_ == -1 ? before_ : errno, before_);                          \
    })
/* A call that fails with this errno. */
#define FAILS(what, with) (IS(what, -1), IS(errno, with))

/* Has a socket listen on loopback, or at the address in HERE, and says where. */
static inline void listen_somewhere(int fd, struct sockaddr_in *addr) {
    socklen_t len = sizeof *addr;
    memset(addr, 0, sizeof *addr);
    addr->sin_family = AF_INET;
    const char *at = getenv("HERE");
    addr->sin_addr.s_addr = at ? inet_addr(at) : htonl(INADDR_LOOPBACK);
    IS(bind(fd, (void *)addr, len), 0);
    IS(listen(fd, 5), 0);
    IS(getsockname(fd, (void *)addr, &len), 0);
}

#endif
