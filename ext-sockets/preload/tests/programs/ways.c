/* Ways by which a program comes to a connection without a connect or a listen that the library
 * sees as it is: each function is one, run by its name. The program says what was the case; with
 * no library it runs over plain TCP. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <rddp/ddp.h>

#include "check.h"

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

static const char *self;
static struct sockaddr_in here;

static int tcp(int flags) { return socket(AF_INET, SOCK_STREAM | flags, 0); }

static int listening(void) {
    int fd = tcp(0);
    listen_somewhere(fd, &here);
    return fd;
}

static void set_mode(int fd, int mode) { IS(setsockopt(fd, SOL_DDP, DDPMODE, &mode, sizeof mode), 0); }

/* 1: its octets travel in FPDUs, or will; 0: in plain TCP, as where there is no library. */
static int is_framed(int fd) {
    int mode = 0;
    socklen_t len = sizeof mode;
    return getsockopt(fd, SOL_DDP, DDPMODE, &mode, &len) == 0 && mode != DDP_MODE_OFF;
}

static void say(int fd, const char *what) { IS(send(fd, what, strlen(what), MSG_NOSIGNAL), strlen(what)); }

static void hear(int fd, const char *what) {
    char octets[100] = "";
    size_t have = 0, wanted = strlen(what);
    while (have < wanted) {
        ssize_t got = read(fd, octets + have, wanted - have);
        if (got < 0 && errno == EAGAIN) {
            struct pollfd one = {fd, POLLIN, 0};
            IS(poll(&one, 1, 20000), 1);
            continue;
        }
        IS(got > 0, 1);
        have += got;
    }
    IS(memcmp(octets, what, wanted), 0);
}

static void print(const char *end, int fd) { printf("%s %s\n", end, is_framed(fd) ? "framed" : "plain"), fflush(stdout); }

static int connected(void) {
    int fd = tcp(0);
    IS(connect(fd, (void *)&here, sizeof here), 0);
    return fd;
}

static void is_served(void) {
    int fd = connected();
    say(fd, "hello");
    hear(fd, "world");
    print("client", fd);
    close(fd);
}

static void serve(int fd) {
    IS(fd >= 0, 1);
    hear(fd, "hello");
    print("server", fd);
    say(fd, "world");
    close(fd);
}

/* Becomes this program again, in the role of that name, with a descriptor. */
static pid_t become(const char *role, int fd) {
    pid_t child = fork();
    if (child == 0) {
        char number[20];
        snprintf(number, sizeof number, "%d", fd);
        execl(self, self, role, number, NULL);
        _exit(9);
    }
    return child;
}

static void ends_well(pid_t child) {
    int status = -1;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
}

/* Listeners that come by exec. */

static void by_exec(const char *role, int listener) {
    pid_t child = become(role, listener);
    close(listener);
    is_served();
    is_served();
    ends_well(child);
}

static void accepts(int listener) {
    serve(accept(listener, NULL, NULL));
    serve(syscall(SYS_accept4, listener, NULL, NULL, 0));
}

static void accepts_by_edges(int listener) {
    int epoll = epoll_create1(0), served = 0;
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = listener};
    fcntl(listener, F_SETFL, O_NONBLOCK);
    IS(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event), 0);
    while (served < 2) {
        IS(epoll_wait(epoll, &event, 1, 20000), 1);
        int fd;
        while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
            serve(fd);
            served++;
        }
        IS(errno, EAGAIN);
    }
}

static void listener_by_exec(void) { by_exec("accepts", listening()); }
static void listener_by_exec_in_epoll(void) { by_exec("accepts-by-edges", listening()); }

/* DDPMODE that the program has set on a listener is this program's. */
static void asked_listener_by_exec(void) {
    int listener = listening();
    set_mode(listener, 1);
    by_exec("accepts", listener);
}

/* A listener that comes in a message. */

