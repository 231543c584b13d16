/* Sockets that speak SDP, as programs ask for them: sdp CASE, each a function below. */
#define _GNU_SOURCE
#include <netinet/tcp.h>
#include <pthread.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <rddp/ddp.h>

#include "check.h"

enum { AF_INET_SDP = 27, AF_INET6_SDP = 28, SDP_ZCOPY_THRESH = 80, SDP_LAST_BIND_ERR = 81, SOL_SDP = 1025 };

static int get_at(int fd, int level, int name) {
    int value = -12345;
    socklen_t len = sizeof value;
    return getsockopt(fd, level, name, &value, &len) == 0 ? value : -1;
}

static int set_at(int fd, int level, int name, int value) { return setsockopt(fd, level, name, &value, sizeof value); }

static int get(int fd, int name) { return get_at(fd, SOL_DDP, name); }
static int set(int fd, int name, int value) { return set_at(fd, SOL_DDP, name, value); }

static struct ddp_sdp_info info_of(int fd) {
    struct ddp_sdp_info info;
    socklen_t len = sizeof info;
    IS(getsockopt(fd, SOL_DDP, DDP_SDP_INFO, &info, &len), 0);
    IS(len, sizeof info);
    return info;
}

/* A connection of which both ends were asked to speak SDP. */
static void connection(int ends[2]) {
    struct sockaddr_in addr;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    IS(set(listener, DDPMODE, DDPMODE_SDP), 0);
    listen_somewhere(listener, &addr);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    IS(set(ends[0], DDPMODE, DDPMODE_SDP), 0);
    IS(connect(ends[0], (void *)&addr, sizeof addr), 0);
    ends[1] = accept(listener, NULL, NULL);
    IS(ends[1] >= 0, 1);
    IS(close(listener), 0);
}

static void exchange(int client, int server) {
    char octets[100];
    IS(write(client, "question", 8), 8);
    IS(recv(server, octets, 8, MSG_WAITALL), 8);
    IS(memcmp(octets, "question", 8), 0);
    IS(write(server, "answer", 6), 6);
    IS(recv(client, octets, 6, MSG_WAITALL), 6);
    IS(memcmp(octets, "answer", 6), 0);
    IS(get(client, DDPMODE), DDP_MODE_ON);
    IS(get(server, DDPMODE), DDP_MODE_ON);
}

/* Families 27 and 28, which the kernel does not have. */
static void families(void) {
    struct sockaddr_storage addr = {0}, named;
    for (int six = 0; six < 2; six++) {
        int family = six ? AF_INET6_SDP : AF_INET_SDP, kernels = six ? AF_INET6 : AF_INET;
        socklen_t len = six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in), room = sizeof named;
        int listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
        if (listener < 0 && six)
            break; /* no IPv6 here */
        IS(listener >= 0, 1);
        memset(&addr, 0, sizeof addr);
        if (six)
            ((struct sockaddr_in6 *)&addr)->sin6_addr = in6addr_loopback;
        else
            ((struct sockaddr_in *)&addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        addr.ss_family = family;
        if (bind(listener, (void *)&addr, len) != 0 && six)
            break;
        IS(listen(listener, 5), 0);
        IS(getsockname(listener, (void *)&named, &room), 0);
        IS(named.ss_family, kernels);
        IS(room, len);
        int client = socket(family, SOCK_STREAM, 0);
        IS(get(client, DDPMODE), DDP_MODE_ASKED);
        IS(info_of(client).sdp, 1);
        addr = named;
        addr.ss_family = six ? AF_INET6_SDP : AF_INET_SDP;
        IS(connect(client, (void *)&addr, six ? len : sizeof addr), 0);
        room = sizeof named;
        int server = accept(listener, (void *)&named, &room);
        IS(server >= 0, 1);
        IS(named.ss_family, kernels);
        exchange(client, server);
        room = sizeof named;
        IS(getpeername(client, (void *)&named, &room), 0);
        IS(named.ss_family, kernels);
        IS(close(client) | close(server) | close(listener), 0);
    }
    FAILS(socket(AF_INET_SDP, SOCK_DGRAM, 0), EAFNOSUPPORT);
    FAILS(socket(29, SOCK_STREAM, 0), EAFNOSUPPORT);
    /* A socket that is none of SDP's has the kernel's answers. */
    int plain = socket(AF_INET, SOCK_STREAM, 0);
    addr = (struct sockaddr_storage){.ss_family = AF_INET_SDP};
    FAILS(bind(plain, (void *)&addr, sizeof(struct sockaddr_in)), EAFNOSUPPORT);
    FAILS(bind(plain, NULL, 16), EFAULT);
    int speaks = socket(AF_INET_SDP, SOCK_STREAM, 0);
    FAILS(bind(speaks, NULL, 16), EFAULT);
    FAILS(connect(speaks, (void *)8, 16), EFAULT);
}

