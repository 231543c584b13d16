/* Signal handlers that write, read and close: none of it allocates, since a handler may have
 * interrupted malloc itself. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/wait.h>

#include "check.h"

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);

static volatile int handling, allocated;

/* The library calls these. */
void *malloc(size_t size) {
    allocated += handling;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    allocated += handling;
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    allocated += handling;
    return __libc_realloc(old, size);
}

static int fd;
static char octets[1 << 20];
static volatile long got;

static void writes(int signal) {
    handling = 1;
    /* Until TCP takes no more: what it has begun of a message is ended by one more FPDU. */
    do
        got = write(fd, octets, sizeof octets);
    while (got > 0);
    handling = 0;
}

static void reads(int signal) {
    handling = 1;
    got = read(fd, octets, sizeof octets);
    handling = 0;
}

static void closes(int signal) {
    handling = 1;
    got = close(fd);
    handling = 0;
}

static void handle(void (*handler)(int), long result) {
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    IS(got, result);
    IS(allocated, 0);
}

int main(void) {
    alarm(40); /* a hang is a failure */
    struct sockaddr_in addr;
    char octet = 'x';
    int listener = socket(AF_INET, SOCK_STREAM, 0), mss = 1400; /* a message has many FPDUs */
    IS(setsockopt(listener, IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof mss), 0);
    listen_somewhere(listener, &addr);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    IS(connect(fd, (void *)&addr, sizeof addr), 0);
    int peer = accept(listener, NULL, NULL);
    IS(write(fd, &octet, 1), 1);
    IS(read(peer, &octet, 1), 1);
    IS(write(peer, &octet, 1), 1);
    handle(reads, 1);
    IS(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    handle(writes, -1);
    IS(errno, EAGAIN);
    IS(fcntl(fd, F_SETFL, 0), 0);
    /* Another process has it, which is looked for. */
    int other = socket(AF_INET, SOCK_STREAM, 0);
    IS(connect(other, (void *)&addr, sizeof addr), 0);
    int its_peer = accept(listener, NULL, NULL), tube[2], back[2];
    IS(write(other, &octet, 1), 1);
    IS(read(its_peer, &octet, 1), 1);
    IS(pipe(tube), 0);
    IS(pipe(back), 0);
    pid_t child = fork();
    if (child == 0) {
        close(tube[1]);
        IS(write(back[1], &octet, 1), 1);
        read(tube[0], &octet, 1);
        _exit(0);
    }
    IS(read(back[0], &octet, 1), 1);
    fd = other;
    handle(closes, 0);
    close(tube[1]);
    IS(waitpid(child, NULL, 0), child);
    puts("all is so");
    return 0;
}
