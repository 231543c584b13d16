/* cost server N | cost client PORT N | cost reader | cost twice | cost interrupted N: a server
 * and a client that make a connection a request, as nginx and ab do, and a client that reads 8
 * KB at a time and asks FIONREAD whether there is more, as wrk does.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(what)                                                                                                     \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "line %d: not so: %s (%s)\n", __LINE__, #what, strerror(errno));                           \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define BULK 100000
#define ROOM 8192
static char octets[BULK + ROOM];
static struct sockaddr_in here = {.sin_family = AF_INET};
static int epoll;
static pthread_barrier_t sent;

static int listens(void) {
    socklen_t len = sizeof here;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    NEED(bind(listener, (void *)&here, len) == 0 && listen(listener, 5) == 0);
    NEED(getsockname(listener, (void *)&here, &len) == 0);
    return listener;
}

static void put(int operation, int fd, unsigned events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    NEED(epoll_ctl(epoll, operation, fd, &event) == 0);
}

static void await(void) {
    struct epoll_event event;
    NEED(epoll_wait(epoll, &event, 1, 20000) == 1);
}

static ssize_t some(int fd) {
    ssize_t count;
    while ((count = recv(fd, octets, ROOM, 0)) < 0) {
        NEED(errno == EAGAIN);
        await();
    }
    return count;
}

static void serve(int count) {
    int listener = listens();
    printf("%d\n", ntohs(here.sin_port));
    fflush(stdout);
    while (count-- > 0) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
        put(EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP | EPOLLET);
        await();
        NEED(some(fd) == 100 && send(fd, octets, 1000, 0) == 1000);
        close(fd);
    }
}

static void request(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    NEED(connect(fd, (void *)&here, sizeof here) == -1 && errno == EINPROGRESS);
    put(EPOLL_CTL_ADD, fd, EPOLLOUT);
    await();
    NEED(connect(fd, (void *)&here, sizeof here) == 0);
    put(EPOLL_CTL_DEL, fd, 0);
    put(EPOLL_CTL_ADD, fd, EPOLLIN);
    NEED(write(fd, octets, 100) == 100);
    for (ssize_t got = 0, count; (count = some(fd)) > 0 || got < 1000; got += count) {
        NEED(count > 0);
    }
    put(EPOLL_CTL_DEL, fd, 0);
    close(fd);
}

static void *send_bulk(void *nothing) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    NEED(connect(fd, (void *)&here, sizeof here) == 0);
    NEED(write(fd, octets, BULK) == BULK);
    pthread_barrier_wait(&sent);
    NEED(recv(fd, octets, 1, 0) == 0);
    NEED(close(fd) == 0);
    return nothing;
}

/* Begins when all is sent, and marks from where to where by a call that nothing else makes. */
static void read_bulk(void) {
    pthread_t sender;
    int listener = listens(), more;
    pthread_barrier_init(&sent, NULL, 2);
    NEED(pthread_create(&sender, NULL, send_bulk, NULL) == 0);
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    put(EPOLL_CTL_ADD, fd, EPOLLIN);
    await();
    pthread_barrier_wait(&sent);
    getppid();
    for (size_t got = 0; got < BULK;) {
        got += some(fd);
        NEED(ioctl(fd, FIONREAD, &more) == 0);
    }
    getppid();
    close(fd);
    pthread_join(sender, NULL);
}

/* A program that FIONREAD told of a part, and that asks again without reading, gets the count of
 * all. */
static void ask_twice(void) {
    int listener = listens(), count = 0, fd = socket(AF_INET, SOCK_STREAM, 0);
    NEED(connect(fd, (void *)&here, sizeof here) == 0);
    int other = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    put(EPOLL_CTL_ADD, other, EPOLLIN);
    for (int part = 0; part < 3; part++) {
        NEED(write(fd, octets, 2000) == 2000);
    }
    while (count < 6000) {
        await();
        NEED(ioctl(other, FIONREAD, &count) == 0);
    }
    NEED(count == 6000 && recv(other, octets, 1000, 0) == 1000);
    NEED(ioctl(other, FIONREAD, &count) == 0 && count > 0 && count <= 5000);
    NEED(ioctl(other, FIONREAD, &count) == 0 && count == 5000);
    NEED(recv(other, octets, 4900, 0) > 0);
}

/* A handler that POSIX lets call close, getsockopt and fork, wherever it comes in between. */
static int kept;
static volatile sig_atomic_t handled;

static void in_between(int number) {
    int before = errno, error;
    socklen_t len = sizeof error;
    int other = dup(kept);
    getsockopt(kept, SOL_SOCKET, SO_ERROR, &error, &len);
    if (other >= 0) {
        close(other);
    }
    if (++handled % 64 == 0) {
        pid_t child = fork();
        if (child == 0) {
            _exit(0);
        }
        while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    errno = before;
}

static int connected(int listener, int *other) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    NEED(connect(fd, (void *)&here, sizeof here) == 0);
    NEED((*other = accept(listener, NULL, NULL)) >= 0);
    return fd;
}

static void move(int from, int to) {
    while (write(from, octets, 100) < 0) {
        NEED(errno == EINTR);
    }
    for (ssize_t got = 0, count; got < 100; got += count > 0 ? count : 0) {
        count = read(to, octets, 100);
        NEED(count > 0 || errno == EINTR);
    }
}

static void interrupted(int count) {
    int listener = listens(), other;
    struct sigaction action = {.sa_handler = in_between, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 500}, {0, 500}}, never = {0};
    kept = connected(listener, &other);
    move(kept, other);
    NEED(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (count-- > 0 || handled < 200) {
        int to, from = connected(listener, &to);
        move(from, to);
        move(to, from);
        NEED(close(from) == 0 && close(to) == 0);
    }
    NEED(setitimer(ITIMER_REAL, &never, NULL) == 0);
    move(kept, other);
}

int main(int argc, char **argv) {
    NEED(argc > 1);
    epoll = epoll_create1(0);
    if (strcmp(argv[1], "server") == 0) {
        serve(atoi(argv[2]));
    } else if (strcmp(argv[1], "interrupted") == 0) {
        interrupted(atoi(argv[2]));
    } else if (strcmp(argv[1], "twice") == 0) {
        ask_twice();
    } else if (strcmp(argv[1], "reader") == 0) {
        read_bulk();
    } else {
        here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        here.sin_port = htons(atoi(argv[2]));
        for (int count = atoi(argv[3]); count > 0; count--) {
            request();
        }
    }
    return 0;
}
