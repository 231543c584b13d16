/* A program that exits while its threads use its sockets: exiting WAY NUMBER. Its status is 7, and
 * no thread is told of the exit. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "check.h"

enum { PAIRS = 4 };
static int clients[PAIRS], servers[PAIRS], listener;
static struct sockaddr_in here;
static int has_written;

/* The threads hold nothing back: what a call says is what the program would see. */
static void told(const char *what, long got) {
    printf("%s: %ld, errno %s\n", what, got, strerror(errno));
    fflush(stdout);
    pause();
}

static int dials(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (void *)&here, sizeof here) != 0)
        told("connect", -1);
    return fd;
}

static void *reads(void *number) {
    char octets[4096];
    for (long got;;)
        if ((got = read(servers[(long)number], octets, sizeof octets)) <= 0)
            told("read", got);
}

static void *writes(void *number) {
    static char octets[8192];
    for (long got;; __atomic_store_n(&has_written, 1, __ATOMIC_RELAXED))
        if ((got = write(clients[(long)number], octets, sizeof octets)) <= 0)
            told("write", got);
}

static void *watches(void *number) {
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLOUT};
    IS(epoll_ctl(set, EPOLL_CTL_ADD, servers[(long)number], &event), 0);
    for (long got;;)
        if ((got = epoll_wait(set, &event, 1, 10)) < 0 || got == 1 && event.events & (EPOLLERR | EPOLLHUP))
            told("epoll_wait", got);
}

/* Connections that come and go. */
static void *connects(void *argument) {
    struct sockaddr_in addr;
    char octet = 'x';
    for (long got;;) {
        int own = socket(AF_INET, SOCK_STREAM, 0);
        listen_somewhere(own, &addr);
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (void *)&addr, sizeof addr) != 0)
            told("connect", -1);
        int peer = accept(own, NULL, NULL);
        if ((got = write(fd, &octet, 1)) != 1)
            told("write of one", got);
        close(fd), close(peer), close(own);
    }
}

/* Files that take the lowest number that is free. */
static void *opens(void *argument) {
    for (;;)
        close(open("/dev/null", O_RDWR));
}

static void slow(void) { usleep(300000); }

static void pairs(void) {
    listener = socket(AF_INET, SOCK_STREAM, 0);
    listen_somewhere(listener, &here);
    for (int at = 0; at < PAIRS; at++) {
        char octet = 'x';
        clients[at] = dials();
        servers[at] = accept(listener, NULL, NULL);
        IS(write(clients[at], &octet, 1), 1);
        IS(read(servers[at], &octet, 1), 1);
        IS(write(servers[at], &octet, 1), 1);
        IS(read(clients[at], &octet, 1), 1);
    }
}

static void begin(void *(*thread)(void *), int count) {
    pthread_t id;
    for (long at = 0; at < count; at++)
        IS(pthread_create(&id, NULL, thread, (void *)at), 0);
}

/* A client in another process: the server sees its end, and no reset. Returns its status. */
static int of_a_client(void) {
    listener = socket(AF_INET, SOCK_STREAM, 0);
    listen_somewhere(listener, &here);
    pid_t child = fork();
    if (child == 0) {
        clients[0] = dials();
        begin(writes, 1);
        while (!__atomic_load_n(&has_written, __ATOMIC_RELAXED))
            usleep(1000);
        usleep(20000);
        exit(7);
    }
    char octets[65536];
    int peer = accept(listener, NULL, NULL), status;
    long got, all = 0;
    while ((got = read(peer, octets, sizeof octets)) > 0)
        all += got;
    IS(got, 0);
    IS(all > 0, 1);
    IS(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int count, char **words) {
    alarm(60); /* a hang is a failure */
    const char *way = words[1];
    int number = atoi(words[2]);
    if (strcmp(way, "to_a_server") == 0)
        return of_a_client();
    if (strcmp(way, "behind_a_slow_handler") == 0)
        atexit(slow);
    pairs();
    begin(reads, PAIRS), begin(writes, PAIRS);
    if (strcmp(way, "with_all_calls") == 0)
        begin(watches, PAIRS), begin(connects, 2), begin(opens, 1);
    usleep(1000 * (20 + number * 7 % 40));
    if (number % 2)
        exit(7);
    return 7;
}
