/* Calls that succeed leave errno alone: each function that the library stands before, on sockets in
 * each state. Prints the names of the functions that have succeeded. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"

ssize_t __read_chk(int, void *, size_t, size_t), __recv_chk(int, void *, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);
int __poll_chk(struct pollfd *, nfds_t, int, size_t);
int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);
int __open_2(const char *, int), __open64_2(const char *, int);
int __openat_2(int, const char *, int), __openat64_2(int, const char *, int);
int __dprintf_chk(int, int, const char *, ...), __vdprintf_chk(int, int, const char *, va_list);
int __sigaction(int, const struct sigaction *, struct sigaction *);
sighandler_t bsd_signal(int, sighandler_t), __sysv_signal(int, sighandler_t);
ssize_t preadv64v2(int, const struct iovec *, int, off_t, int), pwritev64v2(int, const struct iovec *, int, off_t, int);

enum { MARK = 4000 };
static const char *when;

static long kept(const char *call, long result) {
    if (result == -1 || errno != MARK) {
        printf("%s: %s: returned %ld, errno is now %s\n", when, call, result, strerror(errno));
        fflush(stdout);
        _exit(1);
    }
    printf("%.*s\n", (int)strcspn(call, "("), call);
    return result;
}
/* Makes a call that succeeds. */
#define OK(call) (errno = MARK, kept(#call, (long)(call)))
/* Makes one whose success depends on the state. */
#define MAY(call) ({ errno = MARK; long result_ = (long)(call); result_ == -1 ? -1 : kept(#call, result_); })

static void ready(int fd) {
    struct pollfd entry = {fd, POLLIN | POLLOUT, 0};
    struct timespec soon = {0, 1000000};
    struct timeval time = {0, 1000};
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.fd = fd};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    OK(poll(&entry, 1, 0)), OK(poll(&entry, 1, 1)), OK(ppoll(&entry, 1, &soon, NULL));
    OK(__poll_chk(&entry, 1, 1, sizeof entry)), OK(__ppoll_chk(&entry, 1, &soon, NULL, sizeof entry));
    OK(select(fd + 1, &set, NULL, NULL, &time));
    FD_SET(fd, &set);
    OK(pselect(fd + 1, NULL, &set, NULL, &soon, NULL));
    int one = OK(epoll_create(1)), other = OK(epoll_create1(0));
    OK(epoll_ctl(one, EPOLL_CTL_ADD, fd, &event)), OK(epoll_ctl(one, EPOLL_CTL_MOD, fd, &event));
    OK(epoll_wait(one, &event, 1, 0)), OK(epoll_wait(one, &event, 1, 1)), OK(epoll_pwait(one, &event, 1, 1, NULL));
    OK(epoll_pwait2(one, &event, 1, &soon, NULL));
    OK(epoll_ctl(one, EPOLL_CTL_DEL, fd, NULL));
    OK(close(one)), OK(close(other));
}

static void settings(int fd) {
    int value = 0;
    char info[256];
    socklen_t len = sizeof value, all = sizeof info;
    OK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &len)), OK(getsockopt(fd, IPPROTO_TCP, 11, info, &all));
    MAY(getpeername(fd, (void *)info, &all));
    value = 1;
    OK(setsockopt(fd, IPPROTO_TCP, 1, &value, sizeof value));
    MAY(ioctl(fd, FIONREAD, &value)), MAY(ioctl(fd, TIOCOUTQ, &value));
    int flags = OK(fcntl(fd, F_GETFL)), copy = OK(dup(fd));
    OK(fcntl64(fd, F_SETFL, flags)), OK(dup2(fd, copy)), OK(dup3(fd, copy, O_CLOEXEC)), OK(close(copy));
    OK(close(OK(fcntl(fd, F_DUPFD, 50)))), OK(close(OK(fcntl64(fd, F_DUPFD_CLOEXEC, 50))));
    OK(close(OK(syscall(SYS_dup, fd))));
}

