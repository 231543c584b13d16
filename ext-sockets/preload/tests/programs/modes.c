/* Tests the answers of DDPMODE options, line by line: "name: value as it should be", or the program
 * ends with the line that is not so. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rddp/ddp.h>

#include "check.h"

static int set(int fd, int option, int value) { return setsockopt(fd, SOL_DDP, option, &value, sizeof value); }

static int get(int fd, int option) {
    int value = -1;
    socklen_t len = sizeof value;
    return getsockopt(fd, SOL_DDP, option, &value, &len) == 0 ? value : -1;
}

static int tcp(void) { return socket(AF_INET, SOCK_STREAM, 0); }

static int listening(struct sockaddr_in *addr) {
    int fd = tcp();
    listen_somewhere(fd, addr);
    return fd;
}

static void connection(int ends[2]) {
    struct sockaddr_in addr;
    int listener = listening(&addr);
    ends[0] = tcp();
    IS(connect(ends[0], (void *)&addr, sizeof addr), 0);
    ends[1] = accept(listener, NULL, NULL);
    IS(ends[1] >= 0, 1);
    IS(close(listener), 0);
}

static void options(void) {
    int fd = tcp();
    char octets[600] = "private";
    socklen_t len = sizeof octets;
    IS(get(fd, DDPMODE), DDP_MODE_OFF);
    IS(get(fd, DDP_CRC), 1);
    IS(get(fd, DDP_LARGEST_SEND), 65536);
    IS(set(fd, DDP_CRC, 0), 0);
    IS(get(fd, DDP_CRC), 0);
    FAILS(set(fd, DDP_CRC, 2), EINVAL);
    FAILS(setsockopt(fd, SOL_DDP, DDP_CRC, octets, 3), EINVAL);
    FAILS(setsockopt(fd, SOL_DDP, DDP_CRC, NULL, 4), EFAULT);
    FAILS(set(fd, 99, 1), ENOPROTOOPT);
    FAILS(set(fd, DDP_MODE_INFO, 1), ENOPROTOOPT);
    IS(setsockopt(fd, SOL_DDP, DDP_PRIVATE_DATA, octets, 7), 0);
    FAILS(setsockopt(fd, SOL_DDP, DDP_PRIVATE_DATA, octets, 509), EINVAL);
    memset(octets, 0, sizeof octets);
    IS(getsockopt(fd, SOL_DDP, DDP_PRIVATE_DATA, octets, &len), 0);
    IS(len, 7);
    IS(memcmp(octets, "private", 7), 0);
    len = 2;
    IS(getsockopt(fd, SOL_DDP, DDP_PRIVATE_DATA, octets, &len), 0);
    IS(len, 2);
    FAILS(getsockopt(fd, SOL_DDP, DDP_CRC, octets, NULL), EFAULT);
    struct ddp_mode_info info;
    len = sizeof info;
    IS(getsockopt(fd, SOL_DDP, DDP_MODE_INFO, &info, &len), 0);
    IS(len, sizeof info);
    IS(info.mode, DDP_MODE_OFF);
    IS(close(fd), 0);
    fd = tcp();
    IS(get(fd, DDP_CRC), 1); /* a new socket under the same number */
    IS(close(fd), 0);
}

static void which_sockets(void) {
    int udp = socket(AF_INET, SOCK_DGRAM, 0), local = socket(AF_UNIX, SOCK_STREAM, 0), six = socket(AF_INET6, SOCK_STREAM, 0);
    FAILS(set(udp, DDPMODE, 1), EOPNOTSUPP);
    FAILS(get(udp, DDPMODE), EOPNOTSUPP);
    FAILS(set(local, DDPMODE, 1), EOPNOTSUPP);
    FAILS(set(0, DDPMODE, 1), ENOTSOCK);
    FAILS(set(-1, DDPMODE, 1), EBADF);
    FAILS(set(999, DDPMODE, 1), EBADF);
    if (six >= 0)
        IS(set(six, DDPMODE, 1), 0);
    int fd = tcp();
    IS(set(fd, DDPMODE, 1), 0);
    IS(set(fd, DDPMODE, 1), 0);
    IS(get(fd, DDPMODE), DDP_MODE_ASKED);
    IS(set(fd, DDPMODE, 0), 0);
    IS(get(fd, DDPMODE), DDP_MODE_OFF);
    FAILS(set(fd, DDPMODE, 4), EINVAL);
    IS(close_range(3, ~0U, 0), 0);
}

