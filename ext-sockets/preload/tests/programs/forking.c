/* Forks of a process whose sockets are in DDPMODE, at bad moments: each function is one, run by
 * its name.
 *
 * With no library the same program runs over plain TCP, and says the same.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "need.h"

static int stops;

/* Begins connections and gives them up. */
static void *connecting(void *nothing) {
    while (!__atomic_load_n(&stops, __ATOMIC_RELAXED)) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(fd, (void *)&here, sizeof here);
        struct linger at_once = {1, 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(fd);
    }
    return nothing;
}

static void *accepting(void *listener) {
    int fd;
    while ((fd = accept(*(int *)listener, NULL, NULL)) >= 0 || errno == ECONNABORTED)
        if (fd >= 0)
            close(fd);
    return NULL;
}

/* Other threads begin connections. A thread that waits for another that waits for it ends with
 * the alarm. */
static void while_others_begin(void) {
    int listener = bound();
    NEED(listen(listener, 128) == 0);
    pthread_t threads[3], accepts;
    pthread_create(&accepts, NULL, accepting, &listener);
    for (int i = 0; i < 3; i++)
        pthread_create(threads + i, NULL, connecting, NULL);
    for (int i = 0; i < 500; i++) {
        alarm(60); /* for each: all of them take long on a busy machine */
        pid_t child = fork();
        NEED(child >= 0);
        if (child == 0) {
            /* In the child all locks are free. */
            int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
            connect(fd, (void *)&here, sizeof here);
            _exit(0);
        }
        int status;
        NEED(waitpid(child, &status, 0) == child && status == 0);
    }
    __atomic_store_n(&stops, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    shutdown(listener, SHUT_RDWR);
    pthread_join(accepts, NULL);
}

static int opened[2], closed[2];

/* The client of a server that accepts and closes: sees the end, and no reset, if the server's
 * end was the last that anybody had. It begins nothing before that, and is there before anybody
 * listens. */
static pid_t sees_the_end(void) {
    NEED(pipe2(opened, O_CLOEXEC) == 0 && pipe2(closed, O_CLOEXEC) == 0);
    pid_t client = fork();
    if (client == 0) {
        char octet;
        NEED(read(opened[0], &octet, 1) == 1);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        NEED(connect(fd, (void *)&here, sizeof here) == 0 || errno == EINPROGRESS);
        NEED(read(closed[0], &octet, 1) == 1);
        NEED(fcntl(fd, F_SETFL, 0) == 0);
        NEED(recv(fd, &octet, 1, 0) == 0);
        _exit(0);
    }
    return client;
}

static int accepted(int listener) {
    NEED(listen(listener, 1) == 0 && write(opened[1], "x", 1) == 1);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    NEED(fd >= 0);
    return fd;
}

static void is_closed(int fd) {
    NEED(close(fd) == 0 && write(closed[1], "x", 1) == 1);
}

static void ended_well(pid_t child) {
    int status;
    NEED(waitpid(child, &status, 0) == child && status == 0);
}

static void filtered(struct sock_fprog program) {
    NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    NEED(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* From here on there are no new processes, though there are threads. */
static void no_more_forks(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_VM, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    filtered((struct sock_fprog){sizeof filter / sizeof *filter, filter});
}

/* A fork that fails leaves the sockets to the process that they belong to. */
static void that_fails(void) {
    int listener = bound();
    pid_t client = sees_the_end();
    /* Before any socket is in DDPMODE: else the process counts as one that confines itself
     * (seccomp). */
    no_more_forks();
    int fd = accepted(listener);
    for (int i = 0; i < 40; i++)
        NEED(fork() == -1 && errno == EAGAIN);
    is_closed(fd);
    ended_well(client);
}

/* A program that a child executes has none of the sockets that exec closes. */
static void that_executes(void) {
    int listener = bound(), pipes[2];
    NEED(pipe(pipes) == 0);
    NEED(fcntl(listener, F_SETFD, FD_CLOEXEC) == 0);
    pid_t client = sees_the_end();
    int fd = accepted(listener);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], 1);
        execl(self, self, "lasting", NULL);
        _exit(1);
    }
    char octet;
    NEED(read(pipes[0], &octet, 1) == 1);
    is_closed(fd);
    ended_well(client);
    kill(child, SIGKILL);
    NEED(waitpid(child, NULL, 0) == child);
}

/* A child of the bare system call outlives the process that accepted the connection, and
 * executes something else. */
static void by_the_system_call(void) {
    int listener = bound(), there[2], gone[2];
    char octet;
    NEED(listen(listener, 1) == 0 && pipe(there) == 0 && pipe(gone) == 0);
    pid_t server = fork();
    if (server == 0) {
        int fd = accept(listener, NULL, NULL);
        NEED(fd >= 0 && recv(fd, &octet, 1, 0) == 1);
        if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0) {
            NEED(close(dup(fd)) == 0 && write(there[1], "x", 1) == 1);
            NEED(read(gone[0], &octet, 1) == 1 && dup2(fd, 0) == 0);
            execl(self, self, "saying", NULL);
            _exit(1);
        }
        NEED(read(there[0], &octet, 1) == 1);
        exit(0);
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    NEED(connect(fd, (void *)&here, sizeof here) == 0 && send(fd, "x", 1, 0) == 1);
    ended_well(server);
    NEED(write(gone[1], "x", 1) == 1);
    NEED(recv(fd, &octet, 1, 0) == 1 && octet == 'z');
}

/* From here on the kernel kills a process that asks about a socket. */
static void no_more_questions(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    filtered((struct sock_fprog){sizeof filter / sizeof *filter, filter});
}

/* A child that has confined itself is told that the connection has been reset, and lives. */
static void that_confines(void) {
    int listener = bound(), ready[2], client = socket(AF_INET, SOCK_STREAM, 0);
    char octet;
    NEED(listen(listener, 1) == 0 && pipe(ready) == 0);
    NEED(connect(client, (void *)&here, sizeof here) == 0);
    int fd = accept(listener, NULL, NULL);
    NEED(fd >= 0 && send(client, "x", 1, 0) == 1 && recv(fd, &octet, 1, 0) == 1);
    pid_t child = fork();
    if (child == 0) {
        struct pollfd end = {fd, POLLIN, 0};
        NEED(close(client) == 0);
        no_more_questions();
        NEED(write(ready[1], "x", 1) == 1);
        NEED(poll(&end, 1, -1) == 1 && end.revents & POLLERR);
        _exit(0);
    }
    struct linger at_once = {1, 0};
    NEED(read(ready[0], &octet, 1) == 1);
    NEED(setsockopt(client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    NEED(close(client) == 0);
    ended_well(child);
}

int main(int argc, char **argv) {
    self = argv[0];
    alarm(60);
    if (argc < 2)
        return 2;
    if (!strcmp(argv[1], "lasting")) {
        NEED(write(1, "x", 1) == 1);
        pause();
    }
    if (!strcmp(argv[1], "saying"))
        return send(0, "z", 1, 0) != 1;
    struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"while_others_begin", while_others_begin},
               {"that_fails", that_fails},
               {"that_executes", that_executes},
               {"by_the_system_call", by_the_system_call},
               {"that_confines", that_confines}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(argv[1], all[i].name))
            all[i].run();
    puts("as it should be");
    return 0;
}
