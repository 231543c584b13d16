/* Which rule of readiness is tried is the first argument; the way of waiting is tried in turn.
 * "as it should be", or the line that is not so. */
#include "readiness.h"

static char buf[70000];

/* RD1, RD2: an FPDU an octet at a time is readable when it is whole, and wakes no thread before. */
static void octets(enum kind kind) {
    int ends[2];
    ready(ends);
    struct waiter one = waiter(kind, ends[0], POLLIN);
    for (int round = 0; round < 2; round++) {
        long before = sleeps();
        pthread_t thread = trickle(ends[1], 300, 'a' + round);
        IS(await(&one, LONG, NULL), POLLIN);
        IS(trickled, 1);
        FEW(sleeps() - before, 30);
        pthread_join(thread, NULL);
        IS(read(ends[0], buf, sizeof buf), 300);
        IS(buf[299], 'a' + round);
        FAILS(read(ends[0], buf, 1), EAGAIN);
        IS(await(&one, 0, NULL), 0);
    }
    done(&one);
}

/* RD1: the rest of an FPDU is readable until it is read. */
static void leftovers(enum kind kind) {
    int ends[2];
    ready(ends);
    struct waiter one = waiter(kind, ends[0], POLLIN);
    send_fpdu(ends[1], 50, 'x');
    IS(await(&one, LONG, NULL), POLLIN);
    for (int i = 0; i < 50; i++) {
        if (kind != EDGE)
            IS(await(&one, 0, NULL), POLLIN);
        IS(read(ends[0], buf, 1), 1);
    }
    IS(await(&one, 0, NULL), 0);
    struct waiter later = waiter(kind, ends[0], POLLIN);
    IS(await(&later, 0, NULL), 0);
    send_fpdu(ends[1], 0, 0);
    send_fpdu(ends[1], 1, 'y');
    IS(await(&one, LONG, NULL), POLLIN);
    IS(await(&later, LONG, NULL), POLLIN);
    IS(read(ends[0], buf, 2), 1);
    done(&one);
    done(&later);
}

static void marks(int fd, int octets) {
    IS(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &octets, sizeof octets), 0);
}

/* As over TCP: SO_RCVLOWAT is for waits, too. */
static void low_water(enum kind kind) {
    int ends[2];
    ready(ends);
    marks(ends[0], 5);
    struct waiter one = waiter(kind, ends[0], POLLIN);
    send_fpdu(ends[1], 3, 'a');
    IS(await(&one, SOON, NULL), 0);
    send_fpdu(ends[1], 1, 'b');
    long before = sleeps();
    IS(await(&one, SOON, NULL), 0);
    FEW(sleeps() - before, 3);
    send_fpdu(ends[1], 1, 'c');
    IS(await(&one, LONG, NULL), POLLIN);
    IS(read(ends[0], buf, sizeof buf), 5);
    send_fpdu(ends[1], 1, 'd');
    IS(await(&one, SOON, NULL), 0);
    marks(ends[0], 1);
    IS(await(&one, LONG, NULL), POLLIN);
    done(&one);
}

static void *drain(void *of) {
    static char octets[100000];
    long left = *(long *)of;
    int peer = ((long *)of)[1];
    while (left > 0) {
        ssize_t count = read(peer, octets, sizeof octets);
        if (count <= 0)
            abort();
        left -= count;
    }
    return NULL;
}

/* RD3: a full window. */
static void full(enum kind kind) {
    int ends[2];
    ready(ends);
    struct waiter one = waiter(kind, ends[0], POLLOUT);
    IS(await(&one, LONG, NULL), POLLOUT);
    long sent[2] = {0, ends[1]};
    ssize_t count;
    while ((count = send(ends[0], buf, sizeof buf, MSG_NOSIGNAL)) > 0)
        sent[0] += count;
    IS(errno, EAGAIN);
    long before = sleeps();
    IS(await(&one, SOON, NULL), 0);
    FEW(sleeps() - before, 10);
    pthread_t thread;
    pthread_create(&thread, NULL, drain, sent);
    IS(await(&one, LONG, NULL), POLLOUT);
    IS(send(ends[0], buf, 1, MSG_NOSIGNAL), 1);
    pthread_join(thread, NULL);
    done(&one);
}

/* As many octets as are kept before the startup allows sending. */
static char early_octets[16 * 1024];

