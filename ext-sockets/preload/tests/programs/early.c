/* Programs that write as soon as they are connected: early WAY. TCP takes the first octets at
 * once, and so does DDPMODE. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/tcp.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"
#include "rddp/ddp.h"

#define LIMIT (16 * 1024)

static struct sockaddr_in here;
static int listener;
static char said[4 * LIMIT], heard[4 * LIMIT];

static int connects(int kind) {
    int fd = socket(AF_INET, SOCK_STREAM | kind, 0);
    int result = connect(fd, (void *)&here, sizeof here);
    IS(fd >= 0 && (result == 0 || errno == EINPROGRESS), 1);
    return fd;
}

static int accepts(int kind) {
    int fd = accept4(listener, NULL, NULL, kind);
    IS(fd >= 0, 1);
    return fd;
}

static void waits(int fd, int events) {
    struct pollfd entry = {fd, events, 0};
    IS(poll(&entry, 1, 20000), 1);
    IS(entry.revents & (POLLERR | POLLNVAL), 0);
}

/* Reads so many octets, which are those that were said from `from` on, and then the end if there
 * is to be one. */
static void hears(int fd, size_t from, size_t count, int end) {
    size_t all = 0;
    while (all < count) {
        waits(fd, POLLIN);
        ssize_t now = read(fd, heard, count - all);
        IS(now > 0 || errno == EAGAIN, 1);
        if (now > 0) {
            IS(memcmp(heard, said + from + all, now), 0);
            all += now;
        }
    }
    if (end) {
        waits(fd, POLLIN);
        IS(read(fd, heard, 1), 0);
    }
}

/* A server that has too many clients says so and closes. */
static void banner_and_close(void) {
    for (int at = 0; at < 40; at++) {
        int fd = connects(at % 2 ? SOCK_NONBLOCK : 0), peer = accepts(at % 4 < 2 ? SOCK_NONBLOCK : 0);
        IS(write(peer, said, 50), 50);
        close(peer);
        waits(fd, POLLOUT);
        hears(fd, 0, 50, 1);
        close(fd);
    }
}

static struct linger linger_of(int fd, int kernels) {
    struct linger linger = {-1, -1};
    socklen_t len = sizeof linger;
    IS(kernels ? syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_LINGER, &linger, &len)
               : getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &len),
       0);
    return linger;
}

/* A server whose process dies behind its banner, without a word to the library, while the client
 * sleeps. TCP has the banner; a stream that could not send it yet must not end as if there had been
 * none. */
static void banner_and_death(void) {
    for (int way = 0; way < 2; way++) {
        pid_t child = fork();
        if (child == 0) {
            int peer = accepts(0);
            struct linger program = {1, 20};
            IS(setsockopt(peer, SOL_SOCKET, SO_LINGER, &program, sizeof program), 0);
            IS(write(peer, said, 50), 50);
            IS(linger_of(peer, 0).l_linger, 20);
            if (way)
                kill(getpid(), SIGKILL);
            _exit(0);
        }
        int fd = connects(0);
        IS(waitpid(child, NULL, 0), child);
        char octets[100];
        ssize_t got = recv(fd, octets, sizeof octets, 0);
        if (getenv("RDDP_FAMILY")) {
            IS(got, -1);
            IS(errno, ECONNRESET);
        } else {
            IS(got, 50);
        }
        close(fd);
    }
    /* The program's value is the kernel's again when the octets have gone. */
    int fd = connects(0), peer = accepts(0);
    struct linger program = {1, 20};
    IS(write(peer, said, 50), 50);
    IS(setsockopt(peer, SOL_SOCKET, SO_LINGER, &program, sizeof program), 0);
    IS(write(fd, said, 50), 50);
    hears(peer, 0, 50, 0);
    hears(fd, 0, 50, 0);
    IS(linger_of(peer, 1).l_linger, 20);
    close(fd), close(peer);
}

/* One thread has both ends, and neither waits for the other; nor do blocking ones that write
 * before they accept. */
