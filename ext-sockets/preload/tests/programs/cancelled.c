/* Threads that are cancelled where they wait for framed sockets: their clean-up handlers run,
 * and the connection goes on.
 *
 * cancelled CALL: the call in which the thread sleeps. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

#include "check.h"

static const char *call;
static int fd, set, listener, cleaned_up;
static volatile int began;

static void clean_up(void *nothing) {
    (void)nothing;
    cleaned_up++;
}

static void sleep_in_it(void) {
    struct pollfd one = {fd, POLLIN, 0};
    struct epoll_event events[4];
    struct timespec patience = {20, 0};
    struct timeval time = {20, 0};
    siginfo_t info;
    sigset_t mask;
    int signal;
    fd_set in;
    sigemptyset(&mask);
    FD_ZERO(&in);
    FD_SET(fd, &in);
    if (!strcmp(call, "poll"))
        poll(&one, 1, 20000);
    else if (!strcmp(call, "ppoll"))
        ppoll(&one, 1, &patience, &mask);
    else if (!strcmp(call, "select"))
        select(fd + 1, &in, NULL, NULL, &time);
    else if (!strcmp(call, "pselect"))
        pselect(fd + 1, &in, NULL, NULL, &patience, &mask);
    else if (!strcmp(call, "epoll_wait"))
        epoll_wait(set, events, 4, 20000);
    else if (!strcmp(call, "epoll_pwait"))
        epoll_pwait(set, events, 4, 20000, &mask);
    else if (!strcmp(call, "epoll_pwait2"))
        epoll_pwait2(set, events, 4, &patience, &mask);
    else if (!strcmp(call, "accept"))
        accept(listener, NULL, NULL);
    else if (!strcmp(call, "sigsuspend"))
        sigsuspend(&mask);
    else if (!strcmp(call, "sigwait")) {
        sigaddset(&mask, SIGUSR1);
        sigaddset(&mask, SIGSEGV);
        sigwait(&mask, &signal);
    } else {
        sigaddset(&mask, SIGUSR1);
        sigaddset(&mask, SIGSEGV);
        sigtimedwait(&mask, &info, &patience);
    }
}

static void *sleeping(void *peer) {
    char octet;
    /* The thread has moved octets, so that the guard keeps its mask. */
    IS(write(*(int *)peer, "y", 1), 1);
    IS(read(fd, &octet, 1), 1);
    pthread_cleanup_push(clean_up, NULL);
    began = 1;
    sleep_in_it();
    pthread_cleanup_pop(0);
    return NULL;
}

int main(int argc, char **argv) {
    alarm(40); /* a hang is a failure */
    struct sockaddr_in addr;
    char octet = 'x';
    call = argv[1];
    listener = socket(AF_INET, SOCK_STREAM, 0);
    listen_somewhere(listener, &addr);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    IS(connect(fd, (void *)&addr, sizeof addr), 0);
    int peer = accept(listener, NULL, NULL);
    IS(write(fd, &octet, 1), 1);
    IS(read(peer, &octet, 1), 1);
    set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    IS(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        void *result;
        began = 0;
        IS(pthread_create(&thread, NULL, sleeping, &peer), 0);
        while (!began)
            usleep(1000);
        usleep(20000);
        IS(pthread_cancel(thread), 0);
        IS(pthread_join(thread, &result), 0);
        IS(result == PTHREAD_CANCELED, 1);
        IS(cleaned_up, i + 1);
    }
    IS(write(peer, "z", 1), 1);
    struct pollfd one = {fd, POLLIN, 0};
    IS(poll(&one, 1, 20000), 1);
    IS(read(fd, &octet, 1), 1);
    IS(octet, 'z');
    /* No thread that is gone has kept the socket. */
    IS(close(fd), 0);
    IS(read(peer, &octet, 1), 0);
    puts("all is so");
    return 0;
}
