/* One way to wait for many descriptors, by epoll, poll or select. */
#ifndef STRESS_LOOP_H
#define STRESS_LOOP_H

#include <stdbool.h>

enum way { BY_EPOLL, BY_POLL, BY_SELECT };
enum trigger { LEVEL, EDGE, ONESHOT };

#define WATCHED 512

struct loop {
    enum way way;
    int epoll;
    int count;
    unsigned turn;
    struct watched {
        int fd; /* -1: none */
        int wanted;
        enum trigger trigger; /* but by epoll always LEVEL */
        void *of;
        unsigned born; /* in this turn: what it is told was meant for who had its number before */
    } all[WATCHED];
};

void loop_begin(struct loop *loop, enum way way);
/* Watches `fd`, for none of its events so far; returns its slot. */
int loop_add(struct loop *loop, int fd, enum trigger trigger, void *of);
/* `wanted`: POLLIN, POLLOUT. A descriptor whose event was reported under ONESHOT has to be armed
 * again. */
void loop_want(struct loop *loop, int slot, int wanted);
/* Must be called before the descriptor is closed. */
void loop_remove(struct loop *loop, int slot);
/* Sleeps for `milliseconds` at most, and calls `event` for each event. */
void loop_turn(struct loop *loop, int milliseconds, void (*event)(void *of, int events));

#endif
