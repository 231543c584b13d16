/* Connections in DDPMODE that several processes hold, in the ways of servers: each function is
 * one, run by its name.
 *
 * With no library the same program runs over plain TCP, and says the same.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "need.h"

static int listening(void) {
    int fd = bound();
    NEED(listen(fd, 16) == 0);
    return fd;
}

static int connected(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    NEED(connect(fd, (void *)&here, sizeof here) == 0);
    return fd;
}

static void send_all(int fd, const char *octets, size_t count) {
    while (count > 0) {
        ssize_t sent = write(fd, octets, count);
        NEED(sent > 0);
        octets += sent;
        count -= sent;
    }
}

static void receive_all(int fd, char *octets, size_t count) {
    while (count > 0) {
        ssize_t got = read(fd, octets, count);
        NEED(got > 0);
        octets += got;
        count -= got;
    }
}

#define SIZE (3 << 20)
static char sent[SIZE], got[SIZE];

static void fill(unsigned seed) {
    for (size_t i = 0; i < SIZE; i++)
        sent[i] = (char)((i * 2654435761u + seed) >> 13);
}

/* Whatever comes goes back, until the peer has finished. */
static void echo(int fd) {
    static char octets[100000];
    ssize_t count;
    while ((count = read(fd, octets, sizeof octets)) > 0)
        send_all(fd, octets, count);
    NEED(count == 0);
}

static void *writing(void *fd) {
    send_all(*(int *)fd, sent, SIZE);
    NEED(shutdown(*(int *)fd, SHUT_WR) == 0);
    return NULL;
}

/* A client's part: SIZE octets there and back. */
static void there_and_back(int fd, unsigned seed) {
    pthread_t writer;
    char octet;
    fill(seed);
    NEED(pthread_create(&writer, NULL, writing, &fd) == 0);
    receive_all(fd, got, SIZE);
    NEED(read(fd, &octet, 1) == 0);
    pthread_join(writer, NULL);
    NEED(memcmp(sent, got, SIZE) == 0);
    NEED(close(fd) == 0);
}

