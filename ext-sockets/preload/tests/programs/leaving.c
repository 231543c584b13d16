/* Servers that accept and close: leaving WAY. Over plain TCP and framed their clients are told
 * the same. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "check.h"

static struct sockaddr_in here;
static int listener;

static int connects(int kind) {
    int fd = socket(AF_INET, SOCK_STREAM | kind, 0);
    int result = connect(fd, (void *)&here, sizeof here);
    IS(fd >= 0 && (result == 0 || errno == EINPROGRESS), 1);
    return fd;
}

static int accepts(void) {
    int fd = accept(listener, NULL, NULL);
    IS(fd >= 0, 1);
    return fd;
}

/* Waits, as a program does that has connected without waiting. */
static void waits(int fd, int events) {
    struct pollfd entry = {fd, events, 0};
    IS(poll(&entry, 1, 20000), 1);
    IS(entry.revents & (POLLERR | POLLNVAL), 0);
}

static void sees_end(int fd) {
    char octet;
    waits(fd, POLLIN);
    IS(read(fd, &octet, 1), 0);
    IS(read(fd, &octet, 1), 0);
    int error = -1;
    socklen_t len = sizeof error;
    IS(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len), 0);
    IS(error, 0);
}

/* The client has begun before it is accepted. */
static void at_once(void) {
    for (int at = 0; at < 50; at++) {
        int fd = connects(at % 2 ? SOCK_NONBLOCK : 0);
        waits(fd, POLLOUT);
        close(accepts());
        sees_end(fd);
        close(fd);
    }
}

/* The client, which does not wait, has not yet: it begins when the server is long done. */
static void before_the_client(void) {
    enum { MANY = 100 };
    int fds[MANY];
    for (int at = 0; at < MANY; at++) {
        fds[at] = connects(SOCK_NONBLOCK);
        close(accepts());
    }
    for (int at = 0; at < MANY; at++) {
        waits(fds[at], POLLOUT);
        sees_end(fds[at]);
        close(fds[at]);
    }
}

/* The client finishes first; it has nothing to say. */
static void both_finish(void) {
    for (int at = 0; at < 50; at++) {
        int fd = connects(0);
        IS(shutdown(fd, SHUT_WR), 0);
        int peer = accepts();
        sees_end(peer);
        close(peer);
        sees_end(fd);
        close(fd);
    }
}

/* The server ends with connections that it has accepted and not looked at. */
static void by_exit(void) {
    int ready[2];
    IS(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        accepts(), close(accepts());
        exit(0);
    }
    int one = connects(0), other = connects(0);
    sees_end(one), sees_end(other);
    IS(waitpid(child, NULL, 0), child);
}

/* The server is killed, or leaves by _exit, when it has read the client's end and answered: the
 * client gets all of the answer, which a reset would take from it. */
static void killed_behind_the_clients_end(void) {
    enum { ALL = 200000 };
    static char answer[ALL];
    for (int at = 0; at < 4; at++) {
        pid_t child = fork();
        if (child == 0) {
            int peer = accepts();
            while (read(peer, answer, sizeof answer) > 0)
                ;
            IS(write(peer, answer, ALL), ALL);
            if (at % 2)
                kill(getpid(), SIGKILL);
            _exit(0);
        }
        int fd = connects(0), count, now;
        IS(write(fd, "request", 7), 7);
        IS(shutdown(fd, SHUT_WR), 0);
        IS(count = read(fd, answer, 1), 1);
        if (at >= 2)
            IS(waitpid(child, NULL, 0), child);
        while ((now = read(fd, answer, 5000)) > 0)
            count += now;
        IS(now, 0);
        IS(count, ALL);
        if (at < 2)
            IS(waitpid(child, NULL, 0), child);
        close(fd);
    }
}

/* As above, with clients that look at one after the other: the end of the first is not kept back
 * until the second has said all it has to. */