static void established(void) {
    int ends[2];
    connection(ends);
    FAILS(set(ends[0], DDPMODE, 1), EINVAL); /* no role */
    IS(set(ends[0], DDP_ROLE, DDP_ROLE_INITIATOR), 0);
    IS(write(ends[1], "x", 1), 1);
    struct pollfd one = {ends[0], POLLIN, 0};
    IS(poll(&one, 1, 10000), 1);
    FAILS(set(ends[0], DDPMODE, 1), EBUSY);
    char octet;
    IS(read(ends[0], &octet, 1), 1);
    IS(set(ends[0], DDPMODE, 1), 0);
    IS(get(ends[0], DDPMODE), DDP_MODE_STARTING);
    FAILS(set(ends[0], DDPMODE, 0), EINVAL);
    FAILS(set(ends[0], DDP_CRC, 0), EINVAL);
    IS(shutdown(ends[1], SHUT_WR), 0);
    IS(set(ends[1], DDP_ROLE, DDP_ROLE_RESPONDER), 0);
    close(ends[0]);
    close(ends[1]);
    int pair[2];
    connection(pair);
    IS(shutdown(pair[0], SHUT_WR), 0);
    IS(set(pair[0], DDP_ROLE, DDP_ROLE_RESPONDER), 0);
    FAILS(set(pair[0], DDPMODE, 1), ENOTCONN);
    IS(close_range(3, ~0U, 0), 0);
}

static void kernel_options(void) {
    int fd = tcp(), on = 1, value;
    socklen_t len = sizeof value;
    struct timeval time = {3, 5}, wrong = {0, 1000000};
    IS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time), 0);
    IS(set(fd, DDPMODE, 1), 0);
    FAILS(setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", 3), ENOPROTOOPT);
    FAILS(setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof on), ENOPROTOOPT);
    FAILS(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on), ENOPROTOOPT);
    FAILS(getsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN, &value, &len), ENOPROTOOPT);
    IS(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on), 0);
    IS(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
    len = sizeof value;
    IS(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &len), 0);
    IS(value, 1);
    IS(syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &value, &len), 0);
    IS(value, 1); /* by number as by name */
    time.tv_sec = 0;
    len = sizeof time;
    IS(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &len), 0);
    IS(time.tv_sec, 3); /* set before, and still so */
    FAILS(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wrong, sizeof wrong), EDOM);
    FAILS(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wrong, 3), EINVAL);
    FAILS(fcntl(fd, F_SETOWN, getpid()), EINVAL);
    FAILS(fcntl(fd, F_SETFL, O_ASYNC), EINVAL);
    FAILS(ioctl(fd, FIOASYNC, &on), EINVAL);
    IS(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    IS(close(fd), 0);
}