static void ended_well(pid_t child) {
    int status = -1;
    NEED(waitpid(child, &status, 0) == child);
    NEED(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The child serves and the parent closes, for each connection. */
static void child_serves(void) {
    int listener = listening();
    pid_t server = fork();
    if (server == 0) {
        for (int i = 0; i < 3; i++) {
            int fd = accept(listener, NULL, NULL);
            pid_t child = fork();
            if (child == 0) {
                close(listener);
                echo(fd);
                exit(0);
            }
            NEED(close(fd) == 0);
            ended_well(child);
        }
        exit(0);
    }
    for (unsigned i = 0; i < 3; i++)
        there_and_back(connected(), i);
    ended_well(server);
}

/* Children accept from one listener, one connection after the other. */
static void prefork(void) {
    int listener = listening();
    pid_t children[3];
    for (int i = 0; i < 3; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            for (;;) {
                int fd = accept(listener, NULL, NULL);
                char first;
                NEED(read(fd, &first, 1) == 1);
                if (first == 'q')
                    exit(0);
                send_all(fd, &first, 1);
                echo(fd);
                close(fd);
            }
        }
    }
    for (unsigned i = 0; i < 9; i++) {
        int fd = connected();
        char first = 'x';
        send_all(fd, &first, 1);
        receive_all(fd, &first, 1);
        there_and_back(fd, i);
    }
    for (int i = 0; i < 3; i++)
        send_all(connected(), "q", 1);
    for (int i = 0; i < 3; i++)
        ended_well(children[i]);
}

/* On one connection one process reads and another writes, as in the daemon of rsync. */
static void reader_and_writer(void) {
    int listener = listening();
    pid_t client = fork();
    if (client == 0) {
        there_and_back(connected(), 7);
        exit(0);
    }
    int fd = accept(listener, NULL, NULL), tube[2];
    NEED(pipe(tube) == 0);
    pid_t writer = fork();
    if (writer == 0) {
        static char octets[65536];
        ssize_t count;
        close(tube[1]);
        while ((count = read(tube[0], octets, sizeof octets)) > 0)
            send_all(fd, octets, count);
        exit(count == 0 ? 0 : 1);
    }
    static char octets[50000];
    ssize_t count;
    while ((count = read(fd, octets, sizeof octets)) > 0)
        send_all(tube[1], octets, count);
    NEED(count == 0);
    close(fd);
    close(tube[1]);
    ended_well(writer);
    ended_well(client);
}

/* The connection becomes standard input and output of another program. Before it is executed a
 * word has gone each way or, with `fresh`, nothing has. */
static void inetd(int fresh) {
    int listener = listening();
    pid_t server = fork();
    if (server == 0) {
        int fd = accept(listener, NULL, NULL);
        char word[5];
        if (!fresh) {
            receive_all(fd, word, 5);
            send_all(fd, word, 5);
        }
        NEED(dup2(fd, 0) == 0 && dup2(fd, 1) == 1);
        closefrom(3);
        execl(self, self, "served", NULL);
        _exit(1);
    }
    int fd = connected();
    if (!fresh) {
        char word[5];
        send_all(fd, "hello", 5);
        receive_all(fd, word, 5);
        NEED(memcmp(word, "hello", 5) == 0);
    }
    there_and_back(fd, 11);
    ended_well(server);
}

/* stdio: of a program that has the connection as standard input and output, and of one that
 * opens it. */
static void stdio(void) {
    int listener = listening();
    pid_t server = fork();
    if (server == 0) {
        int fd = accept(listener, NULL, NULL);
        NEED(dup2(fd, 0) == 0 && dup2(fd, 1) == 1);
        closefrom(3);
        execl(self, self, "printed", NULL);
        _exit(1);
    }
    int fd = connected();
    FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
    char line[100];
    NEED(in && out && fileno(in) == fd && fileno(out) != fd);
    fprintf(out, "first %d\n", 1);
    fflush(out);
    NEED(fgets(line, sizeof line, in) && !strcmp(line, "8 first 1\n"));
    for (int i = 0; i < 20000; i++)
        fprintf(out, "line %d\n", i);
    NEED(fflush(out) == 0 && shutdown(fileno(out), SHUT_WR) == 0 && fclose(out) == 0);
    for (int i = 0; i < 20000; i++) {
        char wanted[100];
        snprintf(wanted, sizeof wanted, "line %d\n", i);
        NEED(fgets(line, sizeof line, in) && !strcmp(strchr(line, ' ') + 1, wanted));
    }
    NEED(!fgets(line, sizeof line, in) && feof(in) && fclose(in) == 0);
    NEED(fcntl(fd, F_GETFD) == -1);
    ended_well(server);
}

/* A program runs another as CPython's subprocess does: vfork, close everything, exec. The
 * parent's connection stays. */
static void vforked(void) {
    int listener = listening();
    pid_t server = fork();
    if (server == 0) {
        echo(accept(listener, NULL, NULL));
        exit(0);
    }
    int fd = connected();
    send_all(fd, "before", 6);
    pid_t child = vfork();
    if (child == 0) {
        dup2(fd, 0);
        close(fd);
        close_range(3, ~0U, 0);
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    ended_well(child);
    receive_all(fd, got, 6);
    NEED(memcmp(got, "before", 6) == 0);
    there_and_back(fd, 3);
    ended_well(server);
}

/* Sends a descriptor in a message. */
static void pass(int to, int fd) {
    char octet = 0, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec piece = {&octet, 1};
    struct msghdr msg = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&msg);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    NEED(sendmsg(to, &msg, 0) == 1);
}

/* Returns a descriptor that comes in a message. */
static int taken(int from) {
    int fd;
    char octet, control[CMSG_SPACE(sizeof fd)];
    struct iovec piece = {&octet, 1};
    struct msghdr msg = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    NEED(recvmsg(from, &msg, 0) == 1);
    struct cmsghdr *header = CMSG_FIRSTHDR(&msg);
    NEED(header && header->cmsg_type == SCM_RIGHTS);
    memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
}

/* A connection goes to another process in a message. */
static void passed(void) {
    int listener = listening(), pair[2];
    NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t server = fork();
    if (server == 0) {
        echo(taken(pair[1]));
        exit(0);
    }
    pid_t client = fork();
    if (client == 0) {
        int fd = connected();
        char word[3];
        send_all(fd, "one", 3);
        receive_all(fd, word, 3);
        there_and_back(fd, 5);
        exit(0);
    }
    int fd = accept(listener, NULL, NULL);
    char word[3];
    receive_all(fd, word, 3);
    send_all(fd, word, 3);
    pass(pair[0], fd);
    NEED(close(fd) == 0);
    ended_well(server);
    ended_well(client);
}

/* A connection comes in a message to a child that has it already, and closes its own first. */
static void passed_again(void) {
    int listener = listening(), pair[2], told[2];
    NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && pipe(told) == 0);
    pid_t client = fork();
    if (client == 0) {
        there_and_back(connected(), 5);
        exit(0);
    }
    int fd = accept(listener, NULL, NULL);
    char octet = 0;
    pid_t server = fork();
    if (server == 0) {
        NEED(read(told[0], &octet, 1) == 1);
        NEED(close(fd) == 0);
        NEED(write(pair[1], &octet, 1) == 1);
        /* For a while nobody has it but the message. */
        NEED(read(told[0], &octet, 1) == 1);
        echo(taken(pair[1]));
        exit(0);
    }
    pass(pair[0], fd);
    NEED(write(told[1], &octet, 1) == 1);
    NEED(read(pair[0], &octet, 1) == 1);
    NEED(close(fd) == 0);
    NEED(write(told[1], &octet, 1) == 1);
    ended_well(server);
    ended_well(client);
}