static long prints(int fd, int is_checked, const char *format, ...) {
    va_list list;
    va_start(list, format);
    long result = is_checked ? OK(__vdprintf_chk(fd, 1, format, list)) : OK(vdprintf(fd, format, list));
    va_end(list);
    return result;
}

/* Each way to send, and to receive. */
static void transfer(int from, int to, int file) {
    char octets[64] = "octets";
    off_t at = 0;
    struct iovec piece = {octets, 4};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &piece, .msg_iovlen = 1}};
    OK(write(from, octets, 4)), OK(writev(from, &piece, 1)), OK(send(from, octets, 4, MSG_NOSIGNAL));
    OK(sendto(from, octets, 4, 0, NULL, 0)), OK(sendmsg(from, &message.msg_hdr, 0)), OK(sendmmsg(from, &message, 1, 0));
    OK(pwritev2(from, &piece, 1, -1, 0)), OK(pwritev64v2(from, &piece, 1, -1, 0));
    OK(sendfile(from, file, &at, 4)), OK(sendfile64(from, file, &at, 4)), OK(syscall(SYS_write, from, octets, 4));
    OK(dprintf(from, "%d", 1000)), OK(__dprintf_chk(from, 1, "%d", 1000));
    prints(from, 0, "%d", 1000), prints(from, 1, "%d", 1000);
    OK(read(to, octets, 4)), OK(readv(to, &piece, 1)), OK(recv(to, octets, 4, 0));
    OK(recvfrom(to, octets, 4, 0, NULL, NULL)), OK(recvmsg(to, &message.msg_hdr, 0));
    OK(recvmmsg(to, &message, 1, 0, NULL)), OK(preadv2(to, &piece, 1, -1, 0)), OK(preadv64v2(to, &piece, 1, -1, 0));
    OK(__read_chk(to, octets, 4, sizeof octets)), OK(__recv_chk(to, octets, 4, sizeof octets, 0));
    OK(__recvfrom_chk(to, octets, 4, sizeof octets, 0, NULL, NULL)), OK(syscall(SYS_read, to, octets, 4));
    while (MAY(recv(to, octets, sizeof octets, MSG_DONTWAIT)) > 0)
        ;
}

static void connection(int kind, int file) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    when = "listener";
    int listener = OK(socket(AF_INET, SOCK_STREAM, 0)), peer;
    OK(bind(listener, (void *)&addr, len)), OK(listen(listener, 5)), OK(getsockname(listener, (void *)&addr, &len));
    ready(listener), settings(listener);
    int fd = OK(socket(AF_INET, SOCK_STREAM | kind, 0));
    when = "new", settings(fd);
    if (kind == 0)
        OK(connect(fd, (void *)&addr, len));
    else
        FAILS(connect(fd, (void *)&addr, len), EINPROGRESS);
    when = "client before the startup", ready(fd), settings(fd);
    when = "server before the startup";
    peer = kind == 0 ? OK(accept(listener, NULL, NULL)) : OK(accept4(listener, NULL, NULL, 0));
    ready(peer), settings(peer);
    /* The startup, whose parts need both ends. */
    IS(send(fd, "c", 1, 0), 1);
    char octet;
    IS(recv(peer, &octet, 1, 0), 1);
    IS(send(peer, "s", 1, 0), 1);
    for (struct pollfd entry = {fd, POLLIN, 0}; recv(fd, &octet, 1, MSG_DONTWAIT) != 1;)
        IS(poll(&entry, 1, 20000), 1);
    when = "client", ready(fd), settings(fd), transfer(fd, peer, file);
    IS(fcntl(fd, F_SETFL, 0), 0);
    when = "server", ready(peer), settings(peer), transfer(peer, fd, file);
    when = "stdio";
    FILE *stream = fdopen(dup(peer), "r+");
    OK(fileno(stream)), OK(fileno_unlocked(stream));
    errno = MARK, fdopen(peer, "r"), kept("fdopen", 0);
    when = "end";
    OK(shutdown(fd, SHUT_WR)), ready(peer), OK(read(peer, &octet, 1)), settings(peer);
    OK(close(peer)), fclose(stream), OK(close(fd)), OK(close(listener));
}

