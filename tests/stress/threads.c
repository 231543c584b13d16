/* Four threads with the same descriptors: threads SECONDS SEED [plain|wild].
 *
 * Each takes a descriptor at random and sends, receives, waits, closes it, gives it another
 * number, connects, accepts, sets an option. Numbers are closed, and used again for framed and
 * plain connections, while others sleep in calls on them. All octets that are sent are the
 * same one: any other that comes is one that no program has sent. It hangs when a thread's
 * call takes twenty seconds.
 *
 * No call begins on a number that was closed before: what the number is then is for nobody to say.
 * Wild threads do that as well; their octets are not looked at.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/uio.h>

#include "stream.h"

enum { THREADS = 4, DESCRIPTORS = 12, LISTENERS = 2, OCTET = 0x5a, HANG = 20, CLOSED = -1, SURELY_ASLEEP = 100 };

static atomic_int descriptors[DESCRIPTORS];
static int listeners[LISTENERS], epoll;
static struct sockaddr_in addr[LISTENERS];
static bool framed = true, wild;
static atomic_bool is_over;
static atomic_ullong octets_in, octets_out, connections, calls;
static _Thread_local uint64_t luck;
static _Thread_local unsigned char buffer[100000];

static _Thread_local struct worker *self;

static struct worker {
    pthread_t thread;
    uint64_t luck;
    atomic_uint turns;
    atomic_int number;    /* of the thread */
    atomic_int call;
    atomic_int fd;        /* what its call is on, or CLOSED */
    atomic_ullong since;
} workers[THREADS];

/* A thread that waits for a processor may still be in front of its call's system call, which would
 * begin on whatever has the number then: it sleeps by the kernel's word alone. */
static bool is_asleep(struct worker *other) {
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&other->number));
    FILE *file = fopen(path, "re");
    if (file == NULL || fgets(line, sizeof line, file) == NULL)
        fail("%s: %s", path, strerror(errno));
    fclose(file);
    return milliseconds() >= other->since + SURELY_ASLEEP && strstr(line, ") S ") != NULL;
}

/* Closes a number on which no new call begins, as soon as the calls that have begun are asleep. */
static void close_safely(int fd) {
    for (int i = 0; i < THREADS && !wild; i++)
        while (workers[i].fd == fd && &workers[i] != self && !is_asleep(&workers[i]))
            usleep(100);
    close(fd);
}

/* Puts `fd` into a place, and closes what was there. */
static void place(int fd) {
    int before = atomic_exchange(&descriptors[below(&luck, DESCRIPTORS)], fd);
    if (before != CLOSED)
        close_safely(before);
}

static void came(ssize_t count) {
    for (ssize_t i = 0; i < count && !wild; i++)
        if (buffer[i] != OCTET)
            fail("octet %zd of %zd is %02x, which nobody has sent", i, count, buffer[i]);
    if (count > 0)
        octets_in += count;
}

static void went(ssize_t count) {
    if (count > 0)
        octets_out += count;
}

static void time_outs(int fd) {
    struct timeval soon = {.tv_usec = 200000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
}

static void connect_one(void) {
    int which = below(&luck, LISTENERS);
    int fd = socket(AF_INET, SOCK_STREAM | (below(&luck, 2) ? SOCK_NONBLOCK : 0), 0);
    if (fd < 0)
        return;
    if (which && framed)
        set_option(fd, DDPMODE, framed_mode());
    time_outs(fd);
    if (connect(fd, (struct sockaddr *)&addr[which], sizeof addr[which]) < 0 && errno != EINPROGRESS) {
        close(fd);
        return;
    }
    connections++;
    place(fd);
}

static void accept_one(void) {
    int fd = accept4(listeners[below(&luck, LISTENERS)], NULL, NULL, below(&luck, 2) ? SOCK_NONBLOCK : 0);
    if (fd < 0)
        return;
    time_outs(fd);
    place(fd);
}

static void wait_for_some(void) {
    struct epoll_event events[4];
    struct pollfd fds[DESCRIPTORS];
    fd_set in;
    FD_ZERO(&in);
    for (int i = 0; i < DESCRIPTORS; i++) {
        int fd = atomic_load(&descriptors[i]);
        fds[i] = (struct pollfd){.fd = fd, .events = POLLIN | (below(&luck, 2) ? POLLOUT : 0)};
        if (fd >= 0 && fd < FD_SETSIZE)
            FD_SET(fd, &in);
    }
    struct timeval soon = {.tv_usec = 3000};
    switch (below(&luck, 3)) {
    case 0:
        poll(fds, DESCRIPTORS, 3);
        break;
    case 1:
        select(FD_SETSIZE, &in, NULL, NULL, &soon);
        break;
    case 2:
        epoll_wait(epoll, events, 4, 3);
    }
}

static void watch(int fd) {
    struct epoll_event event = {.events = EPOLLIN | (below(&luck, 2) ? EPOLLET : 0), .data.fd = fd};
    const int commands[] = {EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL};
    epoll_ctl(epoll, commands[below(&luck, 3)], fd, &event);
}

static void options(int fd) {
    int on = below(&luck, 2), mode = 0;
    socklen_t len = sizeof mode;
    struct ddp_mode_info info;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, 3 /* TCP_CORK */, &on, sizeof on);
    time_outs(fd);
    getsockopt(fd, SOL_DDP, DDPMODE, &mode, &len);
    len = sizeof info;
    getsockopt(fd, SOL_DDP, DDP_MODE_INFO, &info, &len);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &mode, &(socklen_t){sizeof mode});
}

