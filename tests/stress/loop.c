#define _GNU_SOURCE
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include "loop.h"
#include "stream.h"

void loop_begin(struct loop *loop, enum way way) {
    loop->way = way;
    loop->count = 0;
    loop->turn = 0;
    loop->epoll = -1;
    if (way == BY_EPOLL)
        MUST(loop->epoll = epoll_create1(EPOLL_CLOEXEC));
}

static void control(struct loop *loop, int command, int slot) {
    struct watched *one = &loop->all[slot];
    const uint32_t how[] = {0, EPOLLET, EPOLLONESHOT};
    struct epoll_event event = {.data.u32 = slot};
    event.events = how[one->trigger] | (one->wanted & POLLIN ? EPOLLIN : 0) | (one->wanted & POLLOUT ? EPOLLOUT : 0);
    if (loop->way == BY_EPOLL)
        MUST(epoll_ctl(loop->epoll, command, one->fd, &event));
}

int loop_add(struct loop *loop, int fd, enum trigger trigger, void *of) {
    int slot = 0;
    while (slot < loop->count && loop->all[slot].fd >= 0)
        slot++;
    if (slot == WATCHED)
        fail("too many descriptors");
    if (slot == loop->count)
        loop->count++;
    trigger = loop->way == BY_EPOLL ? trigger : LEVEL;
    loop->all[slot] = (struct watched){.fd = fd, .trigger = trigger, .of = of, .born = loop->turn};
    control(loop, EPOLL_CTL_ADD, slot);
    return slot;
}

void loop_want(struct loop *loop, int slot, int wanted) {
    struct watched *one = &loop->all[slot];
    if (one->wanted == wanted && one->trigger != ONESHOT)
        return;
    one->wanted = wanted;
    control(loop, EPOLL_CTL_MOD, slot);
}

void loop_remove(struct loop *loop, int slot) {
    control(loop, EPOLL_CTL_DEL, slot);
    loop->all[slot].fd = -1;
}

/* What was handled before it in this turn may have closed it. */
static bool is_meant(const struct loop *loop, const struct watched *one) {
    return one->fd >= 0 && one->born != loop->turn;
}

static void by_epoll(struct loop *loop, int milliseconds, void (*event)(void *of, int events)) {
    struct epoll_event events[32];
    int count = epoll_wait(loop->epoll, events, 32, milliseconds);
    MUST(count);
    for (int i = 0; i < count; i++) {
        struct watched *one = &loop->all[events[i].data.u32];
        if (is_meant(loop, one))
            event(one->of, (int)events[i].events);
    }
}

static void by_poll(struct loop *loop, int milliseconds, void (*event)(void *of, int events)) {
    struct pollfd fds[WATCHED];
    int upto = loop->count;
    for (int i = 0; i < upto; i++)
        fds[i] = (struct pollfd){.fd = loop->all[i].fd, .events = (short)loop->all[i].wanted};
    MUST(poll(fds, upto, milliseconds));
    for (int i = 0; i < upto; i++)
        if (fds[i].revents && is_meant(loop, &loop->all[i]))
            event(loop->all[i].of, fds[i].revents);
}

static void by_select(struct loop *loop, int milliseconds, void (*event)(void *of, int events)) {
    struct timeval timeout = {.tv_sec = milliseconds / 1000, .tv_usec = milliseconds % 1000 * 1000};
    int fds[WATCHED], upto = loop->count, most = 0;
    fd_set in, out;
    FD_ZERO(&in);
    FD_ZERO(&out);
    for (int i = 0; i < upto; i++) {
        fds[i] = loop->all[i].fd;
        if (fds[i] >= FD_SETSIZE)
            fail("a descriptor too large for select");
        if (fds[i] >= 0 && loop->all[i].wanted & POLLIN)
            FD_SET(fds[i], &in);
        if (fds[i] >= 0 && loop->all[i].wanted & POLLOUT)
            FD_SET(fds[i], &out);
        most = fds[i] >= most ? fds[i] + 1 : most;
    }
    MUST(select(most, &in, &out, NULL, &timeout));
    for (int i = 0; i < upto; i++) {
        int events = 0;
        if (fds[i] < 0 || !is_meant(loop, &loop->all[i]))
            continue;
        events |= FD_ISSET(fds[i], &in) ? POLLIN : 0;
        events |= FD_ISSET(fds[i], &out) ? POLLOUT : 0;
        if (events)
            event(loop->all[i].of, events);
    }
}

void loop_turn(struct loop *loop, int milliseconds, void (*event)(void *of, int events)) {
    static void (*const ways[])(struct loop *, int, void (*)(void *, int)) = {by_epoll, by_poll, by_select};
    loop->turn++;
    ways[loop->way](loop, milliseconds, event);
}