static void pass(int by, int fd) {
    char octet = 'x', control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec piece = {&octet, 1};
    struct msghdr msg = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&msg);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    IS(sendmsg(by, &msg, 0), 1);
}

static int take(int by) {
    int fd;
    char octet, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec piece = {&octet, 1};
    struct msghdr msg = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    IS(recvmsg(by, &msg, 0), 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof fd);
    return fd;
}

static void takes_and_accepts(int by) { accepts(take(by)); }

static void listener_by_message(void) {
    int pair[2];
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    pid_t child = become("takes-and-accepts", pair[1]);
    pass(pair[0], listening());
    is_served();
    is_served();
    ends_well(child);
}

/* A listener under a number that was a plain one's, both behind the library's back. */
static void listener_under_a_plain_number(void) {
    int tube[2], plain = tcp(0);
    char number;
    set_mode(plain, 0);
    listen_somewhere(plain, &here);
    IS(pipe(tube), 0);
    pid_t child = fork();
    if (child == 0) {
        number = listening();
        IS(write(tube[1], &here, sizeof here), sizeof here);
        IS(write(tube[1], &number, 1), 1);
        pause();
    }
    IS(read(tube[0], &here, sizeof here), sizeof here);
    IS(read(tube[0], &number, 1), 1);
    IS(fclose(fdopen(plain, "r+")), 0);
    int pidfd = syscall(SYS_pidfd_open, child, 0);
    if (pidfd >= 0 && pidfd == plain) {
        pidfd = dup(pidfd);
        IS(fclose(fdopen(plain, "r+")), 0);
    }
    IS(syscall(SYS_pidfd_getfd, pidfd, number, 0), plain);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    pid_t client = fork();
    if (client == 0) {
        is_served();
        is_served();
        _exit(0);
    }
    accepts(plain);
    ends_well(client);
}

/* A program that says DDPMODE 0. */
static void stays_plain(void) {
    int listener = tcp(0), client = tcp(0);
    set_mode(listener, 0);
    set_mode(client, 1);
    set_mode(client, 0);
    listen_somewhere(listener, &here);
    IS(connect(client, (void *)&here, sizeof here), 0);
    say(client, "hello");
    serve(accept(listener, NULL, NULL));
    hear(client, "world");
    print("client", client);
    /* And changes its mind. */
    set_mode(listener, 1);
    client = tcp(0);
    set_mode(client, 0);
    set_mode(client, 1);
    IS(connect(client, (void *)&here, sizeof here), 0);
    int server = accept(listener, NULL, NULL);
    say(server, "hello");
    hear(client, "hello");
    print("client", client);
}

/* Connections of which nothing is known. */

static int plain_connection(int *client) {
    int listener = tcp(0);
    *client = tcp(0);
    set_mode(listener, 0);
    set_mode(*client, 0);
    listen_somewhere(listener, &here);
    IS(connect(*client, (void *)&here, sizeof here), 0);
    return accept(listener, NULL, NULL);
}

static void connection_by_exec(void) {
    int client, server = plain_connection(&client);
    pid_t child = become("serves", server);
    say(client, "hello");
    hear(client, "world");
    ends_well(child);
}

/* As started by inetd: standard error is the connection. */
static void connection_as_standard_streams(void) {
    int client, server = plain_connection(&client);
    pid_t child = fork();
    if (child == 0) {
        for (int fd = 0; fd < 3; fd++)
            dup2(server, fd);
        close_range(3, ~0U, 0);
        execl("/bin/cat", "cat", NULL);
        _exit(9);
    }
    close(server);
    say(client, "hello");
    IS(shutdown(client, SHUT_WR), 0);
    hear(client, "hello");
    char octet;
    IS(read(client, &octet, 1), 0);
    ends_well(child);
}

static void connections_by_message(void) {
    int client, pair[2];
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    pid_t child = become("takes-and-serves", pair[1]);
    for (int turn = 0; turn < 2; turn++) {
        pass(pair[0], plain_connection(&client));
        say(client, "hello");
        hear(client, "world");
    }
    ends_well(child);
}

