/* Calls that wait. */
#include "calls.h"

static void on_signal(int signal) { (void)signal; }

void waiting(void) {
    int ends[2];
    connection(ends);
    exchange(ends);
    int a = ends[0], b = ends[1];
    struct timespec now = {0, 0}, wrong = {0, -1};
    sigset_t mask;
    sigemptyset(&mask);
    struct pollfd fds[3] = {{b, POLLIN | POLLOUT, 0}, {-1, POLLIN, 0}, {77, POLLIN, 0}};
    CALL(poll(fds, 3, 0));
    show("events", fds, sizeof fds);
    CALL(poll(fds, 1, 0));
    CALL(poll(BAD, 1, 0));
    CALL(poll(NULL, 0, 0));
    CALL(ppoll(fds, 2, &now, &mask));
    CALL(ppoll(fds, 2, &wrong, NULL));
    fd_set readable, writable;
    struct timeval at_once = {0, 0}, before = {-1, 0};
    FD_ZERO(&readable);
    FD_SET(b, &readable);
    FD_ZERO(&writable);
    FD_SET(a, &writable);
    CALL(select(b + 1, &readable, &writable, NULL, &at_once));
    printf("  readable %d, writable %d\n", !!FD_ISSET(b, &readable), !!FD_ISSET(a, &writable));
    /* Of numbers beyond its table of open files, which grows and never shrinks, select says
     * nothing. */
    close(dup2(a, 77));
    FD_SET(77, &readable);
    CALL(select(78, &readable, NULL, NULL, &at_once));
    CALL(select(-1, NULL, NULL, NULL, &at_once));
    CALL(select(0, NULL, NULL, NULL, &before));
    FD_ZERO(&writable);
    FD_SET(a, &writable);
    CALL(pselect(a + 1, NULL, &writable, NULL, &now, &mask));
    CALL(pselect(a + 1, BAD, NULL, NULL, &now, NULL));
    CALL(pselect(0, NULL, NULL, NULL, &wrong, NULL));

    int set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN | EPOLLOUT, {.u64 = 0x123456789abcdef0}}, got[4];
    memset(got, 0, sizeof got);
    CALL(epoll_ctl(set, EPOLL_CTL_ADD, b, &event));
    CALL(epoll_ctl(set, EPOLL_CTL_ADD, b, &event));
    CALL(epoll_ctl(set, EPOLL_CTL_MOD, a, &event));
    CALL(epoll_ctl(set, EPOLL_CTL_ADD, set, &event));
    CALL(epoll_ctl(set, EPOLL_CTL_ADD, 77, &event));
    CALL(epoll_ctl(set, EPOLL_CTL_ADD, a, BAD));
    CALL(epoll_ctl(-1, EPOLL_CTL_ADD, a, &event));
    CALL(epoll_ctl(set, 77, a, &event));
    CALL(epoll_wait(set, got, 4, 0));
    show("event", got, sizeof got[0]);
    CALL(epoll_wait(set, got, 0, 0));
    CALL(epoll_wait(set, BAD, 4, 0));
    CALL(epoll_wait(a, got, 4, 0));
    CALL(epoll_wait(-1, got, 4, 0));
    CALL(epoll_pwait(set, got, 4, 0, &mask));
    CALL(epoll_pwait2(set, got, 4, &now, &mask));
    CALL(epoll_pwait2(set, got, 4, &wrong, NULL));
    event.events = EPOLLIN;
    CALL(epoll_ctl(set, EPOLL_CTL_MOD, b, &event));
    CALL(epoll_wait(set, got, 4, 0));
    CALL(write(a, "x", 1));
    CALL(epoll_wait(set, got, 4, -1));
    CALL(epoll_ctl(set, EPOLL_CTL_DEL, b, NULL));
    CALL(epoll_ctl(set, EPOLL_CTL_DEL, b, NULL));

    /* A signal that came while it was held back ends the wait that lets it through. */
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    sigset_t held, all;
    sigemptyset(&held);
    sigaddset(&held, SIGUSR1);
    sigprocmask(SIG_BLOCK, &held, &all);
    raise(SIGUSR1);
    CALL(ppoll(NULL, 0, NULL, &mask));
    raise(SIGUSR1);
    CALL(pselect(0, NULL, NULL, NULL, NULL, &mask));
    raise(SIGUSR1);
    CALL(epoll_pwait(set, got, 4, -1, &mask));
    raise(SIGUSR1);
    CALL(epoll_pwait2(set, got, 4, NULL, &mask));
    sigprocmask(SIG_SETMASK, &all, NULL);
    close(set);
    close(a);
    close(b);
}
