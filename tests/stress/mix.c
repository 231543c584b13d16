/* Sockets in DDPMODE and plain ones in one loop: mix SECONDS epoll|poll|select SEED [SOCKETS].
 *
 * Two processes, one that connects and one that accepts, each with SOCKETS connections of either
 * kind at a time. What a connection does is drawn from its seed, which the connecting end sends
 * first: how many octets go each way, and whether an end gives up in the middle. Sizes, pauses,
 * calls and options are drawn as they come. Every octet is compared. It ends with 1 when an
 * octet is wrong, a call fails that may not, or a connection that is not paused has moved
 * nothing in twenty ticks.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "loop.h"
#include "stream.h"

enum { SEED_OCTETS = 8, HANG = 20, LISTENERS = 3, BUFFER = 256 * 1024 };

struct connection {
    int fd, slot;
    bool connects, framed, connecting, may_read, may_write, sent_fin, got_fin;
    enum trigger trigger;
    uint64_t seed;
    unsigned seed_octets; /* of the seed, that have been read */
    uint64_t sent, to_send, got, to_get;
    uint64_t cut; /* octets, both ways, at which this end gives up; 0: it does not */
    bool is_cut;  /* one of the ends does */
    uint64_t paused[2]; /* until when: reading, writing */
    uint64_t again;     /* when there is no connection: the next begins */
    unsigned ticks;     /* without progress */
};

static struct loop loop;
static struct connection connections[WATCHED];
static int count_of_connections;
static struct sockaddr_in to[LISTENERS];
static int listeners[LISTENERS];
static uint64_t luck, now, frozen_until;
static bool connects, is_ending;
static unsigned char buffer[BUFFER];

static struct {
    uint64_t begun[2], cut[2], octets_in[2], octets_out[2], calls, wakes, for_nothing[2], largest_pause;
} did;

static void set_stream(struct connection *one) {
    uint64_t script = one->seed;
    uint64_t sizes[2];
    for (int i = 0; i < 2; i++) {
        const uint64_t most[] = {1, 1000, 60000, 60000, 200000, 200000, 1000000, 3000000};
        sizes[i] = below(&script, most[below(&script, 8)] + 1);
    }
    one->is_cut = below(&script, 8) == 0;
    bool by_connecting = below(&script, 2);
    uint64_t at = below(&script, sizes[0] + sizes[1] + 1) + 1;
    one->to_send = sizes[connects ? 0 : 1] + (connects ? SEED_OCTETS : 0);
    one->to_get = sizes[connects ? 1 : 0] + (connects ? 0 : SEED_OCTETS);
    one->cut = one->is_cut && by_connecting == connects ? at : 0;
}

/* The two directions are two streams. */
static uint64_t seed_of(const struct connection *one, bool sending) { return one->seed ^ (sending == connects ? 0 : 0x5a5a); }

static void want(struct connection *one) {
    int wanted = one->connecting ? POLLOUT : 0;
    if (!one->connecting && !one->got_fin && one->paused[0] <= now)
        wanted |= POLLIN;
    if (!one->connecting && !one->sent_fin && one->paused[1] <= now && (connects || one->seed_octets == SEED_OCTETS))
        wanted |= POLLOUT;
    loop_want(&loop, one->slot, wanted);
}

static void begin(struct connection *one, int fd, bool framed) {
    one->fd = fd;
    one->framed = framed;
    one->trigger = below(&luck, 3);
    one->slot = loop_add(&loop, fd, one->trigger, one);
    did.begun[framed]++;
}

static void some_buffers(int fd) {
    int size = 4096 << below(&luck, 5), mss = 1400;
    if (below(&luck, 4) == 0)
        MUST(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size));
    if (!connects || below(&luck, 4) > 0)
        return;
    /* Loopback's segments would not fit the window, and each would wait for a timer. */
    MUST(setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof mss));
    if (below(&luck, 2))
        MUST(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size));
}

