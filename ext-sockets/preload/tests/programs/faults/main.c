/* Pointers that are no good, and the signals of such memory: each way is a function, run by its
 * name.
 *
 * With no library the same program runs over plain TCP, and says the same; only where TCP stops
 * before a bad page depends on how it cuts what it copies.
 */
#include "faults.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>

const char *way;
static int framed;

struct cut cut(int pages, int good) {
    struct cut new = {.file = memfd_create("pages", MFD_CLOEXEC)};
    IS(ftruncate(new.file, (off_t)pages * PAGE), 0);
    new.at = mmap(NULL, (size_t)pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, new.file, 0);
    for (size_t i = 0; i < (size_t)pages * PAGE; i++)
        new.at[i] = (char)(i * 7 + i / PAGE);
    IS(ftruncate(new.file, (off_t)good * PAGE), 0);
    return new;
}

void grow(struct cut cut, int pages) { IS(ftruncate(cut.file, (off_t)pages * PAGE), 0); }

void connection(int ends[2]) {
    struct sockaddr_in here;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    listen_somewhere(listener, &here);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    IS(connect(ends[0], (void *)&here, sizeof here), 0);
    ends[1] = accept(listener, NULL, NULL);
    IS(ends[1] >= 0, 1);
    close(listener);
    exchange(ends);
}

void exchange(int ends[2]) {
    for (int i = 0; i < 2; i++) {
        char got = 0;
        IS(send(ends[i], "x", 1, 0), 1);
        IS(recv(ends[!i], &got, 1, MSG_WAITALL), 1);
        IS(got, 'x');
    }
}

