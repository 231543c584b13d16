/* What sockets in DDPMODE take of /dev/shm, and what they leave there: shm NAME [WORDS...], each
 * a function below.
 *
 * Under librddp_sockets.so, in a mount namespace whose /dev/shm nobody else uses: see run.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "../stress/stream.h"

enum { PATIENCE = 60000, MANY = 10000 };

static struct sockaddr_in here;
static unsigned char octets[1 << 20];

/* DDPMODE's value for a byte stream in Sends, beside those of other kinds. */
enum { DDPMODE_BYTES = 1 };

static void in_ddpmode(int fd) {
    int on = MODE;
    MUST(setsockopt(fd, SOL_DDP, DDPMODE, &on, sizeof on));
}

static int listening(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof here;
    here = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    in_ddpmode(fd);
    MUST(bind(fd, (void *)&here, len));
    MUST(listen(fd, 128));
    MUST(getsockname(fd, (void *)&here, &len));
    return fd;
}

static int connected(bool markers) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = markers;
    in_ddpmode(fd);
    MUST(setsockopt(fd, SOL_DDP, DDP_MARKERS, &on, sizeof on));
    MUST(connect(fd, (void *)&here, sizeof here));
    return fd;
}

static void send_all(int fd, uint64_t seed, uint64_t at, size_t count) {
    stream_octets(seed, at, octets, count);
    for (size_t done = 0; done < count;) {
        ssize_t sent = send(fd, octets + done, count - done, 0);
        MUST(sent);
        done += sent;
    }
}

static void receive_all(int fd, uint64_t seed, uint64_t at, size_t count) {
    while (count > 0) {
        ssize_t got = recv(fd, octets, count < 3000 ? count : 3000, 0);
        MUST(got);
        if (got == 0 || stream_agrees(seed, at, octets, got) != (size_t)got)
            fail("octets at %llu are not those that were sent", (unsigned long long)at);
        at += got, count -= got;
    }
}

static unsigned long used_kib(void) {
    struct statvfs about;
    MUST(statvfs("/dev/shm", &about));
    return (about.f_blocks - about.f_bfree) * (about.f_frsize / 1024);
}

/* Starts a child, which ends with `body`, and returns its number. */
static pid_t child(void (*body)(void)) {
    pid_t pid = fork();
    MUST(pid);
    if (pid == 0) {
        body();
        exit(0);
    }
    return pid;
}

static void ended_well(pid_t pid) {
    int status;
    MUST(waitpid(pid, &status, 0));
    if (status != 0)
        fail("a child ended with %x", status);
}

static int listener, count, numbers[MANY];
static size_t each;
static bool markers;

/* Echoes in rounds: each connection is written to before it is read, so that more is outstanding
 * than buffers hold. */
static void serve(void) {
    for (int i = 0; i < count; i++)
        MUST(numbers[i] = accept(listener, NULL, NULL));
    for (int i = 0; i < count; i++)
        receive_all(numbers[i], i, 0, 100);
    for (int i = 0; i < count; i++)
        send_all(numbers[i], ~i, 0, 100);
    /* Nobody reads until all is written that can be written without waiting, twice: the second
     * time behind owed octets. */
    size_t *done = calloc(count, sizeof *done);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < count; i++)
            while (done[i] < each) {
                size_t some = each - done[i] < 50000 ? each - done[i] : 50000;
                stream_octets(~i, 100 + done[i], octets, some);
                ssize_t sent = send(numbers[i], octets, some, MSG_DONTWAIT);
                if (sent < 0 && errno == EAGAIN)
                    break;
                MUST(sent);
                done[i] += sent;
            }
    for (int i = 0; i < count; i++)
        receive_all(numbers[i], i, 100, 1);
    for (int i = 0; i < count; i++)
        while (done[i] < each) {
            size_t some = each - done[i] < 50000 ? each - done[i] : 50000;
            send_all(numbers[i], ~i, 100 + done[i], some);
            done[i] += some;
        }
    for (int i = 0; i < count; i++)
        receive_all(numbers[i], i, 101, 1);
}

/* crowd COUNT OCTETS [markers]: makes COUNT connections, both ends, with OCTETS on each; prints
 * the most that /dev/shm holds. */
static void crowd(char **words) {
    count = atoi(words[0]), each = atol(words[1]), markers = words[2] != NULL;
    listener = listening();
    pid_t server = child(serve);
    for (int i = 0; i < count; i++)
        numbers[i] = connected(markers);
    for (int i = 0; i < count; i++)
        send_all(numbers[i], i, 0, 100);
    for (int i = 0; i < count; i++)
        receive_all(numbers[i], ~i, 0, 100);
    for (int i = 0; i < count; i++)
        send_all(numbers[i], i, 100, 1);
    unsigned long most = used_kib();
    for (int i = 0; i < count; i++)
        receive_all(numbers[i], ~i, 100, each);
    most = used_kib() > most ? used_kib() : most;
    for (int i = 0; i < count; i++)
        send_all(numbers[i], i, 101, 1);
    ended_well(server);
    printf("%lu\n", most);
}

static void answer(void) {
    int fd = accept(listener, NULL, NULL);
    MUST(fd);
    receive_all(fd, 1, 0, 100);
    send_all(fd, 2, 0, 100);
    char octet;
    while (recv(fd, &octet, 1, 0) > 0)
        continue;
}