static void ask_for_frames(int fd) {
    MUST(set_option(fd, DDP_CRC, below(&luck, 4) > 0));
    MUST(set_option(fd, DDP_MARKERS, below(&luck, 4) == 0));
    MUST(set_option(fd, DDP_GATHER, below(&luck, 3)));
    MUST(set_option(fd, DDP_RTR, below(&luck, 4)));
    MUST(set_option(fd, DDPMODE, framed_mode()));
}

static void connect_one(struct connection *one) {
    bool framed = one->framed;
    memset(one, 0, sizeof *one);
    one->fd = tcp_socket(SOCK_NONBLOCK | SOCK_CLOEXEC);
    some_buffers(one->fd);
    if (framed)
        ask_for_frames(one->fd);
    one->seed = drawn(&luck);
    set_stream(one);
    const struct sockaddr_in *there = &to[framed ? 1 + below(&luck, 2) : 0];
    one->connecting = connect(one->fd, (const struct sockaddr *)there, sizeof *there) != 0;
    if (one->connecting && errno != EINPROGRESS)
        fail("connect: %s", strerror(errno));
    begin(one, one->fd, framed);
    want(one);
}

static void finish(struct connection *one) {
    loop_remove(&loop, one->slot);
    MUST(close(one->fd));
    one->fd = -1;
    one->again = now + below(&luck, 50);
}

static void lost(struct connection *one, const char *call, int error) {
    bool of_peer = error == ECONNRESET || error == EPIPE || error == ECONNABORTED || error == 0;
    bool stood_still = error == ETIMEDOUT && now < frozen_until;
    if (!(one->is_cut && of_peer) && !(one->seed_octets < SEED_OCTETS && !connects && of_peer) && !stood_still)
        fail("%s of a %s connection, %llu of %llu in, %llu of %llu out, trigger %d: %s", call, one->framed ? "framed" : "plain",
             (unsigned long long)one->got, (unsigned long long)one->to_get, (unsigned long long)one->sent,
             (unsigned long long)one->to_send, one->trigger, error ? strerror(error) : "an early end");
    finish(one);
}

static size_t random_size(void) {
    const uint64_t most[] = {16, 1500, 20000, BUFFER};
    return 1 + below(&luck, most[below(&luck, 4)]);
}

/* Returns three pieces of `count` octets of the buffer. */
static struct msghdr pieces(struct iovec list[3], size_t count) {
    size_t first = below(&luck, count + 1), second = below(&luck, count - first + 1);
    list[0] = (struct iovec){buffer, first};
    list[1] = (struct iovec){buffer + first, second};
    list[2] = (struct iovec){buffer + first + second, count - first - second};
    return (struct msghdr){.msg_iov = list, .msg_iovlen = 3};
}

static ssize_t receive(int fd, size_t room, bool *peeks) {
    struct iovec list[3];
    struct msghdr message = pieces(list, room);
    *peeks = false;
    switch (below(&luck, 6)) {
    case 0:
        return recv(fd, buffer, room, 0);
    case 1:
        return readv(fd, list, 3);
    case 2:
        return recvmsg(fd, &message, 0);
    case 3:
        *peeks = below(&luck, 4) == 0;
        return recv(fd, buffer, room, *peeks ? MSG_PEEK : MSG_DONTWAIT);
    default:
        return read(fd, buffer, room);
    }
}

static ssize_t transmit(int fd, size_t count, bool is_last) {
    struct iovec list[3];
    struct msghdr message = pieces(list, count);
    switch (below(&luck, 6)) {
    case 0:
        return send(fd, buffer, count, is_last ? 0 : MSG_MORE);
    case 1:
        return writev(fd, list, 3);
    case 2:
        return sendmsg(fd, &message, MSG_NOSIGNAL);
    case 3:
        return send(fd, buffer, count, MSG_DONTWAIT);
    default:
        return write(fd, buffer, count);
    }
}

static void pause_some(struct connection *one, bool writing) {
    if (below(&luck, 64) == 0)
        one->paused[writing] = now + below(&luck, 100);
}