/* A process that may not have the stream gets an error, and reads no octet of it. Root only. */
static void stranger(void) {
    if (getuid() != 0)
        return;
    int listener = listening();
    pid_t server = fork();
    if (server == 0) {
        int fd = accept(listener, NULL, NULL);
        char word[5];
        receive_all(fd, word, 5);
        NEED(dup2(fd, 0) == 0);
        NEED(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
        execl(self, self, "refused", NULL);
        _exit(1);
    }
    int fd = connected();
    send_all(fd, "hello", 5);
    ended_well(server);
    close(fd);
}

static void *blocked(void *fd) {
    char octet;
    ssize_t count = read(*(int *)fd, &octet, 1);
    return (void *)(count <= 0 ? 1L : 0L);
}

/* A thread closes what another one reads. Plain TCP leaves the reader where it is until the peer
 * does something; the peer does here. */
static void closed_in_between(void) {
    int listener = listening(), fd = connected(), other = accept(listener, NULL, NULL);
    char octet = 'x';
    send_all(fd, &octet, 1);
    receive_all(other, &octet, 1);
    pthread_t reader;
    void *result;
    NEED(pthread_create(&reader, NULL, blocked, &fd) == 0);
    usleep(100000);
    int was = fd;
    NEED(close(fd) == 0);
    close(other);
    pthread_join(reader, &result);
    NEED(result == (void *)1L);
    NEED(read(was, &octet, 1) == -1 && errno == EBADF);
}

static int cleaned_up;

static void clean_up(void *nothing) {
    (void)nothing;
    cleaned_up++;
}

static void *reading(void *fd) {
    char octet;
    pthread_cleanup_push(clean_up, NULL);
    for (;;)
        NEED(read(*(int *)fd, &octet, 1) == 1);
    pthread_cleanup_pop(0);
    return NULL;
}

/* Threads that sleep in a read are cancelled; the connection goes on. */
static void cancelled(void) {
    int listener = listening();
    pid_t server = fork();
    if (server == 0) {
        echo(accept(listener, NULL, NULL));
        exit(0);
    }
    int fd = connected();
    char octet = 'x';
    send_all(fd, &octet, 1);
    receive_all(fd, &octet, 1);
    for (int i = 0; i < 5; i++) {
        pthread_t thread;
        void *result;
        NEED(pthread_create(&thread, NULL, reading, &fd) == 0);
        usleep(20000);
        NEED(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        NEED(result == PTHREAD_CANCELED && cleaned_up == i + 1);
    }
    there_and_back(fd, 9);
    ended_well(server);
}

/* A process exits with octets that TCP had no room for. */
static void exits_with_octets(void) {
    int listener = listening();
    pid_t client = fork();
    if (client == 0) {
        int fd = connected();
        size_t done = 0;
        fill(1);
        NEED(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
        struct pollfd one = {fd, POLLOUT, 0};
        NEED(poll(&one, 1, 10000) == 1);
        for (;;) {
            ssize_t count = write(fd, sent + done % SIZE, 70000);
            if (count < 0)
                break;
            done += count;
        }
        NEED(errno == EAGAIN);
        char said[32];
        int tube = open("count", O_WRONLY | O_CREAT | O_TRUNC, 0600);
        NEED(write(tube, said, snprintf(said, sizeof said, "%zu", done)) > 0);
        exit(0);
    }
    int fd = accept(listener, NULL, NULL);
    static char octets[65536];
    char said[32] = "";
    NEED(recv(fd, octets, 1, MSG_PEEK) == 1);
    usleep(300000);
    size_t done = 0;
    ssize_t count;
    while ((count = read(fd, octets, sizeof octets)) > 0)
        done += count;
    NEED(count == 0);
    ended_well(client);
    int tube = open("count", O_RDONLY);
    NEED(read(tube, said, sizeof said - 1) > 0);
    NEED(strtoul(said, NULL, 10) == done);
}

int main(int argc, char **argv) {
    self = argv[0];
    alarm(60);
    if (argc < 2)
        return 2;
    if (!strcmp(argv[1], "served")) {
        static char octets[70000];
        ssize_t count;
        while ((count = read(0, octets, sizeof octets)) > 0)
            send_all(1, octets, count);
        return count == 0 ? 0 : 1;
    }
    if (!strcmp(argv[1], "printed")) {
        static char line[1000];
        while (fgets(line, sizeof line, stdin)) {
            printf("%zu %s", strlen(line), line);
            if (line[0] == 'f')
                fflush(stdout);
        }
        return 0;
    }
    if (!strcmp(argv[1], "refused")) {
        char octet;
        const char *wanted = argc > 2 ? argv[2] : "";
        (void)wanted;
        return read(0, &octet, 1) == -1 && errno == ECONNABORTED ? 0 : 1;
    }
    struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"child_serves", child_serves}, {"prefork", prefork},     {"reader_and_writer", reader_and_writer},
               {"vforked", vforked},           {"passed", passed},       {"passed_again", passed_again},
               {"closed_in_between", closed_in_between},
               {"exits_with_octets", exits_with_octets}, {"stranger", stranger},
               {"cancelled", cancelled},       {"stdio", stdio}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(argv[1], all[i].name))
            all[i].run();
    if (!strcmp(argv[1], "inetd"))
        inetd(0);
    if (!strcmp(argv[1], "inetd_fresh"))
        inetd(1);
    puts("as it should be");
    return 0;
}