static void numbers(void) {
    int fd = tcp();
    IS(set(fd, DDP_IRD, 7), 0);
    int copies[] = {dup(fd), dup2(fd, 50), dup3(fd, 51, O_CLOEXEC), fcntl(fd, F_DUPFD, 60),
                    fcntl(fd, F_DUPFD_CLOEXEC, 60), syscall(SYS_dup, fd)};
    close(fd);
    for (unsigned i = 0; i < sizeof copies / sizeof *copies; i++)
        IS(get(copies[i], DDP_IRD), 7);
    IS(set(copies[2], DDP_IRD, 8), 0);
    IS(get(copies[0], DDP_IRD), 8);
    int plain = tcp();
    IS(dup2(plain, copies[0]), copies[0]);
    IS(get(copies[0], DDP_IRD), 32);
    IS(get(copies[1], DDP_IRD), 8);
    IS(dup2(copies[1], copies[1]), copies[1]);
    IS(get(copies[1], DDP_IRD), 8);
    /* A number that comes to mean another file by a call that the library does not see. */
    int hidden = tcp();
    IS(set(hidden, DDP_IRD, 7), 0);
    IS(fclose(fdopen(hidden, "r+")), 0);
    FILE *other = fopen("/dev/null", "r");
    IS(fileno(other), hidden);
    FAILS(get(hidden, DDP_IRD), ENOTSOCK);
    IS(fclose(other), 0);

    pid_t child = vfork();
    if (child == 0) {
        close_range(3, ~0U, 0);
        _exit(0);
    }
    IS(waitpid(child, NULL, 0), child);
    IS(get(copies[1], DDP_IRD), 8); /* what the child closed was its own */
    child = fork();
    if (child == 0)
        _exit(get(copies[1], DDP_IRD) == 8 && close(copies[1]) == 0 && get(copies[1], DDP_IRD) == -1 ? 5 : 6);
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(WEXITSTATUS(status), 5);
    IS(get(copies[1], DDP_IRD), 8);
    IS(close_range(3, ~0U, 0), 0);
    FAILS(get(copies[1], DDP_IRD), EBADF);
}

/* Two ends of a connection in DDPMODE, in one thread. */
static void framed(int ends[2]) {
    struct sockaddr_in addr;
    int listener = listening(&addr);
    IS(set(listener, DDPMODE, 1), 0);
    IS(set(listener, DDP_ORD, 5), 0);
    ends[0] = tcp();
    IS(set(ends[0], DDPMODE, 1), 0);
    IS(connect(ends[0], (void *)&addr, sizeof addr), 0);
    ends[1] = accept(listener, NULL, NULL);
    IS(ends[1] >= 0, 1);
    IS(close(listener), 0);
}

static struct ddp_mode_info info_of(int fd) {
    struct ddp_mode_info info;
    socklen_t len = sizeof info;
    IS(getsockopt(fd, SOL_DDP, DDP_MODE_INFO, &info, &len), 0);
    return info;
}

/* `read` of so many octets, as text. */
static const char *next(int fd, size_t count) {
    static char text[100];
    memset(text, 0, sizeof text);
    IS(recv(fd, text, count, MSG_WAITALL), count);
    return text;
}

static void streams(void) {
    int ends[2], tube[2], count = -1;
    framed(ends);
    IS(get(ends[0], DDPMODE), DDP_MODE_STARTING);
    IS(get(ends[1], DDPMODE), DDP_MODE_STARTING);
    IS(get(ends[1], DDP_ROLE), DDP_ROLE_RESPONDER);
    IS(get(ends[1], DDP_ORD), 5);
    IS(pipe(tube), 0);
    FAILS(splice(ends[1], NULL, tube[1], NULL, 1, 0), EINVAL);
    IS(write(ends[0], "written", 7), 7);
    IS(strcmp(next(ends[1], 7), "written"), 0);
    IS(get(ends[0], DDPMODE), DDP_MODE_ON);
    IS(get(ends[1], DDPMODE), DDP_MODE_ON);
    FAILS(set(ends[0], DDPMODE, 0), EINVAL);
    FAILS(set(ends[0], DDP_CRC, 0), EINVAL);
    IS(syscall(SYS_write, ends[1], "by number", 9L), 9);
    IS(strcmp(next(ends[0], 9), "by number"), 0);
    IS(dprintf(ends[1], "%d %s %g %Lg %d %d %d %g", 1, "two", 2.5, (long double)3.5, 4, 5, 6, 7.5), 23);
    IS(strcmp(next(ends[0], 23), "1 two 2.5 3.5 4 5 6 7.5"), 0);
    IS(write(ends[0], "seven", 5), 5);
    IS(write(ends[0], " more", 5), 5);
    struct pollfd one = {ends[1], POLLIN, 0};
    IS(poll(&one, 1, 10000), 1);
    IS(ioctl(ends[1], FIONREAD, &count), 0);
    IS(count, 10);
    IS(strcmp(next(ends[1], 10), "seven more"), 0);
    FAILS(recv(ends[1], tube, 1, MSG_DONTWAIT), EAGAIN);
    FAILS(send(ends[0], "!", 1, MSG_OOB), EOPNOTSUPP);
    FAILS(read(ends[1], NULL, 1), EFAULT);
    FAILS(write(ends[1], NULL, 1), EFAULT);
    struct timeval soon = {0, 50000};
    IS(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon), 0);
    FAILS(read(ends[1], tube, 1), EAGAIN);
    IS(shutdown(ends[0], SHUT_WR), 0);
    IS(read(ends[1], tube, 1), 0);
    IS(write(ends[1], "still", 5), 5); /* a half close is one half */
    IS(strcmp(next(ends[0], 5), "still"), 0);
    IS(info_of(ends[1]).failure, 0);
    IS(close(ends[1]), 0);
    IS(read(ends[0], tube, 1), 0);
    FAILS(close_range(3, ~0U, 8), EINVAL);
    IS(get(ends[0], DDPMODE), DDP_MODE_ON); /* nothing was closed */
    IS(close_range(3, ~0U, 0), 0);
}

