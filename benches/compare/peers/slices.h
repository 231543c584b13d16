/*
 * Slices of traffic between a client and a server, driven like rddp-compare's:
 *
 *   PROGRAM server ADDRESS ...             prints "PORT CONTROL-PORT", serves one client
 *   PROGRAM client ADDRESS PORT CONTROL ...
 *
 * The client takes "bw SIZE MS" and "lat SIZE MS" on standard input, one a line, and answers each
 * with a line of JSON. A program includes this, and defines the functions that are declared here.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LONGEST ((size_t)4 << 20)
#define PAGE 4096
#define MOST_TIMES 1000000

/* A command of the client before a slice, and (bw) the number of its messages after it. */
struct command {
    uint64_t is_latency, size;
};

/* Sends for that time; returns the number of messages. */
static uint64_t send_for(size_t size, uint64_t ms);
/* Sends a message, and waits for one in return. */
static void ping(size_t size);
/* Receives, and answers if that is asked for, until the client has told the number of its
 * messages (heard_total). */
static void serve(const struct command *command);

/* Memory that messages leave from, and arrive in. It begins in the middle of a page, as that of
 * rddp-compare does. */
static char *out, *in;
static int control;

static void check(long result, const char *what)
{
    if (result >= 0)
        return;
    fprintf(stderr, "%s: %s\n", what, strerror((int)-result));
    exit(1);
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void tell(const void *octets, size_t len)
{
    if (send(control, octets, len, MSG_NOSIGNAL) != (ssize_t)len)
        check(-errno, "control connection");
}

static int hear(void *octets, size_t len)
{
    return recv(control, octets, len, MSG_WAITALL) == (ssize_t)len;
}

/* Returns whether the client has told the number of its messages. */
static int heard_total(uint64_t *total)
{
    return recv(control, total, sizeof *total, MSG_DONTWAIT) == sizeof *total;
}

static void set_nodelay(int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static int accept_one(int listener)
{
    int fd = accept(listener, NULL, NULL);
    check(fd < 0 ? -errno : 0, "accept");
    set_nodelay(fd);
    return fd;
}

static int listen_on(const char *address, int *port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    socklen_t len = sizeof addr;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, address, &addr.sin_addr);
    if (bind(listener, (void *)&addr, len) || listen(listener, 1) || getsockname(listener, (void *)&addr, &len))
        check(-errno, "listening");
    *port = ntohs(addr.sin_port);
    return listener;
}

static int connect_to(const char *address, const char *port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, address, &addr.sin_addr);
    check(connect(fd, (void *)&addr, sizeof addr) ? -errno : 0, "connect");
    set_nodelay(fd);
    return fd;
}

static void make_memory(void)
{
    out = (char *)aligned_alloc(PAGE, LONGEST + PAGE) + PAGE / 2;
    in = (char *)aligned_alloc(PAGE, LONGEST + PAGE) + PAGE / 2;
    memset(out, 0x5a, LONGEST);
    memset(in, 0x5a, LONGEST);
}

/* Carries out the client's commands, until it goes. */
static void serve_slices(void)
{
    struct command command;
    while (hear(&command, sizeof command)) {
        tell("r", 1);
        serve(&command);
        tell("d", 1);
    }
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t ping_for(size_t size, uint64_t ms, uint64_t *p50)
{
    static uint64_t times[MOST_TIMES];
    uint64_t begun = now(), end = begun + ms * 1000000, count = 0;
    while (begun < end && count < MOST_TIMES) {
        ping(size);
        uint64_t then = now();
        times[count++] = (then - begun) / 2;
        begun = then;
    }
    qsort(times, count, sizeof times[0], by_size);
    *p50 = times[count / 2];
    return count;
}

static void slice(int is_latency, size_t size, uint64_t ms)
{
    struct command command = {(uint64_t)is_latency, size};
    uint64_t p50 = 0, messages;
    char nod;
    tell(&command, sizeof command);
    if (!hear(&nod, 1))
        check(-EPIPE, "the server has gone");
    uint64_t begun = now();
    messages = is_latency ? ping_for(size, ms, &p50) : send_for(size, ms);
    tell(&messages, sizeof messages);
    if (!hear(&nod, 1))
        check(-EPIPE, "the server has gone");
    double seconds = (now() - begun) / 1e9;
    printf("{\"messages\": %llu, \"octets\": %llu, \"seconds\": %.9f, \"p50\": %llu}\n", (unsigned long long)messages,
           (unsigned long long)(messages * size), seconds, (unsigned long long)p50);
    fflush(stdout);
}

/* Carries out the commands on standard input; returns the program's exit status. */
static int ask_slices(void)
{
    char line[128], what[8];
    unsigned long long size, ms;
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%7s %llu %llu", what, &size, &ms) != 3 || size == 0 || size > LONGEST)
            return 2;
        slice(strcmp(what, "lat") == 0, size, ms);
    }
    return 0;
}