static void takes_and_serves(int by) {
    serve(take(by));
    serve(take(by));
}

/* Octets that go with the SYN, and octets of which the kernel tells when it has sent them. */

static void *serves_twice(void *listener) {
    accepts(*(int *)listener);
    return NULL;
}

static void fast_open(int fd, int by_message, int is_blocking) {
    struct iovec piece = {"hello", 5};
    struct msghdr msg = {.msg_name = &here, .msg_namelen = sizeof here, .msg_iov = &piece, .msg_iovlen = 1};
    ssize_t sent = by_message ? sendmsg(fd, &msg, MSG_FASTOPEN) : sendto(fd, "hello", 5, MSG_FASTOPEN, (void *)&here, sizeof here);
    if (sent < 0 && errno == EINPROGRESS) { /* as where there is no cookie of the server's */
        struct pollfd one = {fd, POLLOUT, 0};
        IS(poll(&one, 1, 20000), 1);
        IS(one.revents, POLLOUT);
        sent = send(fd, "hello", 5, 0);
    }
    IS(sent, 5);
    hear(fd, "world");
    print("client", fd);
    if (is_blocking)
        FAILS(sendto(fd, "hello", 5, MSG_FASTOPEN | MSG_NOSIGNAL, (void *)&here, sizeof here), EISCONN);
}

static void fast_opens(int flags) {
    int listener = listening();
    pthread_t thread;
    IS(pthread_create(&thread, NULL, serves_twice, &listener), 0);
    fast_open(tcp(flags), 0, flags == 0);
    fast_open(tcp(flags), 1, flags == 0);
    pthread_join(thread, NULL);
    close(listener);
    int fd = tcp(0);
    FAILS(sendto(fd, "hello", 5, MSG_FASTOPEN, (void *)&here, sizeof here), ECONNREFUSED);
}

static void fast_open_blocking(void) { fast_opens(0); }
static void fast_open_nonblocking(void) { fast_opens(SOCK_NONBLOCK); }

static void fast_open_of_many(void) {
    int listener = listening(), fd = tcp(0);
    pthread_t thread;
    IS(pthread_create(&thread, NULL, serves_twice, &listener), 0);
    struct iovec piece = {"hello", 5};
    struct mmsghdr msgs[2] = {{.msg_hdr = {.msg_name = &here, .msg_namelen = sizeof here, .msg_iov = &piece, .msg_iovlen = 1}}};
    msgs[1] = msgs[0];
    IS(sendmmsg(fd, msgs, 2, MSG_FASTOPEN), 1);
    IS(msgs[0].msg_len, 5);
    hear(fd, "world");
    print("client", fd);
    is_served();
    pthread_join(thread, NULL);
}

/* The kernel's own answer, whatever the library says. */
static int kernels(int fd, int level, int name) {
    int (*ask)(int, int, int, void *, socklen_t *) = dlsym(dlopen("libc.so.6", RTLD_NOW), "getsockopt");
    int value = -1;
    socklen_t len = sizeof value;
    IS(ask(fd, level, name, &value, &len), 0);
    return value;
}

static void fast_open_by_connect(void) {
    int listener = listening(), fd = tcp(0), on = 1;
    pthread_t thread;
    IS(pthread_create(&thread, NULL, serves_twice, &listener), 0);
    IS(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on), 0);
    IS(connect(fd, (void *)&here, sizeof here), 0);
    say(fd, "hello");
    hear(fd, "world");
    print("client", fd);
    IS(kernels(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT), !is_framed(fd));
    is_served();
    pthread_join(thread, NULL);
}