static void take_seed(struct connection *one, size_t count) {
    memcpy((unsigned char *)&one->seed + one->seed_octets, buffer, count);
    one->seed_octets += count;
    one->got += count;
    if (one->seed_octets == SEED_OCTETS)
        set_stream(one);
}

static void take(struct connection *one, size_t count) {
    size_t good = stream_agrees(seed_of(one, false), one->got, buffer, count);
    if (good < count || one->got + count > one->to_get)
        fail("%s: wrong octet at %llu of %llu", one->framed ? "framed" : "plain", (unsigned long long)(one->got + good),
             (unsigned long long)one->to_get);
}

/* Reads once; returns whether there may be more at once. */
static bool read_some(struct connection *one) {
    bool peeks, seeded = connects || one->seed_octets == SEED_OCTETS;
    size_t room = seeded ? random_size() : SEED_OCTETS - one->seed_octets;
    int there = -1;
    if (below(&luck, 16) == 0)
        MUST(ioctl(one->fd, FIONREAD, &there));
    ssize_t count = receive(one->fd, room, &peeks);
    did.calls++;
    if (count < 0 && errno == EAGAIN) {
        if (there > 0)
            fail("FIONREAD said %d, and then there is nothing", there);
        return false;
    }
    one->ticks = 0;
    if (count < 0)
        return lost(one, "read", errno), false;
    if (count < there && count < (ssize_t)room)
        fail("FIONREAD said %d, and a read of %zu gave %zd", there, room, count);
    if (count == 0) {
        one->got_fin = true;
        if (!seeded || one->got < one->to_get)
            return lost(one, "read", 0), false;
        return false;
    }
    if (!seeded)
        return peeks || (take_seed(one, count), true);
    take(one, count);
    if (!peeks) {
        one->got += count;
        did.octets_in[one->framed] += count;
    }
    pause_some(one, false);
    return true;
}

static bool write_some(struct connection *one) {
    uint64_t left = one->to_send - one->sent;
    if (left == 0) {
        one->sent_fin = true;
        if (shutdown(one->fd, SHUT_WR) < 0)
            lost(one, "shutdown", errno == ENOTCONN ? EPIPE : errno);
        return false;
    }
    size_t size = random_size(), count = size < left ? size : left;
    stream_octets(seed_of(one, true), one->sent, buffer, count);
    if (connects && one->sent < SEED_OCTETS) {
        size_t some = SEED_OCTETS - one->sent < count ? SEED_OCTETS - one->sent : count;
        memcpy(buffer, (unsigned char *)&one->seed + one->sent, some);
    }
    ssize_t took = transmit(one->fd, count, count == left);
    did.calls++;
    if (took < 0 && errno == EAGAIN)
        return false;
    one->ticks = 0;
    if (took < 0)
        return lost(one, "write", errno), false;
    one->sent += took;
    did.octets_out[one->framed] += took;
    pause_some(one, true);
    return true;
}

/* Gives the connection's descriptor another number. */
static void renumber(struct connection *one) {
    int other = fcntl(one->fd, F_DUPFD_CLOEXEC, 0);
    MUST(other);
    loop_remove(&loop, one->slot);
    MUST(close(one->fd));
    one->fd = other;
    one->slot = loop_add(&loop, other, one->trigger, one);
}

static void connected(struct connection *one) {
    int error = 0;
    socklen_t len = sizeof error;
    MUST(getsockopt(one->fd, SOL_SOCKET, SO_ERROR, &error, &len));
    one->connecting = false;
    if (error)
        lost(one, "connect", error);
}

