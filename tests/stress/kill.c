/* A peer that is killed at any moment: kill ROUNDS SEED [plain].
 *
 * Each round has a process that accepts and one that connects; either may have a child that
 * holds the socket too and does half of the work: one reads while the other writes. One of them
 * is killed, after a random time or at a random system call. Those that are left have to come to
 * an end by themselves: with the octets that were sent, from the first on, and then the end,
 * ECONNRESET, ECONNABORTED, EPIPE or ETIMEDOUT. One that is not through after twenty seconds has
 * hung.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "stream.h"

/* The part of a process in a round; a child's is the one after its parent's. */
enum { ACCEPTS, ACCEPTS_CHILD, CONNECTS, CONNECTS_CHILD, PARTS };
enum manner { IN_TURNS, BY_POLL, BY_EPOLL, WITH_CHILD };
/* The way in which a process ended that was not killed. */
enum { AT_END = 10, AT_ERROR = 11 };
enum { HANG_TICKS = 2000, TICK = 10000 };

static const char *const names[PARTS] = {"accepting", "accepting child", "connecting", "connecting child"};

static struct shared {
    uint64_t seed, got[PARTS];
    unsigned long cookies[PARTS];
    pid_t pids[PARTS];
    bool is_gone[PARTS];
    const char *volatile at[PARTS];
} *shared;

static bool framed = true;
static struct sockaddr_in addr;
static uint64_t luck;
static int part; /* of this process */
static unsigned char buffer[128 * 1024];

static uint64_t stream_from(int sender) { return shared->seed + (sender < CONNECTS ? 1 : 2); }

/* Ends the process. */
__attribute__((noreturn)) static void over(int how) {
    shared->at[part] = "leaving";
    if (below(&luck, 2))
        exit(how);
    _exit(how);
}

static void may_fail(const char *call, int error) {
    bool is_loss = error == ECONNRESET || error == ECONNABORTED || error == EPIPE || error == ETIMEDOUT;
    bool no_peer = (error == ECONNREFUSED || error == ENOTCONN) && shared->got[part] == 0;
    if (!is_loss && !no_peer)
        fail("%s: %s: %s", names[part], call, strerror(error));
    over(AT_ERROR);
}

/* Checks octets that came, and returns their number, 0 if there are none yet. Ends the process
 * when the stream has ended or failed. */
static size_t got(ssize_t count) {
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (count < 0)
        may_fail("read", errno);
    if (count == 0)
        over(AT_END);
    uint64_t stream = stream_from(part < CONNECTS ? CONNECTS : ACCEPTS);
    size_t good = stream_agrees(stream, shared->got[part], buffer, count);
    if (good < (size_t)count)
        fail("%s: wrong octet at %llu", names[part], (unsigned long long)(shared->got[part] + good));
    shared->got[part] += count;
    return count;
}

static size_t put(int fd, uint64_t at, size_t count) {
    stream_octets(stream_from(part), at, buffer, count);
    ssize_t took = send(fd, buffer, count, MSG_NOSIGNAL);
    if (took < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (took < 0)
        may_fail("send", errno);
    return took;
}

static size_t random_size(void) { return 1 + below(&luck, below(&luck, 2) ? 2000 : sizeof buffer); }

static void in_turns(int fd, bool begins) {
    uint64_t sizes = shared->seed, put_so_far = 0;
    for (bool mine = begins;; mine = !mine) {
        size_t size = 1 + below(&sizes, 20000);
        shared->at[part] = mine ? "writing in turn" : "reading in turn";
        for (size_t done = 0; mine && done < size;)
            done += put(fd, put_so_far + done, size - done);
        put_so_far += mine ? size : 0;
        for (size_t done = 0; !mine && done < size;)
            done += got(read(fd, buffer, size - done));
    }
}

static int ready(int fd, int epoll) {
    struct epoll_event event = {0};
    struct pollfd one = {.fd = fd, .events = POLLIN | POLLOUT};
    int count = epoll >= 0 ? epoll_wait(epoll, &event, 1, -1) : poll(&one, 1, -1);
    if (count < 0 && errno == EINTR)
        return 0; /* Who is traced is interrupted by that. */
    MUST(count);
    return epoll >= 0 ? (int)event.events : one.revents;
}

static void in_loop(int fd, int epoll) {
    uint64_t at = 0;
    for (;;) {
        shared->at[part] = "waiting";
        int is = ready(fd, epoll);
        shared->at[part] = "reading or writing";
        if (is & (POLLIN | POLLERR | POLLHUP))
            got(read(fd, buffer, random_size()));
        if (is & POLLOUT)
            at += put(fd, at, random_size());
    }
}

/* Leaves after the other process that holds the socket is gone; how far it had come is not
 * known. */
static void leave_orderly(int fd, bool reads) {
    shared->at[part] = "leaving after the other";
    if (shutdown(fd, SHUT_WR) < 0 && errno != ENOTCONN)
        may_fail("shutdown", errno);
    for (uint64_t until = milliseconds() + below(&luck, 50); reads && milliseconds() < until;)
        got(recv(fd, buffer, random_size(), MSG_DONTWAIT));
    MUST(close(fd));
    over(AT_END);
}

static void with_child(int fd) {
    int parent = part, child = part + 1;
    pid_t pid = fork();
    MUST(pid);
    if (pid == 0) {
        part = child;
        luck++;
    }
    shared->pids[part] = getpid();
    bool reads = (shared->seed & 1) == (part == parent);
    int other = part == parent ? child : parent;
    for (uint64_t at = 0;;) {
        shared->at[part] = reads ? "reading" : "writing";
        if (reads)
            got(read(fd, buffer, random_size()));
        else
            at += put(fd, at, random_size());
        if (shared->is_gone[other])
            leave_orderly(fd, reads);
    }
}

static void talk(int fd, enum manner manner) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT};
    int epoll = -1;
    socklen_t len = sizeof shared->cookies[part];
    getsockopt(fd, SOL_SOCKET, SO_COOKIE, &shared->cookies[part], &len);
    if (manner == BY_POLL || manner == BY_EPOLL)
        MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    switch (manner) {
    case IN_TURNS:
        in_turns(fd, part == CONNECTS);
        break;
    case WITH_CHILD:
        with_child(fd);
        break;
    case BY_EPOLL:
        MUST(epoll = epoll_create1(0));
        MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
        /* fall through */
    case BY_POLL:
        in_loop(fd, epoll);
    }
}