/* RDDP_SDP_FAMILIES=0 */
static void no_families(void) {
    FAILS(socket(AF_INET_SDP, SOCK_STREAM, 0), EAFNOSUPPORT);
    FAILS(socket(AF_INET6_SDP, SOCK_STREAM, 0), EAFNOSUPPORT);
}

static void options(void) {
    int ends[2], plain = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    IS(info_of(plain).sdp, 0);
    FAILS(get_at(plain, IPPROTO_TCP, SDP_ZCOPY_THRESH), ENOPROTOOPT);
    FAILS(set_at(plain, IPPROTO_TCP, SDP_ZCOPY_THRESH, 4096), ENOPROTOOPT);
    IS(setsockopt(plain, SOL_DDP, DDP_PRIVATE_DATA, "hello", 5), 0);
    FAILS(set(plain, DDPMODE, DDPMODE_SDP), EINVAL);
    IS(setsockopt(plain, SOL_DDP, DDP_PRIVATE_DATA, "", 0), 0);
    IS(set(plain, DDPMODE, DDPMODE_SDP), 0);
    FAILS(setsockopt(plain, SOL_DDP, DDP_PRIVATE_DATA, "hello", 5), EINVAL);
    IS(get(plain, DDP_SDP_SOURCE_THRESHOLD), -1);
    IS(get(plain, DDP_SDP_SINK_THRESHOLD), 16384);
    IS(set_at(plain, IPPROTO_TCP, SDP_ZCOPY_THRESH, 65536), 0);
    IS(get_at(plain, IPPROTO_TCP, SDP_ZCOPY_THRESH), 65536);
    FAILS(set_at(plain, IPPROTO_TCP, SDP_ZCOPY_THRESH, 100), EINVAL);
    IS(get(plain, DDP_SDP_SOURCE_THRESHOLD), 65536);
    IS(get_at(plain, IPPROTO_TCP, SDP_LAST_BIND_ERR), 0);
    IS(set_at(plain, SOL_SDP, 258, 8192), 0);
    IS(get(plain, DDP_SDP_SINK_THRESHOLD), 8192);
    IS(set(plain, DDP_SDP_SINK_THRESHOLD, -1), 0);

    connection(ends);
    IS(get(ends[0], DDPMODE), DDP_MODE_STARTING);
    exchange(ends[0], ends[1]);
    for (int i = 0; i < 2; i++) {
        struct ddp_sdp_info info = info_of(ends[i]);
        IS(info.sdp, 1);
        IS(info.send_mode <= DDP_SDP_PIPELINED && info.receive_mode <= DDP_SDP_PIPELINED, 1);
        IS(info.bufs > 0 && info.buf_size > 0 && info.peer_buf_size > 0, 1);
        IS(info.credits > 0, 1);
        FAILS(set(ends[i], DDPMODE, 0), EINVAL);
        FAILS(set(ends[i], DDP_SDP_BUFS, 9), EINVAL);
        IS(set(ends[i], DDP_SDP_SOURCE_THRESHOLD, 4096), 0);
        IS(get(ends[i], DDP_SDP_SOURCE_THRESHOLD), 4096);
        socklen_t none = 4;
        char octets[4];
        IS(getsockopt(ends[i], SOL_DDP, DDP_PEER_PRIVATE_DATA, octets, &none), 0);
        IS(none, 0);
        IS(set_at(ends[i], IPPROTO_TCP, TCP_NODELAY, on), 0);
        IS(get_at(ends[i], IPPROTO_TCP, TCP_NODELAY), 1);
        IS(set_at(ends[i], SOL_SOCKET, SO_RCVLOWAT, 3), 0);
        IS(get_at(ends[i], SOL_SOCKET, SO_RCVLOWAT), 3);
    }
}

