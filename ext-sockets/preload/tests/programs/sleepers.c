/* A thread that sleeps on a set in which there is nothing framed, and another that puts a framed
 * socket into it.
 *
 * sleepers data|greeting wait|pwait|pwait2 [again]: what it is told, and when. The thread begins
 * before the process has ever had a framed socket in a set; with "again" once more, when it has. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

#define DATA 0x123456789abcdef0

static const char *kind;
static int set, silent[2];

static void *sleeping(void *told) {
    struct timespec patience = {15, 0};
    struct epoll_event events[4];
    int count = strcmp(kind, "wait") == 0    ? epoll_wait(set, events, 4, 15000)
                : strcmp(kind, "pwait") == 0 ? epoll_pwait(set, events, 4, -1, NULL)
                                             : epoll_pwait2(set, events, 4, &patience, NULL);
    IS(count, 1);
    IS(events[0].data.u64 == DATA, 1);
    *(uint32_t *)told = events[0].events;
    return NULL;
}

static void watch(int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data = {.u64 = DATA}};
    IS(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
}

/* Two framed ends; octets come to the one that the thread learns of. */
static void octets_come(int listener, const struct sockaddr_in *addr) {
    int client = socket(AF_INET, SOCK_STREAM, 0);
    IS(connect(client, (const void *)addr, sizeof *addr), 0);
    int server = accept(listener, NULL, NULL);
    watch(client, EPOLLIN);
    IS(write(server, "x", 1), 1);
}

/* A plain client that waits for a greeting, as those of mail do: it is served when it has said
 * nothing for a while. */
static pid_t greeting_is_due(int listener, const struct sockaddr_in *addr, char *self) {
    char port[8];
    snprintf(port, sizeof port, "%d", ntohs(addr->sin_port));
    pid_t child = fork();
    if (child == 0) {
        unsetenv("LD_PRELOAD");
        execl(self, self, "client", port, NULL);
        _exit(2);
    }
    watch(accept(listener, NULL, NULL), EPOLLOUT);
    return child;
}

static int plain_client(const char *port) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    IS(connect(fd, (void *)&addr, sizeof addr), 0);
    char octet;
    IS(read(fd, &octet, 1), 0);
    return 0;
}

static void once(const char *what, char *self) {
    struct sockaddr_in addr;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    pthread_t thread;
    uint32_t told = 0;
    listen_somewhere(listener, &addr);
    set = epoll_create1(0);
    IS(pipe(silent), 0);
    watch(silent[0], EPOLLIN);
    IS(pthread_create(&thread, NULL, sleeping, &told), 0);
    usleep(200000);
    if (strcmp(what, "data") == 0) {
        octets_come(listener, &addr);
        IS(pthread_join(thread, NULL), 0);
        IS(told, EPOLLIN);
        return;
    }
    pid_t client = greeting_is_due(listener, &addr, self);
    IS(pthread_join(thread, NULL), 0);
    IS(told & EPOLLOUT, EPOLLOUT);
    IS(close_range(3, ~0u, 0), 0);
    int status;
    IS(waitpid(client, &status, 0), client);
    IS(status, 0);
}

int main(int argc, char **argv) {
    alarm(40); /* a hang is a failure */
    if (strcmp(argv[1], "client") == 0)
        return plain_client(argv[2]);
    kind = argv[2];
    once(argv[1], argv[0]);
    if (argc > 3)
        once(argv[1], argv[0]);
    puts("all is so");
    return 0;
}