static void accepting(int listener, enum manner manner) {
    struct pollfd one = {.fd = listener, .events = POLLIN};
    shared->at[part] = "accepting";
    for (int waits = 0; poll(&one, 1, 100) == 0; waits++)
        if (shared->is_gone[CONNECTS] && waits > 0)
            over(AT_END);
    int fd = accept(listener, NULL, NULL);
    if (fd < 0)
        may_fail("accept", errno);
    MUST(close(listener));
    talk(fd, manner);
}

static void connecting(enum manner manner) {
    int fd = tcp_socket(0);
    if (framed)
        MUST(set_option(fd, DDPMODE, framed_mode()));
    shared->at[part] = "connecting";
    if (connect(fd, (struct sockaddr *)&addr, sizeof addr) < 0)
        may_fail("connect", errno);
    talk(fd, manner);
}

static int listening(void) {
    int fd = tcp_socket(0);
    if (framed)
        MUST(set_option(fd, DDPMODE, framed_mode()));
    listen_on(fd, &addr);
    return fd;
}

static void start(int as, int listener, enum manner manner) {
    pid_t pid = fork();
    MUST(pid);
    if (pid > 0) {
        shared->pids[as] = pid;
        return;
    }
    part = as;
    luck += as * 77;
    if (as == ACCEPTS)
        accepting(listener, manner);
    MUST(close(listener));
    connecting(manner);
}

static struct {
    unsigned killed[PARTS], too_late, ends, errors;
    uint64_t octets;
} did;

static int victim;
static bool is_counted;

static void hung(void) {
    for (int i = 0; i < PARTS; i++)
        if (shared->pids[i])
            fprintf(stderr, "stress: hung: %s %d, %s, %llu octets%s\n", names[i], shared->pids[i], shared->at[i],
                    (unsigned long long)shared->got[i], i == victim ? ", the one that was killed" : "");
    if (getenv("STRESS_STAYS"))
        pause();
    for (int i = 0; i < PARTS; i++)
        if (shared->pids[i])
            kill(shared->pids[i], SIGKILL);
    fail("hung after %s was killed, seed %llu", names[victim], (unsigned long long)shared->seed);
}

static void ended(pid_t pid, int status) {
    if (pid == shared->pids[victim] && (WIFSIGNALED(status) || WIFSTOPPED(status))) {
        /* The tracer collects a process first, and then its parent's heir once more. */
        did.killed[victim] += !is_counted;
        is_counted = true;
        return;
    }
    did.too_late += pid == shared->pids[victim];
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != AT_END && WEXITSTATUS(status) != AT_ERROR))
        fail("process %d ended with status %x, seed %llu", pid, status, (unsigned long long)shared->seed);
    did.ends += WEXITSTATUS(status) == AT_END;
    did.errors += WEXITSTATUS(status) == AT_ERROR;
}

/* Waits for the processes that are left. */
static void await_all(void) {
    for (int ticks = 0;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0)
            return;
        if (pid > 0) {
            ended(pid, status);
        } else {
            usleep(TICK / 10);
            if (++ticks > HANG_TICKS * 10)
                hung();
        }
    }
}