static void send_some(int fd, int flags) {
    size_t count = below(&luck, below(&luck, 2) ? 1000 : sizeof buffer);
    memset(buffer, OCTET, sizeof buffer);
    struct iovec list[2] = {{buffer, count / 2}, {buffer, count - count / 2}};
    went(below(&luck, 2) ? send(fd, buffer, count, flags | MSG_NOSIGNAL) : writev(fd, list, 2));
}

static void receive_some(int fd, int flags) {
    size_t count = below(&luck, below(&luck, 2) ? 1000 : sizeof buffer);
    ssize_t got = recv(fd, buffer, count, flags | (below(&luck, 8) ? 0 : MSG_PEEK));
    came(got);
}

static void close_one(void) {
    int fd = atomic_exchange(&descriptors[below(&luck, DESCRIPTORS)], CLOSED);
    if (fd != CLOSED)
        close_safely(fd);
}

static void renumber(int fd) {
    int other = below(&luck, 2) ? dup(fd) : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    self->fd = CLOSED;
    if (other >= 0)
        place(other);
}

static void one_call(struct worker *me, int fd) {
    int call = below(&luck, 32), unread;
    atomic_store(&me->call, call);
    switch (call) {
    case 0:
    case 1:
        me->fd = CLOSED;
        return connect_one();
    case 2:
    case 3:
        me->fd = CLOSED;
        return accept_one();
    case 4:
        me->fd = CLOSED;
        return close_one();
    case 5:
        return renumber(fd);
    case 6:
        shutdown(fd, below(&luck, 3));
        return;
    case 7:
        return options(fd);
    case 8:
        ioctl(fd, FIONREAD, &unread);
        return;
    case 9:
    case 10:
        return watch(fd);
    case 11:
    case 12:
    case 13:
        return wait_for_some();
    case 14:
        return send_some(fd, 0);
    case 15:
        return receive_some(fd, 0);
    default:
        return call % 2 ? send_some(fd, MSG_DONTWAIT) : receive_some(fd, MSG_DONTWAIT);
    }
}

static void *work(void *argument) {
    struct worker *me = argument;
    luck = me->luck;
    self = me;
    me->number = gettid();
    while (!atomic_load(&is_over)) {
        atomic_int *place = &descriptors[below(&luck, DESCRIPTORS)];
        int fd = atomic_load(place);
        me->since = milliseconds();
        me->fd = fd;
        if (fd == atomic_load(place))
            one_call(me, fd);
        me->fd = CLOSED;
        me->turns++;
        calls++;
    }
    return NULL;
}

/* Waits until a thread gets nowhere for twenty waits of a second; a process that
 * was stopped has not hung. */
static void watch_over(unsigned seconds) {
    unsigned before[THREADS] = {0}, still[THREADS] = {0};
    for (unsigned second = 0; second < seconds; second++) {
        sleep(1);
        for (int i = 0; i < THREADS; i++) {
            unsigned turns = atomic_load(&workers[i].turns);
            still[i] = turns == before[i] ? still[i] + 1 : 0;
            before[i] = turns;
            if (still[i] >= HANG)
                fail("thread %d hangs in call %d", i, atomic_load(&workers[i].call));
        }
    }
}

int main(int count, char **words) {
    if (count < 3)
        fail("SECONDS SEED [plain|wild]");
    framed = count < 4 || words[3][0] == 'w';
    wild = count > 3 && words[3][0] == 'w';
    luck = strtoull(words[2], NULL, 10);
    signal(SIGPIPE, SIG_IGN);
    MUST(epoll = epoll_create1(0));
    for (int i = 0; i < DESCRIPTORS; i++)
        descriptors[i] = CLOSED;
    for (int i = 0; i < LISTENERS; i++) {
        listeners[i] = tcp_socket(SOCK_NONBLOCK);
        if (i && framed)
            MUST(set_option(listeners[i], DDPMODE, framed_mode()));
        listen_on(listeners[i], &addr[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        workers[i].luck = drawn(&luck);
        workers[i].fd = CLOSED;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            fail("no thread");
    }
    watch_over(atoi(words[1]));
    atomic_store(&is_over, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    printf("%llu calls, %llu connections, octets %llu in and %llu out\n", calls, connections, octets_in, octets_out);
    return 0;
}