/* The mode of the environment is that of each connection, until the option asks for another. */
static void modes(void) {
    int ends[2];
    connection(ends);
    IS(get(ends[0], DDP_SDP_MODE), DDP_SDP_PIPELINED);
    /* Octets of calls before the startup is over go first. */
    exchange(ends[0], ends[1]);
    exchange(ends[0], ends[1]);
    IS(info_of(ends[0]).send_mode, DDP_SDP_PIPELINED);
    IS(info_of(ends[1]).receive_mode, DDP_SDP_PIPELINED);
    FAILS(set(ends[0], DDP_SDP_MODE, 3), EINVAL);
    IS(set(ends[0], DDP_SDP_MODE, DDP_SDP_COMBINED), 0);
    IS(get(ends[0], DDP_SDP_MODE), DDP_SDP_COMBINED);
    exchange(ends[0], ends[1]);
    IS(info_of(ends[0]).send_mode, DDP_SDP_COMBINED);
    IS(set(ends[0], DDP_SDP_MODE, DDP_SDP_BUFFERED), 0);
    exchange(ends[0], ends[1]);
    IS(info_of(ends[0]).send_mode, DDP_SDP_BUFFERED);
    IS(info_of(ends[1]).receive_mode, DDP_SDP_BUFFERED);
    IS(set(ends[0], DDP_SDP_MODE, -1), 0);
    IS(get(ends[0], DDP_SDP_MODE), -1);
}

/* Octets under TCP_CORK and MSG_MORE go with those behind them, or alone if nothing follows. */
static void corked(void) {
    int ends[2];
    char octets[100];
    connection(ends);
    exchange(ends[0], ends[1]);
    IS(set_at(ends[0], IPPROTO_TCP, TCP_CORK, 1), 0);
    IS(write(ends[0], "one", 3), 3);
    IS(write(ends[0], "two", 3), 3);
    IS(set_at(ends[0], IPPROTO_TCP, TCP_CORK, 0), 0);
    IS(recv(ends[1], octets, 6, MSG_WAITALL), 6);
    IS(memcmp(octets, "onetwo", 6), 0);
    IS(send(ends[0], "three", 5, MSG_MORE), 5);
    IS(send(ends[0], "four", 4, 0), 4);
    IS(recv(ends[1], octets, 9, MSG_WAITALL), 9);
    IS(memcmp(octets, "threefour", 9), 0);
    IS(send(ends[0], "end", 3, MSG_MORE), 3);
    IS(close(ends[0]), 0);
    IS(recv(ends[1], octets, 4, MSG_WAITALL), 3);
}

/* As much as no buffer holds, in both directions at once. */
static void bulk(void) {
    enum { SIZE = 8 << 20 };
    static char out[SIZE], in[SIZE];
    int ends[2];
    connection(ends);
    for (int i = 0; i < SIZE; i++)
        out[i] = i * 7 + i / 1000;
    for (int child = 0; child < 4; child++)
        if (fork() == 0) {
            int end = ends[child / 2];
            if (child % 2) {
                for (size_t done = 0; done < SIZE;) {
                    ssize_t sent = send(end, out + done, SIZE - done, 0);
                    IS(sent > 0, 1);
                    done += sent;
                }
                IS(shutdown(end, SHUT_WR), 0);
            } else {
                IS(recv(end, in, SIZE, MSG_WAITALL), SIZE);
                IS(memcmp(in, out, SIZE), 0);
                IS(read(end, in, 1), 0);
            }
            _exit(0);
        }
    close(ends[0]), close(ends[1]);
    for (int status, child = 0; child < 4; child++) {
        IS(wait(&status) > 0, 1);
        IS(status, 0);
    }
}