/* Sends as programs do that have asked for it; without room for what it takes, as they do then. */
static void zerocopy_send(int fd, const char *what) {
    int completions = 0;
    ssize_t sent = send(fd, what, 5, MSG_ZEROCOPY);
    if (sent < 0) {
        IS(errno, ENOBUFS);
        sent = send(fd, what, 5, 0);
    } else
        completions = 1;
    IS(sent, 5);
    while (completions > 0) {
        char control[200];
        struct msghdr msg = {.msg_control = control, .msg_controllen = sizeof control};
        struct pollfd one = {fd, 0, 0};
        IS(poll(&one, 1, 5000), 1);
        IS(recvmsg(fd, &msg, MSG_ERRQUEUE), 0);
        completions--;
    }
}

static void zerocopy(void) {
    int listener = tcp(0), fd = tcp(0), on = 1;
    IS(setsockopt(listener, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on), 0);
    listen_somewhere(listener, &here);
    IS(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on), 0);
    IS(connect(fd, (void *)&here, sizeof here), 0);
    int server = accept(listener, NULL, NULL);
    zerocopy_send(fd, "hello");
    hear(server, "hello");
    zerocopy_send(server, "world");
    hear(fd, "world");
    print("client", fd);
    /* Without the option the flag means nothing. */
    listener = listening();
    fd = connected();
    server = accept(listener, NULL, NULL);
    IS(send(fd, "hello", 5, MSG_ZEROCOPY), 5);
    hear(server, "hello");
    print("client", fd);
}

/* MPTCP: what the connection, and the listener, come to. */
static void mptcp(void) {
    int listener = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
    if (listener < 0) {
        puts("no MPTCP");
        return;
    }
    memset(&here, 0, sizeof here);
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof here;
    IS(bind(listener, (void *)&here, len), 0);
    IS(getsockname(listener, (void *)&here, &len), 0);
    if (listen(listener, 5) != 0) {
        printf("listen: %s\n", strerrorname_np(errno));
        int plain = tcp(0), fd = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
        listen_somewhere(plain, &here);
        FAILS(connect(fd, (void *)&here, sizeof here), EPROTONOSUPPORT);
        puts("connect: EPROTONOSUPPORT");
        return;
    }
    int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
    IS(connect(fd, (void *)&here, sizeof here), 0);
    say(fd, "hello");
    serve(accept(listener, NULL, NULL));
    hear(fd, "world");
    print("client", fd);
}

static const struct {
    const char *name;
    void (*run)(void);
} ways[] = {
    {"listener-by-exec", listener_by_exec},
    {"listener-by-exec-in-epoll", listener_by_exec_in_epoll},
    {"asked-listener-by-exec", asked_listener_by_exec},
    {"listener-by-message", listener_by_message},
    {"listener-under-a-plain-number", listener_under_a_plain_number},
    {"stays-plain", stays_plain},
    {"connection-by-exec", connection_by_exec},
    {"connection-as-standard-streams", connection_as_standard_streams},
    {"connections-by-message", connections_by_message},
    {"fast-open", fast_open_blocking},
    {"fast-open-nonblocking", fast_open_nonblocking},
    {"fast-open-of-many", fast_open_of_many},
    {"fast-open-by-connect", fast_open_by_connect},
    {"zerocopy", zerocopy},
    {"mptcp", mptcp},
};

static const struct {
    const char *name;
    void (*run)(int fd);
} roles[] = {
    {"accepts", accepts},
    {"accepts-by-edges", accepts_by_edges},
    {"takes-and-accepts", takes_and_accepts},
    {"takes-and-serves", takes_and_serves},
    {"serves", serve},
};

int main(int argc, char **argv) {
    self = argv[0];
    alarm(300);
    for (size_t i = 0; argc == 2 && i < sizeof ways / sizeof *ways; i++)
        if (strcmp(argv[1], ways[i].name) == 0)
            return ways[i].run(), 0;
    for (size_t i = 0; argc == 3 && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(argv[1], roles[i].name) == 0)
            return roles[i].run(atoi(argv[2])), 0;
    return 2;
}