int ended(void (*body)(void)) {
    pid_t pid = fork();
    if (pid == 0) {
        body();
        _exit(0);
    }
    int status = 0;
    IS(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void bad_send(void) {
    int ends[2];
    connection(ends);
    struct cut gone = cut(2, 0);
    FAILS(send(ends[0], gone.at, 2 * PAGE, 0), EFAULT);
    FAILS(recv(ends[1], NOWHERE, 1, MSG_DONTWAIT), EAGAIN);
    exchange(ends);
    close(ends[0]), close(ends[1]);
}

/* Never mapped: EFAULT, and nothing has happened. */
void unmapped(void) {
    int ends[2];
    connection(ends);
    char got[100];
    for (size_t count = 1; count < 1 << 20; count *= 7) {
        FAILS(send(ends[0], NOWHERE, count, 0), EFAULT);
        FAILS(write(ends[0], NOWHERE, count), EFAULT);
        exchange(ends);
        IS(send(ends[0], "0123456789", 10, 0), 10);
        FAILS(recv(ends[1], NOWHERE, count, 0), EFAULT);
        FAILS(recv(ends[1], NOWHERE, count, MSG_PEEK), EFAULT);
        FAILS(read(ends[1], NOWHERE, count), EFAULT);
        IS(recv(ends[1], got, sizeof got, 0), 10);
        IS(memcmp(got, "0123456789", 10), 0);
    }
    exchange(ends);
}

/* Sends what can be read of a file that was cut, to its bad page: all of it arrives, and nothing
 * else. */
static void send_to_the_cut(int good, int from, int step) {
    int ends[2];
    connection(ends);
    struct cut file = cut(64, good), whole = cut(64, 64);
    static char got[64 * PAGE];
    size_t sent = from, here = 0;
    for (;;) {
        size_t count = 64 * PAGE - sent;
        ssize_t done = send(ends[0], file.at + sent, step && (size_t)step < count ? (size_t)step : count, MSG_DONTWAIT);
        if (done < 0 && errno == EFAULT)
            break;
        if (done > 0)
            sent += done;
        ssize_t came = recv(ends[1], got + here, sizeof got - here, MSG_DONTWAIT);
        if (came > 0)
            here += came;
    }
    if (framed)
        IS(sent, good * PAGE);
    while (here < sent - from) {
        ssize_t came = recv(ends[1], got + here, sizeof got - here, 0);
        IS(came > 0, 1);
        here += came;
    }
    IS(here, sent - from);
    IS(memcmp(got, whole.at + from, here), 0);
    exchange(ends);
    munmap(file.at, 64 * PAGE), munmap(whole.at, 64 * PAGE);
    close(file.file), close(whole.file), close(ends[0]), close(ends[1]);
}

void sends(void) {
    for (int good = 0; good < 64; good += good < 4 ? 1 : 19) {
        send_to_the_cut(good, 0, 0);
        send_to_the_cut(good, 0, 3000);
        send_to_the_cut(good, 0, 30000);
        if (good > 0)
            send_to_the_cut(good, 3333, 0);
    }
}

/* Octets that a buffer has no good page for stay where they are. */
static void receive_to_the_cut(size_t sent, int good, int flags) {
    int ends[2];
    connection(ends);
    struct cut file = cut(64, good), whole = cut(64, 64);
    static char got[64 * PAGE];
    pid_t pid = fork();
    if (pid == 0) {
        for (size_t at = 0; at < sent;) {
            ssize_t done = send(ends[0], whole.at + at, sent - at, 0);
            IS(done > 0, 1);
            at += done;
        }
        _exit(0);
    }
    size_t here = 0;
    for (int tries = 0; here < sent; tries++) {
        ssize_t came = recv(ends[1], file.at, 64 * PAGE, flags);
        if (came < 0)
            IS(errno, EFAULT);
        if (came > 0) {
            IS(came <= good * PAGE, 1);
            IS(memcmp(file.at, whole.at + here, came), 0);
            here += flags & MSG_PEEK ? 0 : came;
        }
        if (here == sent)
            break;
        came = recv(ends[1], got, tries % 2 ? 5000 : 50000, 0);
        IS(came > 0, 1);
        IS(memcmp(got, whole.at + here, came), 0);
        here += came;
    }
    IS(here, sent);
    int status = 1;
    IS(waitpid(pid, &status, 0), pid);
    IS(status, 0);
    exchange(ends);
    munmap(file.at, 64 * PAGE), munmap(whole.at, 64 * PAGE);
    close(file.file), close(whole.file), close(ends[0]), close(ends[1]);
}

void receives(void) {
    for (int good = 0; good <= 17; good += good < 2 ? 1 : 5)
        for (int flags = 0; flags <= MSG_PEEK; flags += MSG_PEEK) {
            receive_to_the_cut(100, good, flags);
            receive_to_the_cut(3 * PAGE + 5, good, flags);
            receive_to_the_cut(64 * PAGE, good, flags);
        }
    /* And of one read all that there is room for. */
    int ends[2];
    connection(ends);
    struct cut file = cut(4, 2);
    IS(send(ends[0], cut(3, 3).at, 3 * PAGE, 0), 3 * PAGE);
    ssize_t came = recv(ends[1], file.at + 10, 4 * PAGE - 10, 0);
    if (framed)
        IS(came, 2 * PAGE - 10);
    static char rest[3 * PAGE];
    for (size_t left = 3 * PAGE - (came < 0 ? 0 : came); left > 0; left -= came) {
        came = recv(ends[1], rest, left, 0);
        IS(came > 0, 1);
    }
    exchange(ends);
}

/* Lists of pieces: one piece is bad, or the list itself. */
void lists(void) {
    int ends[2];
    connection(ends);
    char buf[64], other[64];
    struct iovec pieces[2] = {{"abc", 3}, {NOWHERE, 5}};
    ssize_t sent = writev(ends[0], pieces, 2);
    if (framed)
        IS(sent, 3);
    if (sent > 0)
        IS(recv(ends[1], buf, sent, MSG_WAITALL), sent);
    FAILS(writev(ends[0], NOWHERE, 2), EFAULT);
    FAILS(sendmsg(ends[0], NOWHERE, 0), EFAULT);
    struct msghdr bad = {.msg_iov = NOWHERE, .msg_iovlen = 2};
    FAILS(sendmsg(ends[0], &bad, 0), EFAULT);
    FAILS(sendmmsg(ends[0], NOWHERE, 1, 0), EFAULT);
    exchange(ends);

    IS(send(ends[0], "0123456789", 10, 0), 10);
    FAILS(readv(ends[1], NOWHERE, 2), EFAULT);
    FAILS(recvmsg(ends[1], NOWHERE, 0), EFAULT);
    FAILS(recvmsg(ends[1], &bad, 0), EFAULT);
    FAILS(recvmmsg(ends[1], NOWHERE, 1, 0, NULL), EFAULT);
    struct iovec places[3] = {{buf, 4}, {NOWHERE, 3}, {other, 3}};
    ssize_t came = readv(ends[1], places, 3);
    if (framed)
        IS(came, 4);
    if (came < 0)
        came = 0;
    IS(memcmp(buf, "0123456789", came), 0);
    IS(recv(ends[1], other, sizeof other, 0), 10 - came);
    IS(memcmp(other, &"0123456789"[came], 10 - came), 0);
    exchange(ends);
}

/* A list that octets come to lie upon: the call uses it as it was. */
void lists_that_change(void) {
    int ends[2];
    connection(ends);
    static char octets[2 * PAGE], got[PAGE];
    memset(octets, 'x', sizeof octets);
    for (int count = 2; count <= 64; count *= 2) {
        struct iovec list[64];
        size_t len = count * sizeof *list, all = 0;
        for (int i = 0; i < count; i++)
            list[i] = i == 0 ? (struct iovec){list, len} : (struct iovec){&got[i], 1};
        all = len + count - 1;
        memset(got, 0, sizeof got);
        IS(send(ends[0], octets, all, 0), (ssize_t)all);
        IS(readv(ends[1], list, count), (ssize_t)all);
        IS(memcmp(list, octets, len), 0);
        IS(memcmp(got + 1, octets, count - 1), 0);
        exchange(ends);
    }
}

/* Bad pointers to the structures that calls on a framed socket read and write. */
void arguments(void) {
    int ends[2];
    connection(ends);
    char buf[8];
    struct sockaddr_in addr;
    struct timespec now = {0};
    FAILS(ioctl(ends[0], FIONREAD, NOWHERE), EFAULT);
    FAILS(getsockopt(ends[0], SOL_SOCKET, SO_RCVLOWAT, NOWHERE, NOWHERE), EFAULT);
    FAILS(setsockopt(ends[0], SOL_SOCKET, SO_RCVLOWAT, NOWHERE, 4), EFAULT);
    IS(send(ends[1], "ab", 2, 0), 2);
    FAILS(recvfrom(ends[0], buf, 1, 0, (void *)&addr, NOWHERE), EFAULT);
    IS(recv(ends[0], buf, 1, 0), 1);
    FAILS(poll(NOWHERE, 1, 0), EFAULT);
    FAILS(ppoll(NOWHERE, 1, &now, NULL), EFAULT);
    FAILS(select(ends[0] + 1, NOWHERE, NULL, NULL, NULL), EFAULT);
    FAILS(sendfile(ends[0], 0, NOWHERE, 1), EFAULT);
    int set = epoll_create1(0);
    FAILS(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], NOWHERE), EFAULT);
    exchange(ends);
}