/* Urgent octets, as TCP has them. */
static void urgent(void) {
    int ends[2], at_mark = -1;
    char octets[100];
    connection(ends);
    exchange(ends[0], ends[1]);
    FAILS(recv(ends[1], octets, 1, MSG_OOB), EINVAL);
    IS(send(ends[0], "abc", 3, 0), 3);
    IS(send(ends[0], "xy!", 3, MSG_OOB), 3);
    IS(send(ends[0], "def", 3, 0), 3);
    struct pollfd one = {ends[1], POLLPRI, 0};
    IS(poll(&one, 1, 20000), 1);
    IS(one.revents, POLLPRI);
    IS(recv(ends[1], octets, 1, MSG_OOB), 1);
    IS(octets[0], '!');
    IS(ioctl(ends[1], SIOCATMARK, &at_mark), 0);
    IS(at_mark, 0);
    IS(recv(ends[1], octets, sizeof octets, 0), 5); /* a read stops at the mark */
    IS(memcmp(octets, "abcxy", 5), 0);
    IS(ioctl(ends[1], SIOCATMARK, &at_mark), 0);
    IS(at_mark, 1);
    IS(recv(ends[1], octets, sizeof octets, 0), 3);
    IS(memcmp(octets, "def", 3), 0);
    IS(set_at(ends[1], SOL_SOCKET, SO_OOBINLINE, 1), 0);
    IS(send(ends[0], "?", 1, MSG_OOB), 1);
    IS(recv(ends[1], octets, sizeof octets, 0), 1);
    IS(octets[0], '?');
}

static char sent_octets[1 << 20], come_octets[1 << 20];

static void *receive_all(void *end) {
    IS(recv(*(int *)end, come_octets, sizeof come_octets, MSG_WAITALL), (ssize_t)sizeof come_octets);
    return NULL;
}

/* The octets of RDMA Reads that a send of a mebibyte takes. */
static uint64_t read_of_a_send(int ends[2]) {
    pthread_t reader;
    uint64_t before = info_of(ends[0]).counters[6];
    IS(pthread_create(&reader, NULL, receive_all, &ends[1]), 0);
    IS(write(ends[0], sent_octets, sizeof sent_octets), (ssize_t)sizeof sent_octets);
    IS(pthread_join(reader, NULL), 0);
    IS(memcmp(sent_octets, come_octets, sizeof sent_octets), 0);
    return info_of(ends[0]).counters[6] - before;
}

/* Thresholds that are set on a connection hold from the next call on. */
static void live(void) {
    static const struct {
        int level, name, value, advertises;
    } steps[] = {
        {SOL_DDP, DDP_SDP_SOURCE_THRESHOLD, 0, 1},
        {SOL_DDP, DDP_SDP_SOURCE_THRESHOLD, -1, 0},
        {SOL_DDP, DDP_SDP_SOURCE_THRESHOLD, 1 << 20, 1},
        {SOL_DDP, DDP_SDP_SOURCE_THRESHOLD, (1 << 20) + 1, 0},
        {IPPROTO_TCP, SDP_ZCOPY_THRESH, 4096, 1},
        {IPPROTO_TCP, SDP_ZCOPY_THRESH, 0, 0},
        {SOL_SDP, 256, 65536, 1},
        {SOL_SDP, 257, -1, 0},
        {SOL_SDP, 258, 4096, 0},
        {SOL_SDP, 257, 4096, 1},
    };
    int ends[2];
    memset(sent_octets, 'x', sizeof sent_octets);
    connection(ends);
    exchange(ends[0], ends[1]);
    IS(read_of_a_send(ends), 0);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        IS(set_at(ends[0], steps[i].level, steps[i].name, steps[i].value), 0);
        IS(read_of_a_send(ends) > 0, steps[i].advertises);
    }
    IS(info_of(ends[1]).counters[6], info_of(ends[0]).counters[6]);
}