static int talking(pid_t *server) {
    listener = listening();
    *server = child(answer);
    int fd = connected(false);
    send_all(fd, 1, 0, 100);
    receive_all(fd, 2, 0, 100);
    return fd;
}

static int there[2];

static void wait_for_kill(void) {
    MUST(write(there[1], "", 1));
    for (;;)
        pause();
}

/* Returns a child that has come far enough to be killed. */
static pid_t waiting(void) {
    char octet;
    MUST(pipe(there));
    pid_t pid = child(wait_for_kill);
    MUST(read(there[0], &octet, 1));
    close(there[0]);
    close(there[1]);
    return pid;
}

/* holders COUNT: COUNT children have the connection, too, and all are killed, so that none gives
 * up its hold. */
static void holders(char **words) {
    pid_t server, pids[100];
    int many = atoi(words[0]), fd = talking(&server);
    for (int i = 0; i < many; i++)
        pids[i] = waiting();
    kill(server, SIGKILL);
    for (int i = 0; i < many; i++)
        kill(pids[i], SIGKILL);
    for (int i = 0; i < many; i++)
        waitpid(pids[i], NULL, 0);
    waitpid(server, NULL, 0);
    (void)fd;
    kill(getpid(), SIGKILL);
}

/* killed: ends with its connection open, and so does its server. */
static void killed(char **words) {
    (void)words;
    pid_t server;
    talking(&server);
    kill(server, SIGKILL);
    kill(getpid(), SIGKILL);
}

/* zombie: a child that had the connection is dead, and is not reaped as long as this process
 * lives, which uses no sockets any more. */
static void zombie(char **words) {
    (void)words;
    pid_t server;
    int fd = talking(&server);
    pid_t dead = waiting();
    siginfo_t about;
    kill(dead, SIGKILL);
    MUST(waitid(P_PID, dead, &about, WEXITED | WNOWAIT));
    close(fd);
    close(listener);
    ended_well(server);
    /* The socket is gone, though a process that held it is not reaped. */
    char *const words_of_next[] = {"sleep", "3600", NULL};
    puts("ready");
    fflush(stdout);
    execv("/bin/sleep", words_of_next);
    fail("no sleep");
}

/* passing: one connection from its beginning to its end, by processes that end in order. */
static void passing(char **words) {
    (void)words;
    pid_t server;
    int fd = talking(&server);
    close(fd);
    ended_well(server);
}

/* limited: does what passing does, under RLIMIT_FSIZE 0. */
static void limited(char **words) {
    struct rlimit none = {0, 0};
    MUST(setrlimit(RLIMIT_FSIZE, &none));
    passing(words);
}

/* forks COUNT: prints the processor time in microseconds that a fork takes with COUNT
 * connections, in the parent and in the child. */
static void hold(void) {
    for (int i = 0; i < count; i++)
        MUST(numbers[i] = accept(listener, NULL, NULL));
    for (int i = 0; i < count; i++) {
        receive_all(numbers[i], i, 0, 10);
        send_all(numbers[i], ~i, 0, 10);
    }
    char octet;
    recv(numbers[0], &octet, 1, 0);
}

/* Returns processor time, since others may be busy. */
static uint64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void forks(char **words) {
    enum { ROUNDS = 41 };
    static uint64_t parent[ROUNDS], born[ROUNDS];
    count = atoi(words[0]);
    listener = listening();
    pid_t server = child(hold);
    for (int i = 0; i < count; i++)
        numbers[i] = connected(false);
    for (int i = 0; i < count; i++)
        send_all(numbers[i], i, 0, 10);
    for (int i = 0; i < count; i++)
        receive_all(numbers[i], ~i, 0, 10);
    for (int i = 0; i < ROUNDS; i++) {
        int pipes[2];
        MUST(pipe(pipes));
        uint64_t before = nanoseconds(), after;
        pid_t pid = fork();
        after = nanoseconds();
        if (pid == 0) {
            after = nanoseconds();
            MUST(write(pipes[1], &after, sizeof after));
            _exit(0);
        }
        parent[i] = after - before;
        MUST(read(pipes[0], &after, sizeof after));
        born[i] = after;
        close(pipes[0]);
        close(pipes[1]);
        waitpid(pid, NULL, 0);
    }
    qsort(parent, ROUNDS, sizeof *parent, by_size);
    qsort(born, ROUNDS, sizeof *born, by_size);
    printf("fork with %d: %.0f us in the parent (at most %.0f), %.0f us in the child\n", count,
           parent[ROUNDS / 2] / 1e3, parent[ROUNDS - 1] / 1e3, born[ROUNDS / 2] / 1e3);
    close(numbers[0]);
    kill(server, SIGTERM);
    waitpid(server, NULL, 0);
}

int main(int words_count, char **words) {
    static const struct {
        const char *name;
        void (*run)(char **);
    } all[] = {{"crowd", crowd}, {"holders", holders}, {"killed", killed},   {"zombie", zombie},
               {"passing", passing}, {"limited", limited}, {"forks", forks}};
    alarm(words_count > 1 && strcmp(words[1], "zombie") == 0 ? 0 : 300);
    for (size_t i = 0; words_count > 1 && i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, words[1]) == 0) {
            all[i].run(words + 2);
            return 0;
        }
    fail("which?");
}