/* Does all work that is possible, once or, with edge triggers, until nothing is left. */
static void work(struct connection *one, bool told) {
    bool edges = loop.way == BY_EPOLL && one->trigger == EDGE;
    for (int turns = 0; turns < 16; turns++) {
        bool reads = one->fd >= 0 && one->may_read && !one->got_fin && one->paused[0] <= now;
        if (reads) {
            bool some = read_some(one);
            did.for_nothing[one->framed] += told && !some && one->fd >= 0 && !one->got_fin;
            one->may_read = some && edges;
        }
        bool writes = one->fd >= 0 && one->may_write && !one->sent_fin && one->paused[1] <= now &&
                      (connects || one->seed_octets == SEED_OCTETS);
        if (writes)
            one->may_write = write_some(one) && edges;
        if (one->fd >= 0 && one->cut && one->got + one->sent >= one->cut) {
            did.cut[one->framed]++;
            return finish(one);
        }
        told = false;
        if (one->fd < 0 || !edges || (!reads && !writes))
            break;
    }
    if (one->fd < 0)
        return;
    if (one->sent_fin && one->got_fin)
        return finish(one);
    if (below(&luck, 2000) == 0)
        renumber(one);
    want(one);
}

static void event(void *of, int events) {
    struct connection *one = of;
    did.wakes++;
    if (events & (POLLERR | POLLHUP))
        one->paused[0] = one->paused[1] = 0;
    if (one->connecting) {
        connected(one);
        if (one->fd < 0)
            return;
        events |= POLLOUT;
    }
    one->may_read |= (events & (POLLIN | POLLERR | POLLHUP)) != 0;
    one->may_write |= (events & (POLLOUT | POLLERR | POLLHUP)) != 0;
    work(one, events & POLLIN);
}

static void accept_some(void *of, int events) {
    int listener = (int *)of - listeners;
    (void)events;
    for (;;) {
        int fd = accept4(listeners[listener], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EAGAIN || errno == ECONNABORTED))
            return loop_want(&loop, listener, POLLIN);
        MUST(fd);
        struct connection *one = connections;
        while (one < connections + WATCHED && one->fd >= 0)
            one++;
        if (one == connections + WATCHED)
            fail("more connections than there should be");
        memset(one, 0, sizeof *one);
        some_buffers(fd);
        begin(one, fd, listener > 0);
        want(one);
    }
}

static void any_event(void *of, int events) {
    bool of_listener = (int *)of >= listeners && (int *)of < listeners + LISTENERS;
    (of_listener ? accept_some : event)(of, events);
}

/* Runs once a second; a process that was stopped has not hung. */
static void tick(void) {
    static uint64_t last;
    if (now < last + 1000)
        return;
    if (last && now > last + 3000)
        frozen_until = now + 10000;
    last = now;
    for (struct connection *one = connections; one < connections + WATCHED; one++) {
        if (one->fd < 0 || ++one->ticks < HANG)
            continue;
        struct tcp_info info = {0};
        socklen_t len = sizeof info;
        int unread = -1;
        getsockopt(one->fd, IPPROTO_TCP, TCP_INFO, &info, &len);
        ioctl(one->fd, FIONREAD, &unread);
        fail("no progress: %s %s, %llu of %llu in, %llu of %llu out, fins %d %d, trigger %d, wanted %d, may %d %d, state %d, %d to read, "
             "%u not acknowledged",
             connects ? "connecting" : "accepting", one->framed ? "framed" : "plain", (unsigned long long)one->got,
             (unsigned long long)one->to_get, (unsigned long long)one->sent, (unsigned long long)one->to_send, one->got_fin,
             one->sent_fin, one->trigger, loop.all[one->slot].wanted, one->may_read, one->may_write, info.tcpi_state, unread,
             info.tcpi_unacked);
    }
}

/* Handles everything that no event reports: pauses that end, edges that are not used up,
 * connections to begin. Returns the time until the next of these. */