enum { HERE = 10, THERE };

/* What `executed` runs, with a connection and the threshold that is to be there. */
static void after_exec(void) {
    int ends[2] = {HERE, THERE}, wanted = atoi(getenv("WANTED"));
    struct timeval limit = {60, 0};
    memset(sent_octets, 'x', sizeof sent_octets);
    IS(read_of_a_send(ends) > 0, wanted >= 0);
    IS(get(HERE, DDP_SDP_SOURCE_THRESHOLD), wanted);
    IS(setsockopt(HERE, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    IS(read_of_a_send(ends) > 0, wanted >= 0);
}

/* A threshold that was set on a socket holds in the next program, too; otherwise it is that
 * program's. */
static void executed(void) {
    enum { NOT_SET = -2 };
    static const struct {
        int option;
        const char *of_next, *wanted;
    } cases[] = {{4096, "none", "4096"}, {-1, "all", "-1"}, {NOT_SET, "all", "0"}, {NOT_SET, "none", "-1"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status, ends[2];
        pid_t child = fork();
        if (child == 0) {
            connection(ends);
            exchange(ends[0], ends[1]);
            if (cases[i].option != NOT_SET)
                IS(set(ends[0], DDP_SDP_SOURCE_THRESHOLD, cases[i].option), 0);
            IS(dup2(ends[0], HERE) == HERE && dup2(ends[1], THERE) == THERE, 1);
            close(ends[0]), close(ends[1]);
            setenv("RDDP_SDP_SOURCE_THRESHOLD", cases[i].of_next, 1);
            setenv("WANTED", cases[i].wanted, 1);
            /* What it says is not this program's answer. */
            dup2(2, 1);
            execl("/proc/self/exe", "sdp", "after_exec", NULL);
            _exit(1);
        }
        IS(waitpid(child, &status, 0), child);
        IS(status, 0);
    }
}

static void interrupted(int number) { (void)number; }

enum { SLEEPS, EXITS, CLOSES, HAS_A_CHILD, LEAVES_A_CHILD };

/* Sends what the peer does not read yet, is interrupted, and then makes no call of the socket. */
static void spill_and(int how, int fd, int tell) {
    char go;
    struct itimerval soon = {{0, 20000}, {0, 100000}}, never = {{0, 0}, {0, 0}};
    IS(recv(fd, &go, 1, 0), 1);
    struct sigaction action = {.sa_handler = interrupted};
    IS(sigaction(SIGALRM, &action, NULL), 0);
    IS(set(fd, DDP_SDP_SOURCE_THRESHOLD, 0), 0);
    IS(setitimer(ITIMER_REAL, &soon, NULL), 0);
    ssize_t sent = send(fd, sent_octets, sizeof sent_octets, 0);
    IS(setitimer(ITIMER_REAL, &never, NULL), 0);
    memset(sent_octets, '-', sizeof sent_octets);
    IS(write(tell, &sent, sizeof sent), (ssize_t)sizeof sent);
    if (how == CLOSES)
        IS(close(fd), 0);
    pid_t child = how == HAS_A_CHILD || how == LEAVES_A_CHILD ? fork() : 1;
    if (how == SLEEPS || (how == HAS_A_CHILD && child > 0) || (how == LEAVES_A_CHILD && child == 0))
        pause();
    exit(0);
}

static void spilled(void) {
    alarm(120);
    for (int how = SLEEPS; how <= LEAVES_A_CHILD; how++) {
        struct sockaddr_in addr;
        int told[2], listener = socket(AF_INET, SOCK_STREAM, 0);
        for (size_t i = 0; i < sizeof sent_octets; i++)
            sent_octets[i] = (char)(i * 7 + i / 1000);
        IS(set(listener, DDPMODE, DDPMODE_SDP), 0);
        listen_somewhere(listener, &addr);
        IS(pipe(told), 0);
        pid_t sender = fork();
        if (sender == 0) {
            IS(setpgid(0, 0), 0);
            close(listener);
            int fd = socket(AF_INET, SOCK_STREAM, 0);
            IS(set(fd, DDPMODE, DDPMODE_SDP), 0);
            IS(connect(fd, (void *)&addr, sizeof addr), 0);
            spill_and(how, fd, told[1]);
        }
        close(told[1]);
        int fd = accept(listener, NULL, NULL);
        ssize_t sent = 0;
        IS(write(fd, "!", 1), 1);
        IS(read(told[0], &sent, sizeof sent), (ssize_t)sizeof sent);
        IS(sent > 0, 1);
        usleep(50000); /* it has gone on by now, in most runs */
        IS(recv(fd, come_octets, sent, MSG_WAITALL), sent);
        IS(memcmp(come_octets, sent_octets, sent), 0);
        IS(info_of(fd).counters[6] > 0, 1);
        if (how == EXITS || how == CLOSES)
            IS(read(fd, come_octets, 1), 0);
        kill(-sender, SIGTERM);
        IS(waitpid(sender, NULL, 0), sender);
        close(fd), close(listener), close(told[0]);
    }
}

enum { LINES = 1000, LINE = 10 };

static void write_lines(int fd) {
    for (int i = 0; i < LINES; i++)
        IS(write(fd, "ten octets", LINE), LINE);
}

static void read_lines(int fd) {
    char octets[LINES * LINE];
    IS(recv(fd, octets, sizeof octets, MSG_WAITALL), (ssize_t)sizeof octets);
    for (int i = 0; i < LINES; i++)
        IS(memcmp(octets + i * LINE, "ten octets", LINE), 0);
}

static void *write_and_read(void *fd) {
    write_lines(*(int *)fd);
    read_lines(*(int *)fd);
    return NULL;
}

static void *answer_lines(void *fd) {
    char line[LINE];
    for (int i = 0; i < LINES; i++) {
        IS(recv(*(int *)fd, line, LINE, MSG_WAITALL), LINE);
        IS(write(*(int *)fd, line, LINE), LINE);
    }
    return NULL;
}

/* Programs that write a thousand short lines before they read: to a server that answers each, both
 * ends at once, and to a peer that reads when it has slept. */
static void lines(void) {
    void *(*others[])(void *) = {answer_lines, write_and_read};
    for (int i = 0; i < 3; i++) {
        int ends[2];
        pthread_t other;
        connection(ends);
        exchange(ends[0], ends[1]);
        if (i < 2) {
            IS(pthread_create(&other, NULL, others[i], &ends[1]), 0);
            write_and_read(&ends[0]);
            IS(pthread_join(other, NULL), 0);
        } else {
            write_lines(ends[0]);
            IS(close(ends[0]), 0);
            read_lines(ends[1]);
            IS(read(ends[1], &other, 1), 0);
        }
        close(ends[0]), close(ends[1]);
    }
}

int main(int count, char **words) {
    static const struct {
        const char *name;
        void (*call)(void);
    } cases[] = {{"families", families}, {"no_families", no_families}, {"options", options},
                 {"corked", corked},     {"bulk", bulk},               {"urgent", urgent},
                 {"live", live},         {"spilled", spilled},         {"executed", executed},
                 {"after_exec", after_exec}, {"modes", modes}, {"lines", lines}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (count == 2 && strcmp(words[1], cases[i].name) == 0) {
            cases[i].call();
            puts("all is so");
            return 0;
        }
    puts("no such case");
    return 1;
}
