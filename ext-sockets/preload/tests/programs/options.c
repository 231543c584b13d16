/* Tests the answers of socket options, on a listener, before connect, and on both ends of a
 * connection: the same lines in DDPMODE as without. */
#define _GNU_SOURCE
#include <linux/tcp.h>
#include <poll.h>

#include "check.h"

#ifndef SO_ORIGINAL_DST
#define SO_ORIGINAL_DST 80
#endif
#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif
#ifndef IPV6_MINHOPCOUNT
#define IPV6_MINHOPCOUNT 73
#endif

static const char *where;

/* Prints a number, or the count of octets of a value that is not a number. */
static void show(int fd, int level, int name, const char *said) {
    union {
        int number;
        char octets[1024];
    } value = {0};
    socklen_t len = sizeof value;
    int got = getsockopt(fd, level, name, &value, &len);
    if (got != 0)
        printf("%s: get %s: %s\n", where, said, strerrorname_np(errno));
    else if (len == sizeof value.number)
        printf("%s: get %s: %d\n", where, said, value.number);
    else
        printf("%s: get %s: %d octets\n", where, said, (int)len);
}

static int set(int fd, int level, int name, const char *said, const void *value, socklen_t len) {
    int done = setsockopt(fd, level, name, value, len);
    printf("%s: set %s: %s\n", where, said, done == 0 ? "done" : strerrorname_np(errno));
    return done;
}

static void set_and_show(int fd, int level, int name, const char *said, int value) {
    set(fd, level, name, said, &value, sizeof value);
    show(fd, level, name, said);
}

#define NUMBER(fd, level, name, value) set_and_show(fd, level, name, #name, value)
/* Without the privilege to set it, the kernel itself changes the value that is read. */
static void force(int fd, int name, int read_by) {
    int size = 300000;
    if (set(fd, SOL_SOCKET, name, "a buffer by force", &size, sizeof size) == 0)
        show(fd, SOL_SOCKET, read_by, "the buffer");
}
#define SHOW(fd, level, name) show(fd, level, name, #name)

static void of_any(int fd) {
    NUMBER(fd, IPPROTO_IP, IP_MINTTL, 10);
    NUMBER(fd, IPPROTO_IP, IP_MINTTL, 300);
    NUMBER(fd, IPPROTO_IP, IP_RECVERR, 1);
    SHOW(fd, IPPROTO_IP, IP_OPTIONS);
    SHOW(fd, IPPROTO_IP, SO_ORIGINAL_DST);
    NUMBER(fd, SOL_SOCKET, SO_BINDTOIFINDEX, 0);
    NUMBER(fd, SOL_SOCKET, SO_BINDTOIFINDEX, -1);
    SHOW(fd, SOL_SOCKET, SO_INCOMING_NAPI_ID);
    force(fd, SO_RCVBUFFORCE, SO_RCVBUF);
    force(fd, SO_SNDBUFFORCE, SO_SNDBUF);
    SHOW(fd, IPPROTO_TCP, TCP_CC_INFO);
    NUMBER(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
    NUMBER(fd, IPPROTO_TCP, TCP_THIN_DUPACK, 1);
    NUMBER(fd, IPPROTO_TCP, TCP_SAVE_SYN, 1);
}

static void of_any6(int fd) {
    struct in6_pktinfo nowhere = {0}, there = {.ipi6_ifindex = 99999};
    set(fd, IPPROTO_IPV6, IPV6_PKTINFO, "IPV6_PKTINFO", &nowhere, sizeof nowhere);
    set(fd, IPPROTO_IPV6, IPV6_PKTINFO, "IPV6_PKTINFO", &there, sizeof there);
    SHOW(fd, IPPROTO_IPV6, IPV6_PKTINFO);
    NUMBER(fd, IPPROTO_IPV6, IPV6_RECVERR, 1);
    NUMBER(fd, IPPROTO_IPV6, IPV6_MINHOPCOUNT, 10);
    SHOW(fd, IPPROTO_IPV6, SO_ORIGINAL_DST);
}

static void no_errors_queued(int fd) {
    char octets[200];
    struct iovec piece = {octets, sizeof octets};
    struct msghdr msg = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = octets, .msg_controllen = sizeof octets};
    struct mmsghdr many = {.msg_hdr = msg};
    FAILS(recvmsg(fd, &msg, MSG_ERRQUEUE), EAGAIN);
    FAILS(recv(fd, octets, 1, MSG_ERRQUEUE), EAGAIN);
    FAILS(recvfrom(fd, octets, 1, MSG_ERRQUEUE, NULL, NULL), EAGAIN);
    FAILS(recvmmsg(fd, &many, 1, MSG_ERRQUEUE, NULL), EAGAIN);
}

static void move(int from, int to) {
    static char sent[100000], got[sizeof sent];
    memset(sent, from, sizeof sent);
    for (int turn = 0; turn < 20; turn++) {
        IS(send(from, sent, sizeof sent, MSG_NOSIGNAL), sizeof sent);
        IS(recv(to, got, sizeof got, MSG_WAITALL), sizeof got);
        IS(memcmp(sent, got, sizeof sent), 0);
    }
}

static void connection(int domain, void *addr, socklen_t len) {
    int listener = socket(domain, SOCK_STREAM, 0), client = socket(domain, SOCK_STREAM, 0), on = 1;
    IS(bind(listener, addr, len), 0);
    IS(setsockopt(listener, IPPROTO_TCP, TCP_SAVE_SYN, &on, sizeof on), 0);
    IS(listen(listener, 5), 0);
    IS(getsockname(listener, addr, &len), 0);
    where = "listener", of_any(listener);
    where = "before", of_any(client);
    if (domain == AF_INET6) {
        where = "listener", of_any6(listener);
        where = "before", of_any6(client);
    }
    IS(connect(client, addr, len), 0);
    int server = accept(listener, NULL, NULL);
    move(client, server);
    where = "client", of_any(client), no_errors_queued(client);
    where = "server", of_any(server), no_errors_queued(server);
    if (domain == AF_INET6) {
        where = "client", of_any6(client);
        where = "server", of_any6(server);
    }
    SHOW(server, IPPROTO_TCP, TCP_SAVED_SYN);
    SHOW(server, IPPROTO_TCP, TCP_SAVED_SYN);
    move(client, server);
    move(server, client);
    IS(close(client), 0);
    char octet;
    IS(read(server, &octet, 1), 0);
}

int main(void) {
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    connection(AF_INET, &four, sizeof four);
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    if (fd >= 0 && bind(fd, (void *)&six, sizeof six) == 0)
        connection(AF_INET6, &six, sizeof six);
    return 0;
}