/* Closed before the other end has even accepted: the startup goes on without the program, and
 * then the stream ends in order. */
static void closed_early(void) {
    struct sockaddr_in addr;
    char octet;
    int listener = tcp(), client = tcp(), on = 1;
    IS(setsockopt(listener, SOL_DDP, DDPMODE, &on, sizeof on), 0);
    IS(setsockopt(client, SOL_DDP, DDPMODE, &on, sizeof on), 0);
    listen_somewhere(listener, &addr);
    IS(connect(client, (void *)&addr, sizeof addr), 0);
    IS(shutdown(client, SHUT_WR), 0);
    clock_t before = clock();
    struct pollfd one = {client, POLLIN, 0};
    IS(poll(&one, 1, 200), 0);
    IS(close(client), 0);
    usleep(200000);
    IS(clock() - before < CLOCKS_PER_SEC / 20, 1); /* no thread spins meanwhile */
    int server = accept(listener, NULL, NULL);
    IS(read(server, &octet, 1), 0);
    IS(info_of(server).failure, 0);
    IS(close_range(3, ~0U, 0), 0);
}

/* DDPMODE begins on a connection that was plain until then. */
static void from_plain_to_framed(void) {
    int ends[2];
    connection(ends);
    IS(write(ends[0], "plain", 5), 5);
    IS(strcmp(next(ends[1], 5), "plain"), 0);
    IS(set(ends[0], DDP_ROLE, DDP_ROLE_INITIATOR), 0);
    IS(set(ends[1], DDP_ROLE, DDP_ROLE_RESPONDER), 0);
    IS(setsockopt(ends[0], SOL_DDP, DDP_PRIVATE_DATA, "hello", 5), 0);
    IS(set(ends[0], DDPMODE, 1), 0); /* its Request is there before the other end asks */
    struct pollfd one = {ends[1], POLLIN, 0};
    IS(poll(&one, 1, 10000), 1);
    IS(set(ends[1], DDPMODE, 1), 0);
    IS(write(ends[1], "framed", 6), 6);
    IS(strcmp(next(ends[0], 6), "framed"), 0);
    char octets[16];
    socklen_t len = sizeof octets;
    IS(getsockopt(ends[1], SOL_DDP, DDP_PEER_PRIVATE_DATA, octets, &len), 0);
    IS(len, 5);
    IS(memcmp(octets, "hello", 5), 0);
    IS(close_range(3, ~0U, 0), 0);
}

/* With one end in DDPMODE and the other plain: an error at the one, and no octet of framing for the
 * program at the other that has the library. */