static void by_exit_in_turn(void) {
    int first_seen[2];
    char octet;
    IS(pipe(first_seen), 0);
    pid_t server = fork();
    if (server == 0) {
        accepts(), accepts();
        exit(0);
    }
    int one = connects(0);
    pid_t client = fork();
    if (client == 0) {
        close(one);
        int other = connects(0);
        IS(read(first_seen[0], &octet, 1), 1);
        sees_end(other);
        exit(0);
    }
    int status = 1;
    sees_end(one);
    IS(write(first_seen[1], "x", 1), 1);
    IS(waitpid(client, &status, 0), client);
    IS(status, 0);
    IS(waitpid(server, NULL, 0), server);
}

/* A child that has the connection goes on with it, however soon the parent closes it: one that
 * forks, one that runs a program. */
static void to_a_child(void) {
    char text[3] = "";
    int fd = connects(SOCK_NONBLOCK), peer = accepts();
    pid_t child = fork();
    if (child == 0) {
        usleep(20000);
        exit(write(peer, "ab", 2) == 2 ? 0 : 1);
    }
    close(peer);
    waits(fd, POLLIN);
    IS(read(fd, text, 2), 2);
    sees_end(fd);
    IS(waitpid(child, NULL, 0), child);
    fd = connects(SOCK_NONBLOCK), peer = accepts();
    child = vfork();
    if (child == 0) {
        dup2(peer, 1);
        execl("/bin/sh", "sh", "-c", "sleep 0.1; printf cd", NULL);
        _exit(1);
    }
    close(peer);
    waits(fd, POLLIN);
    IS(read(fd, text, 2), 2);
    IS(strcmp(text, "cd"), 0);
    sees_end(fd);
    IS(waitpid(child, NULL, 0), child);
}