static void files(void) {
    when = "files";
    int tubes[2], more[2];
    OK(pipe(tubes)), OK(pipe2(more, 0)), OK(write(tubes[1], "octets", 6));
    OK(tee(tubes[0], more[1], 2, 0)), OK(splice(tubes[0], NULL, more[1], NULL, 2, 0));
    OK(vmsplice(more[1], &(struct iovec){"x", 1}, 1, 0));
    OK(close_range(tubes[0], tubes[1], 0)), OK(close(more[0])), OK(close(more[1]));
    int pair[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair)), close(pair[0]), close(pair[1]);
    close(OK(creat("file", 0600))), close(OK(creat64("file", 0600)));
    close(OK(open("file", O_RDWR))), close(OK(open64("file", O_RDWR))), close(OK(__open_2("file", O_RDWR)));
    close(OK(__open64_2("file", O_RDWR))), close(OK(openat(AT_FDCWD, "file", O_RDWR)));
    close(OK(openat64(AT_FDCWD, "file", O_RDWR))), close(OK(__openat_2(AT_FDCWD, "file", O_RDWR)));
    close(OK(__openat64_2(AT_FDCWD, "file", O_RDWR)));
    int from = open("file", O_RDWR), to = open("copy", O_RDWR | O_CREAT, 0600);
    IS(write(from, "octets", 6), 6), IS(lseek(from, 0, SEEK_SET), 0);
    OK(copy_file_range(from, NULL, to, NULL, 6, 0)), close(from), close(to);
    errno = MARK, closefrom(500), kept("closefrom", 0);
}

static void *nothing(void *argument) { return argument; }
static void handler(int signal) {}

static void signals(int signal_number) {
    struct sigaction action = {.sa_handler = handler}, old;
    sigset_t set, before;
    siginfo_t info;
    int got;
    OK(sigaction(signal_number, &action, &old)), OK(__sigaction(signal_number, &action, NULL));
    OK(signal(signal_number, handler)), OK(bsd_signal(signal_number, handler)), OK(ssignal(signal_number, handler));
    OK(sysv_signal(signal_number, handler)), OK(__sysv_signal(signal_number, handler)), OK(sigset(signal_number, handler));
    OK(sighold(signal_number)), OK(sigrelse(signal_number)), OK(siginterrupt(signal_number, 0));
    OK(sigaction(signal_number, &action, NULL));
    sigemptyset(&set), sigaddset(&set, signal_number);
    OK(sigprocmask(SIG_BLOCK, &set, &before)), OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    OK(sigpending(&before));
    raise(signal_number), OK(sigwait(&set, &got));
    raise(signal_number), OK(sigwaitinfo(&set, &info));
    raise(signal_number), OK(sigtimedwait(&set, &info, &(struct timespec){1, 0}));
    OK(sigprocmask(SIG_UNBLOCK, &set, NULL)), OK(sigignore(signal_number)), OK(signal(signal_number, SIG_DFL));
}

static void starts(void) {
    when = "starts";
    pthread_t thread;
    pid_t child;
    char *words[] = {"true", NULL};
    OK(pthread_create(&thread, NULL, nothing, NULL)), pthread_join(thread, NULL);
    OK(posix_spawn(&child, "/bin/true", NULL, NULL, words, environ)), waitpid(child, NULL, 0);
    OK(posix_spawnp(&child, "/bin/true", NULL, NULL, words, environ)), waitpid(child, NULL, 0);
    OK(prctl(PR_GET_DUMPABLE));
}

int main(void) {
    alarm(60); /* a hang is a failure */
    int file = open("octets", O_RDWR | O_CREAT | O_TRUNC, 0600);
    IS(write(file, "octets of a file", 16), 16);
    for (int round = 0; round < 2; round++) {
        connection(round ? SOCK_NONBLOCK : 0, file);
        when = "signals", signals(SIGUSR1), signals(SIGBUS);
        files(), starts();
    }
    return 0;
}