static void says_all_it_may(struct waiter *one, int fd) {
    IS(await(one, LONG, NULL), POLLOUT);
    IS(write(fd, early_octets, sizeof early_octets), sizeof early_octets);
    FAILS(write(fd, "x", 1), EAGAIN);
}

/* RD3: a responder may send when the initiator's first FPDU has come (RFC 5044 section 7.1.2). */
static void leave(enum kind kind) {
    int ends[2];
    quiet(ends);
    struct waiter one = waiter(kind, ends[0], POLLIN | POLLOUT);
    says_all_it_may(&one, ends[0]);
    long before = sleeps();
    IS(await(&one, SOON, NULL), 0);
    request(ends[1]);
    IS(await(&one, SOON, NULL), 0);
    FAILS(write(ends[0], "x", 1), EAGAIN);
    FEW(sleeps() - before, 40);
    pthread_t thread = trickle(ends[1], 5, 'f');
    int got = await(&one, LONG, NULL);
    IS(trickled, 1);
    if (got != (POLLIN | POLLOUT)) /* POLLOUT and POLLIN may come one after the other */
        got |= await(&one, LONG, NULL);
    IS(got, POLLIN | POLLOUT);
    pthread_join(thread, NULL);
    IS(write(ends[0], "x", 1), 1);
    IS(read(ends[0], buf, 9), 5);
    done(&one);
}

/* RD6, RD3: an initiator that is waited for before it is connected. */
static void initiator(enum kind kind) {
    struct sockaddr_in addr;
    int listener = listening(&addr, 0), on = 1, off = 0, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct waiter early = {0};
    if (kind >= LEVEL)
        early = waiter(kind, fd, POLLOUT);
    IS(setsockopt(fd, SOL_DDP, DDPMODE, &on, sizeof on), 0);
    IS(setsockopt(fd, SOL_DDP, DDP_CRC, &off, sizeof off), 0);
    struct waiter one = waiter(kind, fd, POLLOUT);
    FAILS(connect(fd, (void *)&addr, sizeof addr), EINPROGRESS);
    says_all_it_may(&one, fd);
    IS(await(&one, SOON, NULL), 0);
    int peer = accept(listener, NULL, NULL);
    IS(await(&one, SOON, NULL), 0);
    IS(recv(peer, buf, 24, MSG_WAITALL), 24);
    IS(memcmp(buf, "MPA ID Req Frame", 16), 0);
    IS(await(&one, SOON, NULL), 0);
    /* RFC 6581 section 9: a Write as RTR. */
    IS(write(peer, "MPA ID Rep Frame\20\2\0\4\200 \200 ", 24), 24);
    IS(await(&one, LONG, NULL), POLLOUT);
    int error = 7;
    socklen_t len = sizeof error;
    IS(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len), 0);
    IS(error, 0);
    IS(write(fd, "x", 1), 1);
    if (kind >= LEVEL && kind != EDGE)
        IS(await(&early, 0, NULL), POLLOUT);
    done(&one);
}