/* A program that asks for a reset gets one. */
static void by_reset(void) {
    struct linger now = {1, 0};
    char octet;
    for (int at = 0; at < 10; at++) {
        int fd = connects(at % 2 ? SOCK_NONBLOCK : 0), peer = accepts();
        IS(setsockopt(peer, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
        close(peer);
        struct pollfd entry = {fd, POLLIN, 0};
        IS(poll(&entry, 1, 20000), 1);
        IS(!!(entry.revents & (POLLERR | POLLHUP)), 1);
        FAILS(recv(fd, &octet, 1, 0), ECONNRESET);
        close(fd);
    }
}

/* With few descriptors to spare the oldest of the closed connections is given up, and none of
 * the program's calls fails. */
static void with_few_descriptors(void) {
    enum { MANY = 200 };
    struct rlimit few = {64, 64}, was;
    pid_t child;
    int fds[MANY];
    char octet;
    IS(getrlimit(RLIMIT_NOFILE, &was), 0);
    if ((child = fork()) == 0) {
        alarm(60);
        IS(setrlimit(RLIMIT_NOFILE, &few), 0);
        for (int at = 0; at < MANY; at++)
            close(accepts());
        /* The child has as many descriptors left as it needs. */
        for (int at = 0; at < 20; at++)
            IS(open("/dev/null", O_RDONLY) >= 0, 1);
        pause();
    }
    for (int at = 0; at < MANY; at++)
        fds[at] = connects(SOCK_NONBLOCK);
    waits(fds[MANY - 1], POLLOUT);
    sees_end(fds[MANY - 1]);
    for (int at = 0; at < MANY - 1; at++) {
        struct pollfd entry = {fds[at], POLLIN, 0};
        IS(poll(&entry, 1, 20000), 1);
        long got = recv(fds[at], &octet, 1, 0);
        IS(got <= 0, 1);
    }
    kill(child, SIGKILL);
    IS(waitpid(child, NULL, 0), child);
}

/* A process that gives up a connection which another one uses gives up its own part: nothing is
 * reset. */
static void with_a_child_and_few_descriptors(void) {
    enum { MANY = 100 };
    struct rlimit few = {64, 64};
    int fds[MANY], gave_up[2];
    char text[3] = "";
    IS(pipe(gave_up), 0);
    pid_t server = fork();
    if (server == 0) {
        alarm(60);
        IS(setrlimit(RLIMIT_NOFILE, &few), 0);
        int peer = accepts();
        IS(write(peer, "ab", 2), 2);
        pid_t child = fork();
        if (child == 0) {
            IS(read(peer, text, 1), 1);
            IS(write(peer, text, 1), 1);
            exit(0);
        }
        close(peer);
        for (int at = 1; at < MANY; at++)
            close(accepts());
        IS(write(gave_up[1], "x", 1), 1);
        int status = 1;
        IS(waitpid(child, &status, 0), child);
        _exit(status != 0);
    }
    for (int at = 0; at < MANY; at++)
        fds[at] = connects(SOCK_NONBLOCK);
    IS(read(gave_up[0], text, 1), 1);
    waits(fds[0], POLLOUT);
    IS(write(fds[0], "x", 1), 1);
    for (int count = 0, now; count < 3; count += now) {
        waits(fds[0], POLLIN);
        now = read(fds[0], text + count, 3 - count);
        IS(now > 0, 1);
    }
    IS(memcmp(text, "abx", 3), 0);
    sees_end(fds[0]);
    int status = 1;
    IS(waitpid(server, &status, 0), server);
    IS(status, 0);
}

/* A program that uses most of its numbers gets the rest, even if closed connections of silent
 * clients hold some. */
static void with_most_in_use(void) {
    enum { MANY = 80, USED = 35, REST = 64 - USED - 4 };
    struct rlimit few = {64, 64};
    int fds[MANY], own[64], done[2];
    char octet;
    IS(pipe(done), 0);
    pid_t server = fork();
    if (server == 0) {
        alarm(60);
        IS(setrlimit(RLIMIT_NOFILE, &few), 0);
        int used = 0;
        while ((own[used] = open("/dev/null", O_RDONLY)) < USED)
            IS(own[used++] >= 0, 1);
        for (int at = 0; at < MANY; at++)
            close(accepts());
        for (int at = 0; at < REST; at += 5) {
            IS(open("/dev/null", O_RDONLY) >= 0, 1);
            IS(socket(AF_INET, SOCK_STREAM, 0) >= 0, 1);
            IS(dup(0) >= 0, 1);
            int both[2];
            IS(pipe(both), 0);
        }
        _exit(write(done[1], "x", 1) != 1);
    }
    for (int at = 0; at < MANY; at++)
        fds[at] = connects(SOCK_NONBLOCK);
    IS(read(done[0], &octet, 1), 1);
    int status = 1;
    IS(waitpid(server, &status, 0), server);
    IS(status, 0);
}

/* Unsent octets are sent after a close, for however many connections, and whatever numbers the
 * program closes. */
static void with_all_numbers_closed(void) {
    enum { MANY = 280 };
    int fds[MANY], closed[2];
    char text[2];
    IS(pipe(closed), 0);
    pid_t server = fork();
    if (server == 0) {
        alarm(60);
        for (int at = 0; at < MANY; at++) {
            int peer = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
            IS(write(peer, "ab", 2), 2);
            close(peer);
        }
        IS(write(closed[1], "x", 1), 1);
        IS(close_range(3, ~0u, 0), 0);
        pause();
    }
    close(closed[1]);
    for (int at = 0; at < MANY; at++)
        fds[at] = connects(SOCK_NONBLOCK);
    IS(read(closed[0], text, 1), 1);
    IS(read(closed[0], text, 1), 0);
    for (int at = 0; at < MANY; at++) {
        waits(fds[at], POLLIN);
        int count = read(fds[at], text, 2);
        IS(count == 2 || count == 0, 1);
        sees_end(fds[at]);
        close(fds[at]);
    }
    kill(server, SIGKILL);
    IS(waitpid(server, NULL, 0), server);
}

/* Clients that connect and close: their server sees a connection, and its end. */
static void by_the_client(void) {
    for (int at = 0; at < 50; at++) {
        int fd = connects(at % 2 ? SOCK_NONBLOCK : 0);
        waits(fd, POLLOUT);
        close(fd);
        int peer = accepts();
        sees_end(peer);
        IS(send(peer, "", 0, 0), 0);
        close(peer);
    }
}

/* As above, when the program ends. */
static void by_the_clients_exit(void) {
    for (int at = 0; at < 10; at++) {
        pid_t child = fork();
        if (child == 0)
            connects(0), exit(0);
        int peer = accepts();
        sees_end(peer);
        IS(send(peer, "", 0, 0), 0);
        IS(waitpid(child, NULL, 0), child);
        close(peer);
    }
}

/* Servers that say that they neither read nor write, before they close or for good. */
static void shut_down(void) {
    struct sockaddr_in peers;
    char octet;
    for (int at = 0; at < 20; at++) {
        int fd = connects(at % 2 ? SOCK_NONBLOCK : 0), peer = accepts();
        socklen_t len = sizeof peers;
        IS(shutdown(peer, SHUT_RDWR), 0);
        if (at % 4 < 2)
            close(peer);
        waits(fd, POLLOUT);
        sees_end(fd);
        IS(getpeername(fd, (void *)&peers, &len), 0);
        if (at % 4 >= 2) {
            struct pollfd entry = {peer, POLLIN | POLLRDHUP, 0};
            IS(poll(&entry, 1, 20000), 1);
            IS(entry.revents, POLLIN | POLLRDHUP | POLLHUP);
            IS(read(peer, &octet, 1), 0);
            FAILS(send(peer, "x", 1, MSG_NOSIGNAL), EPIPE);
            close(peer);
        }
        close(fd);
    }
}

/* Ends that read no more; what they write is read. */
static void shut_for_reading(void) {
    char octet = 0;
    for (int at = 0; at < 20; at++) {
        int fd = connects(at % 2 ? SOCK_NONBLOCK : 0), peer = accepts();
        int one = at % 4 < 2 ? fd : peer, other = at % 4 < 2 ? peer : fd;
        IS(shutdown(one, SHUT_RD), 0);
        waits(one, POLLIN);
        IS(read(one, &octet, 1), 0);
        IS(write(one, "x", 1), 1);
        waits(other, POLLIN);
        IS(read(other, &octet, 1), 1);
        IS(octet, 'x');
        waits(one, POLLIN);
        IS(read(one, &octet, 1), 0);
        close(one);
        sees_end(other);
        close(other);
    }
}

static void is_gone(int fd) {
    struct tcp_info info;
    do {
        socklen_t len = sizeof info;
        IS(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
    } while (info.tcpi_state != TCP_CLOSE);
}

static int is_reset_early(void) {
    struct linger now = {1, 0};
    int fd = connects(0), peer = accepts();
    IS(setsockopt(peer, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    close(peer);
    is_gone(fd);
    return fd;
}

/* The first call after a reset reports it; after that reads find the end, and writes fail. */
static void told_once(void) {
    enum { ALL = POLLIN | POLLOUT | POLLRDHUP };
    char octet;
    int fd = is_reset_early(), error = 0;
    socklen_t len = sizeof error;
    FAILS(send(fd, "x", 1, MSG_NOSIGNAL), ECONNRESET);
    FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
    IS(recv(fd, &octet, 1, 0), 0);
    fd = is_reset_early();
    FAILS(recv(fd, &octet, 1, 0), ECONNRESET);
    IS(recv(fd, &octet, 1, 0), 0);
    FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
    fd = is_reset_early();
    struct pollfd entry = {fd, ALL, 0};
    IS(poll(&entry, 1, 20000), 1);
    IS(entry.revents, ALL | POLLERR | POLLHUP);
    IS(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len), 0);
    IS(error, ECONNRESET);
    IS(recv(fd, &octet, 1, 0), 0);
    FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
    int set = epoll_create1(0);
    struct epoll_event event = {EPOLLET | EPOLLRDHUP, {0}};
    IS(epoll_ctl(set, EPOLL_CTL_ADD, is_reset_early(), &event), 0);
    IS(epoll_wait(set, &event, 1, 20000), 1);
    IS(event.events, EPOLLRDHUP | EPOLLERR | EPOLLHUP);
}

/* A reset that a call has met which had sent something before is an error of the connection
 * still. */
static void met_by_a_send(void) {
    enum { MUCH = 30000000 };
    struct linger now = {1, 0};
    char octet, *much = calloc(1, MUCH);
    pid_t server = fork();
    if (server == 0) {
        int peer = accepts();
        IS(read(peer, &octet, 1), 1);
        IS(setsockopt(peer, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
        close(peer);
        _exit(0);
    }
    int fd = connects(0), sent = send(fd, much, MUCH, 0), error = 0;
    socklen_t len = sizeof error;
    IS(sent > 0 && sent < MUCH, 1);
    struct pollfd entry = {fd, POLLIN, 0};
    IS(poll(&entry, 1, 20000), 1);
    IS(entry.revents, POLLIN | POLLERR | POLLHUP);
    IS(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len), 0);
    IS(error, ECONNRESET);
    IS(recv(fd, &octet, 1, 0), 0);
    IS(waitpid(server, NULL, 0), server);
}

static int told[2];

static void tells(int signal) {
    IS(write(told[1], "x", 1), 1);
}

/* A close that waits, as SO_LINGER has it, does so with the signals as the program has them. */
static void by_a_signal(void) {
    struct linger some = {1, 30};
    char octet;
    IS(pipe(told), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = connects(0);
        struct itimerval soon = {{0, 0}, {0, 50000}};
        IS(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
        IS(setsockopt(fd, SOL_SOCKET, SO_LINGER, &some, sizeof some), 0);
        IS(write(fd, "x", 1), 1);
        signal(SIGALRM, tells);
        IS(setitimer(ITIMER_REAL, &soon, NULL), 0);
        close(fd);
        struct pollfd entry = {told[0], POLLIN, 0};
        while (poll(&entry, 1, 20000) < 0)
            IS(errno, EINTR);
        exit(entry.revents == POLLIN ? 0 : 1);
    }
    /* The peer sends nothing before that. */
    waits(told[0], POLLIN);
    int peer = accepts();
    waits(peer, POLLIN);
    IS(read(peer, &octet, 1), 1);
    sees_end(peer);
    int status = 1;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} WAYS[] = {
    {"at_once", at_once},     {"before_the_client", before_the_client},
    {"both_finish", both_finish}, {"by_exit", by_exit},
    {"by_exit_in_turn", by_exit_in_turn},
    {"killed_behind_the_clients_end", killed_behind_the_clients_end},
    {"to_a_child", to_a_child},   {"by_reset", by_reset},
    {"with_few_descriptors", with_few_descriptors}, {"by_the_client", by_the_client},
    {"with_a_child_and_few_descriptors", with_a_child_and_few_descriptors},
    {"with_most_in_use", with_most_in_use}, {"with_all_numbers_closed", with_all_numbers_closed},
    {"by_the_clients_exit", by_the_clients_exit}, {"shut_down", shut_down},
    {"told_once", told_once}, {"met_by_a_send", met_by_a_send},
    {"shut_for_reading", shut_for_reading}, {"by_a_signal", by_a_signal},
};

int main(int count, char **words) {
    alarm(60);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    listen_somewhere(listener, &here);
    IS(listen(listener, 300), 0);
    for (size_t at = 0; at < sizeof WAYS / sizeof *WAYS; at++)
        if (strcmp(words[1], WAYS[at].name) == 0)
            WAYS[at].run(), puts("as it should be");
    return 0;
}
