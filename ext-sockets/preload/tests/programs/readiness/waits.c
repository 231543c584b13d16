/* Every way of waiting sees the same. */
#include "readiness.h"

const char *const names[] = {"poll", "ppoll", "select", "pselect", "level", "edge", "pwait", "pwait2"};

struct waiter waiter(enum kind kind, int fd, int events) {
    struct waiter one = {kind, fd, -1, events};
    if (kind >= LEVEL) {
        struct epoll_event event = {events | (kind == EDGE ? EPOLLET : 0), {.u64 = 0x1122334455667788}};
        one.epoll = epoll_create1(0);
        IS(epoll_ctl(one.epoll, EPOLL_CTL_ADD, fd, &event), 0);
    }
    return one;
}

void done(struct waiter *one) {
    if (one->epoll >= 0)
        close(one->epoll);
}

static int by_select(struct waiter *one, struct timespec *time, const sigset_t *mask) {
    fd_set sets[3];
    struct timeval left = {time->tv_sec, time->tv_nsec / 1000};
    for (int i = 0; i < 3; i++) {
        FD_ZERO(&sets[i]);
        FD_SET(one->fd, &sets[i]);
    }
    fd_set *read = one->events & POLLIN ? &sets[0] : NULL, *write = one->events & POLLOUT ? &sets[1] : NULL;
    int got = one->kind == SELECT && !mask ? select(one->fd + 1, read, write, &sets[2], &left)
                                           : pselect(one->fd + 1, read, write, &sets[2], time, mask);
    if (got < 0)
        return -1;
    int events = (read && FD_ISSET(one->fd, read) ? POLLIN : 0) | (write && FD_ISSET(one->fd, write) ? POLLOUT : 0);
    IS(got, __builtin_popcount(events));
    return events;
}

int await(struct waiter *one, int milliseconds, const sigset_t *mask) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    struct pollfd entry = {one->fd, one->events, 0x7777};
    struct epoll_event event;
    int got;
    switch (one->kind) {
    case POLL:
        got = mask ? ppoll(&entry, 1, &time, mask) : poll(&entry, 1, milliseconds);
        break;
    case PPOLL:
        got = ppoll(&entry, 1, &time, mask);
        break;
    case SELECT:
    case PSELECT:
        return by_select(one, &time, mask);
    case PWAIT2:
        got = epoll_pwait2(one->epoll, &event, 1, &time, mask);
        break;
    case PWAIT:
        got = epoll_pwait(one->epoll, &event, 1, milliseconds, mask);
        break;
    default:
        got = mask ? epoll_pwait(one->epoll, &event, 1, milliseconds, mask)
                   : epoll_wait(one->epoll, &event, 1, milliseconds);
    }
    if (got < 0)
        return -1;
    if (one->kind < LEVEL) {
        IS(entry.revents != 0, got);
        return entry.revents & (POLLIN | POLLOUT);
    }
    if (got == 0)
        return 0;
    IS(event.data.u64, 0x1122334455667788);
    IS(event.events != 0, 1);
    return event.events & (EPOLLIN | EPOLLOUT);
}