/* The end of a direction, and of a connection. */
static void ends_of_it(enum kind kind) {
    int ends[2];
    ready(ends);
    struct waiter one = waiter(kind, ends[0], POLLIN);
    IS(shutdown(ends[1], SHUT_WR), 0);
    IS(await(&one, LONG, NULL), POLLIN);
    IS(read(ends[0], buf, 1), 0);
    done(&one);
    ready(ends);
    one = waiter(kind, ends[0], POLLIN);
    struct linger now = {1, 0};
    setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(ends[1]);
    IS(await(&one, LONG, NULL), POLLIN);
    FAILS(read(ends[0], buf, 1), ECONNRESET);
    done(&one);
    /* A peer that breaks the protocol. */
    ready(ends);
    one = waiter(kind, ends[0], POLLIN);
    IS(write(ends[1], "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 32), 32);
    IS(await(&one, LONG, NULL), POLLIN);
    IS(read(ends[0], buf, 1), -1);
    struct waiter after = waiter(kind, ends[0], POLLIN);
    IS(await(&after, LONG, NULL), POLLIN);
    long got = read(ends[0], buf, 1);
    IS(got <= 0, 1);
}

static volatile int signals;

static void count(int number) { signals += number == SIGALRM; }

/* RD7: time-outs, signals and masks, with a partial FPDU there. */
static void times(enum kind kind) {
    int ends[2];
    ready(ends);
    struct waiter one = waiter(kind, ends[0], POLLIN);
    struct timespec begin = now();
    IS(write(ends[1], "\0", 1), 1);
    IS(await(&one, SOON, NULL), 0);
    IS(since(&begin) >= SOON * 1000, 1);
    /* Again and again: on a busy machine the first may come before the wait sleeps. */
    struct itimerval in = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    signal(SIGALRM, count);
    signals = 0;
    setitimer(ITIMER_REAL, &in, NULL);
    FAILS(await(&one, LONG, NULL), EINTR);
    setitimer(ITIMER_REAL, &never, NULL);
    IS(signals >= 1, 1);
    signals = 1;
    /* Blocked but for the time of the wait. */
    sigset_t alarms, none;
    sigemptyset(&none);
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarms, NULL);
    raise(SIGALRM);
    IS(signals, 1);
    FAILS(await(&one, LONG, &none), EINTR);
    IS(signals, 2);
    sigprocmask(SIG_UNBLOCK, &alarms, NULL);
    IS(await(&one, 0, NULL), 0);
    done(&one);
}

/* Linux tells `select` how much of the time is left. */
static void time_left(enum kind kind) {
    if (kind != SELECT)
        return;
    int ends[2];
    ready(ends);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    struct timeval time = {100, 0};
    send_fpdu(ends[1], 1, 'x');
    IS(select(ends[0] + 1, &set, NULL, NULL, &time), 1);
    IS(time.tv_sec, 99);
    IS(read(ends[0], buf, 1), 1);
    time = (struct timeval){0, 2000};
    IS(select(ends[0] + 1, &set, NULL, NULL, &time), 0);
    IS(time.tv_sec + time.tv_usec, 0);
    IS(FD_ISSET(ends[0], &set), 0);
    static const struct timeval in_read_only_memory = {0, 2000};
    FD_SET(ends[0], &set);
    IS(select(ends[0] + 1, &set, NULL, NULL, (struct timeval *)&in_read_only_memory), 0);
    IS(in_read_only_memory.tv_usec, 2000);
}

/* RD4: plain descriptors and framed ones in one call. */
static void mixed(enum kind kind) {
    int ends[2], tube[2];
    ready(ends);
    IS(pipe(tube), 0);
    struct pollfd all[] = {{tube[0], POLLIN, 9}, {-1, POLLIN, 9}, {ends[0], POLLIN, 9}, {tube[1], POLLOUT, 9}, {777, POLLIN, 9}};
    send_fpdu(ends[1], 3, 'x');
    IS(write(tube[1], "x", 1), 1);
    IS(poll(&all[2], 1, LONG), 1);
    IS(poll(all, 5, LONG), 4);
    IS(all[0].revents, POLLIN);
    IS(all[1].revents, 0);
    IS(all[2].revents, POLLIN);
    IS(all[3].revents, POLLOUT);
    IS(all[4].revents, POLLNVAL);
    fd_set read, write;
    FD_ZERO(&read);
    FD_ZERO(&write);
    FD_SET(tube[0], &read);
    FD_SET(ends[0], &read);
    FD_SET(tube[1], &write);
    FD_SET(ends[0], &write);
    IS(select(ends[0] + 10, &read, &write, NULL, NULL), 4);
    FD_SET(60, &read);
    FAILS(select(61, &read, NULL, NULL, NULL), EBADF);
    /* A number that means another file by a call that the library did not see. */
    int old = ends[0];
    IS(fclose(fdopen(old, "r+")), 0);
    FILE *other = fopen("/dev/zero", "r");
    IS(fileno(other), old);
    struct pollfd one = {old, POLLIN, 9};
    IS(poll(&one, 1, LONG), 1);
    IS(one.revents, POLLIN);
    fclose(other);
}

extern void sets(void);

static const struct {
    const char *name;
    void (*try)(enum kind);
} rules[] = {{"octets", octets}, {"leftovers", leftovers}, {"low_water", low_water}, {"full", full},
             {"leave", leave},   {"initiator", initiator}, {"ends", ends_of_it},     {"times", times},
             {"mixed", mixed},   {"time_left", time_left}};

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    for (unsigned rule = 0; rule < sizeof rules / sizeof *rules; rule++)
        for (enum kind kind = POLL; kind < KINDS && strcmp(argv[1], rules[rule].name) == 0; kind++) {
            doing = names[kind];
            rules[rule].try(kind);
        }
    if (strcmp(argv[1], "sets") == 0)
        sets();
    puts("as it should be");
    return 0;
}
