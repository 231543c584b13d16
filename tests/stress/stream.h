/* Octets that a seed and a position say, so that either end of a connection can tell whether the
 * one it got is the one that was sent; and what every program here needs. */
#ifndef STRESS_STREAM_H
#define STRESS_STREAM_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <rddp/ddp.h>

/* SplitMix64. */
static inline uint64_t mixed(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static inline uint64_t drawn(uint64_t *state) { return mixed(*state += 0x9e3779b97f4a7c15); }

/* Returns a number less than `limit`. */
static inline uint64_t below(uint64_t *state, uint64_t limit) { return drawn(state) % limit; }

/* Writes the octets of stream `seed` from position `at` on. */
static inline void stream_octets(uint64_t seed, uint64_t at, unsigned char *out, size_t count) {
    while (count > 0) {
        uint64_t word = mixed(seed + (at / 8) * 0x9e3779b97f4a7c15);
        size_t from = at % 8, some = 8 - from < count ? 8 - from : count;
        memcpy(out, (unsigned char *)&word + from, some);
        at += some, out += some, count -= some;
    }
}

/* Returns the number of octets in front that are those of the stream. */
static inline size_t stream_agrees(uint64_t seed, uint64_t at, const unsigned char *got, size_t count) {
    static _Thread_local unsigned char wanted[4096];
    size_t good = 0;
    while (good < count) {
        size_t some = count - good < sizeof wanted ? count - good : sizeof wanted;
        stream_octets(seed, at + good, wanted, some);
        if (memcmp(wanted, got + good, some) == 0) {
            good += some;
            continue;
        }
        while (wanted[good % sizeof wanted] == got[good])
            good++;
        break;
    }
    return good;
}

__attribute__((noreturn, format(printf, 1, 2))) static inline void fail(const char *what, ...) {
    va_list arguments;
    va_start(arguments, what);
    fprintf(stderr, "stress: %d: ", (int)getpid());
    vfprintf(stderr, what, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    _exit(1);
}

#define MUST(call) \
    do { \
        if ((call) < 0) \
            fail("line %d: %s: %s", __LINE__, #call, strerror(errno)); \
    } while (0)

static inline uint64_t milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline int set_option(int fd, int option, int value) {
    return setsockopt(fd, SOL_DDP, option, &value, sizeof value);
}

/* What is asked for of framed sockets: SDP if STRESS_SDP is set. */
static inline int framed_mode(void) { return getenv("STRESS_SDP") ? DDPMODE_SDP : 1; }

static inline int tcp_socket(int flags) {
    int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
    MUST(fd);
    return fd;
}

/* Listens on loopback, at a port of the kernel's choice. */
static inline void listen_on(int fd, struct sockaddr_in *addr) {
    socklen_t len = sizeof *addr;
    memset(addr, 0, sizeof *addr);
    addr->sin_family = AF_INET;
    addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    MUST(bind(fd, (struct sockaddr *)addr, len));
    MUST(listen(fd, 128));
    MUST(getsockname(fd, (struct sockaddr *)addr, &len));
}

#endif