/* Lets a process make this many system calls. Returns whether it is still there. */
static bool stopped_at_call(pid_t pid, unsigned calls) {
    int status;
    if (ptrace(PTRACE_SEIZE, pid, NULL, PTRACE_O_TRACESYSGOOD) != 0 || ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) != 0)
        return true;
    for (unsigned stops = 0; stops <= calls;) {
        pid_t seen = 0;
        for (int ticks = 0; (seen = waitpid(pid, &status, WNOHANG | __WALL)) == 0; ticks++) {
            if (ticks > 10)
                return true; /* It sleeps in one. */
            usleep(100);
        }
        if (seen != pid)
            return false;
        if (!WIFSTOPPED(status)) {
            ended(pid, status);
            return false;
        }
        bool is_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
        stops += is_call;
        bool of_ours = is_call || status >> 16 == PTRACE_EVENT_STOP;
        if (stops <= calls && ptrace(PTRACE_SYSCALL, pid, NULL, of_ours ? 0 : WSTOPSIG(status)) != 0)
            return true;
    }
    return true;
}

static void kill_one(void) {
    /* A child is there once its parent has come far enough. */
    for (int waits = 0; !shared->pids[victim] && waits < 1000; waits++)
        usleep(100);
    pid_t pid = shared->pids[victim];
    if (!pid) {
        victim = victim & ~1;
        pid = shared->pids[victim];
    }
    usleep(below(&luck, below(&luck, 2) ? 3000 : 30000));
    bool is_there = below(&luck, 2) ? stopped_at_call(pid, below(&luck, 200)) : true;
    if (is_there)
        kill(pid, SIGKILL);
    int status;
    /* Left for its parent to collect, if it has another. */
    if (is_there && waitpid(pid, &status, __WALL) == pid)
        ended(pid, status);
    shared->is_gone[victim] = true;
}

static void play(void) {
    enum manner manners[2] = {below(&luck, 4), IN_TURNS};
    memset(shared, 0, sizeof *shared);
    shared->seed = drawn(&luck);
    if (manners[0] != IN_TURNS) {
        manners[0] = 1 + below(&luck, 3);
        manners[1] = 1 + below(&luck, 3);
    }
    victim = below(&luck, 2) ? CONNECTS : ACCEPTS;
    if (manners[victim == CONNECTS] == WITH_CHILD)
        victim += below(&luck, 2);
    is_counted = false;
    int listener = listening();
    fflush(NULL);
    start(ACCEPTS, listener, manners[0]);
    start(CONNECTS, listener, manners[1]);
    MUST(close(listener));
    kill_one();
    await_all();
    for (int i = 0; i < PARTS; i++)
        did.octets += shared->got[i];
}

/* Counts states in this user's files whose sockets are gone. All builds lay out a slab alike: in
 * front its kind, and the number of slabs; 64 octets behind its beginning an entry of 48 octets
 * for each state, which begins with the socket's cookie. */
static unsigned left_over(const unsigned long *cookies, unsigned count) {
    enum { SLAB = 1 << 20, ENTRIES = 336, WORDS = 6 };
    static uint64_t front[8 + ENTRIES * WORDS];
    unsigned left = 0;
    glob_t files;
    char pattern[64];
    snprintf(pattern, sizeof pattern, "/dev/shm/rddp-%u-*", geteuid());
    if (glob(pattern, 0, NULL, &files) != 0)
        return 0;
    for (size_t i = 0; i < files.gl_pathc; i++) {
        int fd = open(files.gl_pathv[i], O_RDONLY);
        unsigned slabs = 1;
        for (unsigned slab = 0; slab < slabs && pread(fd, front, sizeof front, (off_t)slab * SLAB) == sizeof front; slab++) {
            if (slab == 0)
                slabs = (uint32_t)front[1];
            for (unsigned entry = 0; memcmp(front, "rddpslot", 8) == 0 && entry < ENTRIES; entry++)
                for (unsigned j = 0; j < count; j++)
                    left += cookies[j] && front[8 + entry * WORDS] == cookies[j];
        }
        close(fd);
    }
    globfree(&files);
    return left;
}

int main(int count, char **words) {
    if (count < 3)
        fail("ROUNDS SEED [plain]");
    unsigned rounds = atoi(words[1]);
    luck = strtoull(words[2], NULL, 10);
    framed = count < 4;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned long *cookies = calloc(rounds, sizeof shared->cookies);
    MUST(prctl(PR_SET_CHILD_SUBREAPER, 1));
    for (unsigned i = 0; i < rounds; i++) {
        play();
        memcpy(cookies + i * PARTS, shared->cookies, sizeof shared->cookies);
    }
    printf("killed %u accepting, %u of their children, %u connecting, %u of their children; %u were gone before; %u ends and %u errors "
           "seen by who was left, %llu octets\n",
           did.killed[ACCEPTS], did.killed[ACCEPTS_CHILD], did.killed[CONNECTS], did.killed[CONNECTS_CHILD], did.too_late, did.ends,
           did.errors, (unsigned long long)did.octets);
    unsigned left = left_over(cookies, rounds * PARTS);
    printf("%u states of theirs are left in /dev/shm\n", left);
    return left > 64;
}