static void both_ends(void) {
    for (int kind = 0; kind < 2; kind++) {
        int fd = connects(kind * SOCK_NONBLOCK);
        waits(fd, POLLOUT);
        IS(write(fd, said, 1000), 1000);
        int peer = accepts(kind * SOCK_NONBLOCK);
        IS(write(peer, said, 1000), 1000);
        IS(write(fd, said + 1000, 1000), 1000);
        hears(peer, 0, 2000, 0);
        hears(fd, 0, 1000, 0);
        close(fd), close(peer);
    }
}

/* A program that has said something and exits. */
static void by_exit(void) {
    for (int connecting = 0; connecting < 2; connecting++) {
        pid_t child = fork();
        if (child == 0) {
            int fd = connecting ? connects(0) : accepts(SOCK_NONBLOCK);
            if (connecting)
                IS(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
            IS(write(fd, said, 3000), 3000);
            exit(0);
        }
        int fd = connecting ? accepts(0) : connects(0);
        hears(fd, 0, 3000, 1);
        IS(waitpid(child, NULL, 0), child);
        close(fd);
    }
}

static void half_close(void) {
    int fd = connects(SOCK_NONBLOCK), peer = accepts(SOCK_NONBLOCK);
    waits(fd, POLLOUT);
    IS(write(fd, said, 100), 100);
    IS(shutdown(fd, SHUT_WR), 0);
    FAILS(send(fd, said, 1, MSG_NOSIGNAL), EPIPE);
    IS(write(peer, said, 200), 200);
    IS(shutdown(peer, SHUT_WR), 0);
    hears(peer, 0, 100, 1);
    hears(fd, 0, 200, 1);
    close(fd), close(peer);
}

/* There is a limit, and an edge when there is room again. */
static void edge_of_room(void) {
    for (int way = 0; way < 2; way++) {
        int fd = connects(SOCK_NONBLOCK), peer = accepts(SOCK_NONBLOCK), epoll = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
        ssize_t count;
        size_t all = 0;
        int from = way ? fd : peer, to = way ? peer : fd;
        IS(epoll_ctl(epoll, EPOLL_CTL_ADD, from, &event), 0);
        /* No thread waits, so that the startup goes no further. */
        while (all < sizeof said && (count = write(from, said + all, sizeof said - all)) > 0)
            all += count;
        if (getenv("RDDP_FAMILY")) {
            IS(all, LIMIT);
            FAILS(write(from, said, 1), EAGAIN);
            FAILS(read(from, heard, 1), EAGAIN);
        }
        size_t got = 0;
        while (got < sizeof said) {
            /* Each in turn, as one loop has it. */
            struct pollfd entry = {to, POLLIN, 0};
            if (all < sizeof said && epoll_wait(epoll, &event, 1, 5) == 1 && event.events & EPOLLOUT)
                while (all < sizeof said && (count = write(from, said + all, sizeof said - all)) > 0)
                    all += count;
            if (poll(&entry, 1, 5) == 1 && (count = read(to, heard, sizeof heard)) > 0) {
                IS(memcmp(heard, said + got, count), 0);
                got += count;
            }
        }
        close(fd), close(peer), close(epoll);
    }
}

/* Parent and child have one connection, and both say something. */
static void of_two_processes(void) {
    int fd = connects(SOCK_NONBLOCK), peer = accepts(SOCK_NONBLOCK), status = 1;
    IS(write(peer, said, 10), 10);
    pid_t child = fork();
    if (child == 0)
        exit(write(peer, said + 10, 20) == 20 ? 0 : 1);
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    IS(write(peer, said + 30, 30), 30);
    close(peer);
    waits(fd, POLLOUT);
    hears(fd, 0, 60, 1);
    close(fd);
}

/* The counts of unsent octets include early ones, and so does the limit of TCP_NOTSENT_LOWAT. */
static void counted(void) {
    int fd = connects(SOCK_NONBLOCK), peer = accepts(SOCK_NONBLOCK), count = 0, most = 2000;
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    if (!getenv("RDDP_FAMILY"))
        return;
    IS(write(peer, said, 3000), 3000);
    IS(ioctl(peer, SIOCOUTQ, &count), 0);
    IS(count, 3000);
    IS(ioctl(peer, SIOCOUTQNSD, &count), 0);
    IS(count, 3000);
    IS(getsockopt(peer, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
    IS(info.tcpi_notsent_bytes, 3000);
    struct pollfd entry = {peer, POLLOUT, 0};
    IS(setsockopt(peer, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most, sizeof most), 0);
    if (poll(&entry, 1, 0) == 1) {
        /* The octets may have been sent by this very wait. */
        IS(ioctl(peer, SIOCOUTQNSD, &count), 0);
        IS(count < most, 1);
    }
    waits(fd, POLLOUT);
    hears(fd, 0, 3000, 0);
    waits(peer, POLLOUT);
    close(fd), close(peer);
}

static void of_a_file(void) {
    int fd = connects(SOCK_NONBLOCK), peer = accepts(SOCK_NONBLOCK);
    int file = memfd_create("said", 0);
    off_t at = 0;
    IS(write(file, said, 5000), 5000);
    IS(sendfile(peer, file, &at, 5000), 5000);
    /* The octets were copied: a later change of the file does not concern them. */
    if (getenv("RDDP_FAMILY"))
        IS(pwrite(file, heard, 5000, 0), 5000);
    close(peer);
    waits(fd, POLLOUT);
    hears(fd, 0, 5000, 1);
    close(fd), close(file);
}

static void lingering(void) {
    struct linger some = {1, 20};
    pid_t child = fork();
    if (child == 0) {
        int peer = accepts(SOCK_NONBLOCK);
        IS(setsockopt(peer, SOL_SOCKET, SO_LINGER, &some, sizeof some), 0);
        IS(write(peer, said, 100), 100);
        close(peer);
        /* Everything was sent, so that nothing is lost. */
        _exit(0);
    }
    int fd = connects(0);
    hears(fd, 0, 100, 1);
    IS(waitpid(child, NULL, 0), child);
    close(fd);
}

/* A program that asks for a reset loses octets that wait, and the other end gets the reset. */
static void by_reset(void) {
    struct linger now = {1, 0};
    for (int way = 0; way < 4; way++) {
        int fd = connects(SOCK_NONBLOCK), peer = accepts(SOCK_NONBLOCK);
        int one = way % 2 ? fd : peer, other = way % 2 ? peer : fd;
        IS(setsockopt(one, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
        IS(write(one, said, 100), 100);
        close(one);
        struct pollfd entry = {other, POLLIN, 0};
        IS(poll(&entry, 1, 20000), 1);
        ssize_t count = recv(other, heard, sizeof heard, 0);
        /* TCP has sent them. */
        if (!getenv("RDDP_FAMILY"))
            IS(count, 100);
        if (count == 100)
            count = recv(other, heard, sizeof heard, 0);
        FAILS(count, ECONNRESET);
        close(other);
    }
}

/* Octets before a page that is not mapped are taken, those on it are not, and the connection goes
 * on. */
static void bad_pointer(void) {
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    IS(pages != MAP_FAILED, 1);
    IS(munmap(pages + 4096, 4096), 0);
    memcpy(pages + 3996, said, 100);
    for (int way = 0; way < 2; way++) {
        int fd = connects(SOCK_NONBLOCK), peer = accepts(SOCK_NONBLOCK);
        int one = way ? fd : peer, other = way ? peer : fd;
        waits(fd, POLLOUT);
        FAILS(write(one, pages + 4096, 10), EFAULT);
        if (getenv("RDDP_FAMILY"))
            IS(write(one, pages + 3996, 200), 100);
        else
            IS(write(one, said, 100), 100);
        FAILS(write(one, pages + 4096, 10), EFAULT);
        IS(write(one, said + 100, 100), 100);
        close(one);
        hears(other, 0, 200, 1);
        close(other);
    }
}

/* Without memory for them none are taken, until there is leave to send. */
static void without_room(void) {
    int fd = connects(SOCK_NONBLOCK), peer = accepts(SOCK_NONBLOCK);
    FAILS(write(fd, said, 100), EAGAIN);
    FAILS(write(peer, said, 100), EAGAIN);
    waits(fd, POLLOUT);
    IS(write(fd, said, 100), 100);
    hears(peer, 0, 100, 0);
    waits(peer, POLLOUT);
    IS(write(peer, said, 100), 100);
    hears(fd, 0, 100, 0);
}

/* A server that takes the connection and says nothing. */
static void silent(void) {
    const char *option = getenv("OPTION");
    int fd = socket(AF_INET, SOCK_STREAM, 0), limit = option ? atoi(option) : 0;
    if (limit)
        IS(setsockopt(fd, SOL_DDP, DDP_STARTUP_TIMEOUT, &limit, sizeof limit), 0);
    IS(connect(fd, (void *)&here, sizeof here), 0);
    IS(write(fd, said, 1), 1);
    if (strcmp(getenv("RDDP_FAMILY"), "both")) {
        FAILS(read(fd, heard, 1), ETIMEDOUT);
        IS(read(fd, heard, 1), 0);
    }
    close(fd);
}

/* Octets written under one descriptor are sent under another. */
static void by_another_number(void) {
    int fd = connects(SOCK_NONBLOCK);
    waits(fd, POLLOUT);
    IS(write(fd, said, 100), 100);
    int other = dup(fd);
    close(fd);
    IS(write(other, said + 100, 100), 100);
    IS(shutdown(other, SHUT_WR), 0);
    int peer = accepts(0);
    hears(peer, 0, 200, 1);
    close(other), close(peer);
}

static void polls(int fd) {
    struct pollfd entry = {fd, POLLIN, 0};
    IS(poll(&entry, 1, -1), 1);
}

static void selects(int fd) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    IS(select(fd + 1, &set, NULL, NULL, NULL), 1);
}

static void waits_for_events(int fd) {
    int set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.fd = fd}};
    IS(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
    IS(epoll_wait(set, &event, 1, -1), 1);
    IS(event.data.fd, fd);
    close(set);
}

/* The listener's, when the parent connects. */
static void accepts_another(int fd) {
    int peer = accept(fd, NULL, NULL);
    IS(peer >= 0, 1);
    close(peer);
}

/* A program that has said something waits for something else, without end: what it said is heard
 * meanwhile. */
static void while_it_waits_elsewhere(void) {
    void (*const ways[])(int) = {polls, selects, waits_for_events, accepts_another};
    for (size_t at = 0; at < sizeof ways / sizeof *ways; at++) {
        int ends[2], others = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in there = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof there;
        IS(bind(others, (void *)&there, len) | listen(others, 1) | getsockname(others, (void *)&there, &len), 0);
        IS(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0) {
            int fd = connects(SOCK_NONBLOCK);
            waits(fd, POLLOUT);
            IS(write(fd, said, 300), 300);
            ways[at](ways[at] == accepts_another ? others : ends[0]);
            exit(0);
        }
        usleep(200000);
        int peer = accepts(0);
        hears(peer, 0, 300, 0);
        if (ways[at] == accepts_another) {
            int fd = socket(AF_INET, SOCK_STREAM, 0);
            IS(connect(fd, (void *)&there, sizeof there), 0);
            close(fd);
        } else {
            IS(write(ends[1], "", 1), 1);
        }
        int status;
        IS(waitpid(child, &status, 0), child);
        IS(status, 0);
        close(peer), close(others), close(ends[0]), close(ends[1]);
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} WAYS[] = {
    {"banner_and_close", banner_and_close}, {"banner_and_death", banner_and_death},
    {"both_ends", both_ends},               {"by_exit", by_exit},
    {"half_close", half_close},             {"edge_of_room", edge_of_room}, {"of_two_processes", of_two_processes},
    {"of_a_file", of_a_file},               {"lingering", lingering},   {"counted", counted},
    {"by_reset", by_reset},                 {"bad_pointer", bad_pointer},   {"without_room", without_room},
    {"silent", silent},                     {"by_another_number", by_another_number},
    {"while_it_waits_elsewhere", while_it_waits_elsewhere},
};

int main(int count, char **words) {
    alarm(60);
    for (size_t at = 0; at < sizeof said; at++)
        said[at] = at * 2654435761u >> 24;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    listen_somewhere(listener, &here);
    for (size_t at = 0; at < sizeof WAYS / sizeof *WAYS; at++)
        if (strcmp(words[1], WAYS[at].name) == 0)
            WAYS[at].run(), puts("as it should be");
    return 0;
}