static int attend(void) {
    uint64_t next = now + 1000;
    for (struct connection *one = connections; one < connections + WATCHED; one++) {
        if (one->fd < 0) {
            if (connects && !is_ending && one < connections + count_of_connections) {
                if (one->again <= now)
                    connect_one(one);
                else if (one->again < next)
                    next = one->again;
            }
            continue;
        }
        bool due = one->trigger == EDGE && !one->connecting && (one->may_read || one->may_write);
        bool paused = false;
        for (int i = 0; i < 2; i++) {
            if (one->paused[i] > now)
                next = one->paused[i] < next ? one->paused[i] : next;
            paused |= one->paused[i] > now;
            if (one->paused[i] && one->paused[i] <= now) {
                one->paused[i] = 0;
                due = true;
            }
        }
        if (paused)
            one->ticks = 0;
        if (due)
            work(one, false);
        due = one->fd >= 0 && loop.way == BY_EPOLL && one->trigger == EDGE && !one->connecting &&
              ((one->may_read && !one->got_fin && !one->paused[0]) || (one->may_write && !one->sent_fin && !one->paused[1]));
        if (due)
            next = now;
    }
    return (int)(next - now);
}

static int open_connections(void) {
    int open = 0;
    for (int i = 0; i < WATCHED; i++)
        open += connections[i].fd >= 0;
    return open;
}

static void run(const char *who, uint64_t until, int peer) {
    char octet;
    for (;;) {
        now = milliseconds();
        tick();
        if (!is_ending && now >= until && connects)
            is_ending = true;
        /* The process that connects has ended. */
        if (!connects && !is_ending && recv(peer, &octet, 1, MSG_DONTWAIT) == 0)
            is_ending = true;
        if (is_ending && open_connections() == 0)
            break;
        int wait = attend();
        loop_turn(&loop, wait > 100 ? 100 : wait, any_event);
    }
    printf("%s: connections %llu framed (%llu given up in the middle) and %llu plain (%llu); octets in %llu and %llu, out %llu and "
           "%llu; %llu calls, %llu wake-ups, of these for nothing %llu and %llu\n",
           who, (unsigned long long)did.begun[1], (unsigned long long)did.cut[1], (unsigned long long)did.begun[0],
           (unsigned long long)did.cut[0], (unsigned long long)did.octets_in[1], (unsigned long long)did.octets_in[0],
           (unsigned long long)did.octets_out[1], (unsigned long long)did.octets_out[0], (unsigned long long)did.calls,
           (unsigned long long)did.wakes, (unsigned long long)did.for_nothing[1], (unsigned long long)did.for_nothing[0]);
}

static void listen_all(void) {
    for (int i = 0; i < LISTENERS; i++) {
        listeners[i] = tcp_socket(SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (i > 0) {
            MUST(set_option(listeners[i], DDP_MARKERS, i == 2));
            MUST(set_option(listeners[i], DDPMODE, framed_mode()));
        }
        listen_on(listeners[i], &to[i]);
    }
}

int main(int count, char **words) {
    if (count < 4)
        fail("SECONDS epoll|poll|select SEED [SOCKETS]");
    uint64_t until = milliseconds() + strtoull(words[1], NULL, 10) * 1000;
    enum way way = words[2][0] == 'e' ? BY_EPOLL : words[2][0] == 'p' ? BY_POLL : BY_SELECT;
    luck = strtoull(words[3], NULL, 10);
    int sockets = count > 4 ? atoi(words[4]) : 64, peer[2], status = 0;
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < WATCHED; i++)
        connections[i].fd = -1;
    listen_all();
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, peer));
    pid_t child = fork();
    MUST(child);
    connects = child == 0;
    luck += connects;
    loop_begin(&loop, way);
    for (int i = 0; i < LISTENERS; i++) {
        if (connects)
            MUST(close(listeners[i]));
        else
            loop_want(&loop, loop_add(&loop, listeners[i], LEVEL, &listeners[i]), POLLIN);
    }
    if (connects) {
        MUST(close(peer[0]));
        count_of_connections = 2 * sockets;
        for (int i = 0; i < count_of_connections; i++)
            connections[i].framed = i % 2;
        run("connects", until, peer[1]);
        return 0;
    }
    MUST(close(peer[1]));
    run(" accepts", until, peer[0]);
    MUST(waitpid(child, &status, 0));
    return status != 0;
}