/* In a sandbox that refuses to read a process's memory for it. */
void sandboxed(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    IS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    IS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0), 0);
    bad_send();
    int client = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(connect(client, NOWHERE, sizeof(struct sockaddr_in)), EFAULT);
    FAILS(connect(client, NULL, sizeof(struct sockaddr_in)), EFAULT);
    close(client);
    bad_send();
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {
        {"unmapped", unmapped},         {"sends", sends},
        {"receives", receives},         {"lists", lists},
        {"arguments", arguments},       {"all_blocked", all_blocked},
        {"own_handlers", own_handlers}, {"flags", flags},
        {"held_back", held_back},       {"ends_blocked", ends_blocked},
        {"ignored", ignored},           {"masks_of_waits", masks_of_waits},
        {"waited_for", waited_for},     {"passed_on", passed_on},
        {"jumps", jumps},               {"nested", nested},
        {"raw_calls", raw_calls},       {"bad_masks", bad_masks},
        {"lists_that_change", lists_that_change}, {"ignored_in_waits", ignored_in_waits},
        {"sandboxed", sandboxed},
    };
    way = argc > 1 ? argv[1] : "";
    framed = getenv("LD_PRELOAD") != NULL;
    alarm(120);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, way) == 0) {
            all[i].run();
            printf("as it should be\n");
            return 0;
        }
    /* The mask and handlers that a started program finds: see passed_on. */
    if (strcmp(way, "found") == 0) {
        struct sigaction action;
        sigset_t mask;
        IS(sigaction(SIGSEGV, NULL, &action), 0);
        IS(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
        return (action.sa_handler == SIG_IGN) + 2 * sigismember(&mask, SIGSEGV) + 4 * sigismember(&mask, SIGBUS) +
               8 * (action.sa_handler == SIG_DFL);
    }
    return 2;
}