static void one_side_only(void) {
    struct sockaddr_in addr;
    int listener = listening(&addr), client = tcp(), value = -1;
    socklen_t len = sizeof value;
    char octet;
    IS(set(listener, DDPMODE, 1), 0);
    IS(connect(client, (void *)&addr, sizeof addr), 0);
    int child = accept(listener, NULL, NULL);
    IS(write(client, "GET / HTTP/1.0\r\n\r\n", 18), 18);
    FAILS(read(child, &octet, 1), EPROTO);
    IS(get(child, DDPMODE), DDP_MODE_FAILED);
    IS(info_of(child).failure, EPROTO);
    /* Told once, as TCP does. */
    IS(getsockopt(child, SOL_SOCKET, SO_ERROR, &value, &len), 0);
    IS(value, 0);
    IS(read(child, &octet, 1), 0);
    FAILS(read(client, &octet, 1), ECONNRESET);
    close(child);
    close(client);
    IS(set(listener, DDPMODE, 0), 0);
    client = tcp();
    IS(set(client, DDPMODE, 1), 0);
    IS(connect(client, (void *)&addr, sizeof addr), 0);
    child = accept(listener, NULL, NULL);
    IS(write(child, "220 ready for octets\r\n", 22), 22);
    FAILS(read(client, &octet, 1), EPROTO);
    FAILS(write(client, "x", 1), EPIPE);
    IS(close_range(3, ~0U, 0), 0);
    /* No socket listens here. */
    client = tcp();
    IS(set(client, DDPMODE, 1), 0);
    FAILS(connect(client, (void *)&addr, sizeof addr), ECONNREFUSED);
    FAILS(write(client, "x", 1), EPIPE);
    listener = listening(&addr);
    IS(set(listener, DDPMODE, 1), 0);
    IS(connect(client, (void *)&addr, sizeof addr), 0); /* now one listens */
    child = accept(listener, NULL, NULL);
    IS(write(client, "again", 5), 5);
    IS(strcmp(next(child, 5), "again"), 0);
    IS(close_range(3, ~0U, 0), 0);
}

/* Every setting of one end meets every setting of the other. */
static void settings_meet(void) {
    for (int of = 0; of < 64; of++) {
        struct sockaddr_in addr;
        int listener = listening(&addr), client = tcp();
        IS(set(client, DDP_CRC, of & 1), 0);
        IS(set(client, DDP_MARKERS, of >> 1 & 1), 0);
        IS(set(listener, DDP_CRC, of >> 2 & 1), 0);
        IS(set(listener, DDP_MARKERS, of >> 3 & 1), 0);
        IS(set(client, DDP_RTR, of >> 4 == 0 ? 0 : of >> 4 == 1 ? DDP_RTR_READ : of >> 4 == 2 ? DDP_RTR_SEND : 3), 0);
        IS(set(listener, DDP_RTR, DDP_RTR_WRITE | DDP_RTR_READ | DDP_RTR_SEND), 0);
        IS(set(client, DDP_GATHER, of % 3), 0);
        IS(set(client, DDPMODE, 1), 0);
        IS(set(listener, DDPMODE, 1), 0);
        IS(connect(client, (void *)&addr, sizeof addr), 0);
        int child = accept(listener, NULL, NULL);
        static char sent[200000], got[200000];
        for (size_t i = 0; i < sizeof sent; i++)
            sent[i] = (char)(i * 7 + of);
        IS(write(child, sent, sizeof sent), sizeof sent);
        IS(recv(client, got, sizeof got, MSG_WAITALL), sizeof got);
        IS(memcmp(sent, got, sizeof sent), 0);
        IS(write(client, sent, sizeof sent), sizeof sent);
        IS(recv(child, got, sizeof got, MSG_WAITALL), sizeof got);
        IS(memcmp(sent, got, sizeof sent), 0);
        IS(close_range(3, ~0U, 0), 0);
    }
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    (void)argv;
    if (argc > 1) { /* the program finds out that the library is not there */
        FAILS(set(tcp(), DDPMODE, 1), ENOPROTOOPT);
        return 0;
    }
    options();
    which_sockets();
    established();
    kernel_options();
    numbers();
    streams();
    closed_early();
    from_plain_to_framed();
    one_side_only();
    settings_meet();
    puts("all is so");
    return 0;
}
