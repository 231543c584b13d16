/* Octets moved by calls of every kind. */
#include "calls.h"

static volatile int NEGATIVE = -1; /* compilers warn of what they see */

void moving(void) {
    int ends[2];
    connection(ends);
    int a = ends[0], b = ends[1], null = open("/dev/null", O_RDWR);
    clear();
    strcpy(buf, "abcdefghijklmnopqrstuvwxyz");
    CALL(write(a, buf, 3));
    arrived(b);
    CALL(read(b, buf + 100, 50));
    show("read", buf + 100, 4);
    CALL(write(a, buf, 0));
    CALL(write(a, BAD, 5));
    CALL(write(-1, buf, 5));
    CALL(write(null, BAD, 5));
    CALL(read(-1, buf, 5));
    CALL(read(null, buf, 5));
    CALL(send(a, buf + 3, 6, 0));
    arrived(b);
    CALL(recv(b, buf + 100, 3, MSG_PEEK));
    CALL(recv(b, buf + 100, 3, 0));
    show("recv", buf + 100, 4);
    CALL(recv(b, buf + 100, 300, MSG_TRUNC | MSG_DONTWAIT));
    CALL(recv(b, buf + 100, 300, MSG_DONTWAIT));
    CALL(recv(b, BAD, 300, MSG_DONTWAIT));
    CALL(recv(null, buf, 3, 0));
    CALL(recv(-1, buf, 3, 0));
    CALL(send(null, buf, 3, 0));
    CALL(send(a, BAD, 3, 0));
    CALL(send(a, buf, 4, MSG_OOB));
    CALL(send(a, buf, 9, MSG_MORE | MSG_NOSIGNAL));
    CALL(sendto(a, buf, 4, 0, NULL, 0));
    CALL(sendto(a, buf, 4, 0, BAD, 16));
    CALL(sendto(a, buf, 4, 0, NULL, 16));
    CALL(sendto(-1, buf, 4, 0, NULL, 0));
    arrived(b);
    CALL(recvfrom(b, buf + 100, 7, MSG_WAITALL, NULL, NULL));
    struct sockaddr_in addr;
    socklen_t len = sizeof addr;
    CALL(recvfrom(b, buf + 100, 2, MSG_WAITALL, (void *)&addr, &len));
    printf("  %u octets of address\n", len);
    CALL(recvfrom(b, buf + 100, 2, 0, (void *)&addr, BAD));
    CALL(recvfrom(-1, buf + 100, 2, 0, NULL, NULL));
    CALL(recv(b, buf + 100, 1, MSG_OOB));
    CALL(recv(b, buf + 100, 1, MSG_OOB));

    CALL(writev(a, pieces, 3));
    CALL(writev(a, pieces, NEGATIVE));
    CALL(writev(a, bad_pieces, 1));
    CALL(writev(a, BAD, 1));
    CALL(writev(-1, pieces, 3));
    CALL(pwritev2(a, pieces, 3, -1, 0));
    CALL(pwritev2(a, pieces, 3, 0, 0));
    CALL(pwritev64v2(a, pieces, 1, -1, RWF_NOWAIT));
    CALL(pwritev64v2(a, pieces, 1, -1, 0x7000000));
    CALL(recv(b, buf + 100, 15, MSG_WAITALL));
    CALL(write(a, "0123456789abcdef", 16));
    arrived(b);
    CALL(readv(b, pieces, 3));
    CALL(readv(b, pieces, 2000));
    CALL(readv(b, bad_pieces, 1));
    CALL(readv(-1, pieces, 3));
    CALL(preadv2(b, pieces, 1, -1, 0));
    CALL(preadv2(b, pieces, 1, 0, 0));
    CALL(preadv64v2(b, pieces, 1, -1, RWF_NOWAIT));
    show("pieces", buf, 8);

    struct msghdr msg = {.msg_iov = pieces, .msg_iovlen = 3};
    CALL(sendmsg(a, &msg, 0));
    CALL(sendmsg(a, BAD, 0));
    CALL(sendmsg(-1, &msg, 0));
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct msghdr with = msg;
    with.msg_control = control;
    with.msg_controllen = sizeof control;
    struct cmsghdr *header = CMSG_FIRSTHDR(&with);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    CALL(sendmsg(a, &with, 0));
    CALL(recvmsg(b, &msg, 0));
    printf("  flags %x\n", msg.msg_flags);
    CALL(recvmsg(b, BAD, MSG_DONTWAIT));
    CALL(recvmsg(-1, &msg, 0));
    CALL(recvmsg(b, &msg, MSG_ERRQUEUE));
    struct mmsghdr many[2] = {{.msg_hdr = {.msg_iov = pieces, .msg_iovlen = 1}},
                              {.msg_hdr = {.msg_iov = pieces, .msg_iovlen = 3}}};
    CALL(sendmmsg(a, many, 2, 0));
    printf("  %u and %u octets\n", many[0].msg_len, many[1].msg_len);
    CALL(sendmmsg(a, BAD, 2, 0));
    CALL(sendmmsg(-1, many, 2, 0));
    arrived(b);
    CALL(recv(b, buf, 9, MSG_WAITALL | MSG_PEEK));
    CALL(recvmmsg(b, many, 2, MSG_DONTWAIT, NULL));
    printf("  %u and %u octets\n", many[0].msg_len, many[1].msg_len);
    struct timespec now = {0, 0}, never = {0, -1};
    CALL(recvmmsg(b, many, 1, MSG_DONTWAIT, &now));
    CALL(recvmmsg(b, many, 1, MSG_DONTWAIT, &never));
    CALL(recvmmsg(-1, many, 2, 0, NULL));
    CALL(recv(b, buf, sizeof buf, MSG_DONTWAIT));
    close(a);
    close(b);
    close(null);
}

void fortified(void) {
    int ends[2];
    connection(ends);
    int a = ends[0], b = ends[1];
    clear();
    CALL(write(a, "0123456789", 10));
    arrived(b);
    CALL(__read_chk(b, buf, 3, 8));
    CALL(__recv_chk(b, buf, 3, 8, MSG_PEEK));
    CALL(__recvfrom_chk(b, buf, 3, 8, 0, NULL, NULL));
    CALL(__recvfrom_chk(-1, buf, 3, 8, 0, NULL, NULL));
    CALL(__read_chk(-1, buf, 3, 8));
    CALL(__recv_chk(-1, buf, 3, 8, 0));
    struct pollfd fds[1] = {{b, POLLIN, 0}};
    struct timespec now = {0, 0};
    CALL(__poll_chk(fds, 1, 0, sizeof fds));
    CALL(__ppoll_chk(fds, 1, &now, NULL, sizeof fds));
    show("read", buf, 4);
    fflush(stdout);
    /* A buffer that is too small ends the program, and says so itself. */
    pid_t child = fork();
    if (child == 0) {
        close(2);
        __read_chk(b, buf, 9, 8);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("  too small: signal %d\n", WTERMSIG(status));
    close(a);
    close(b);
}

static int print(int fd, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int count = vdprintf(fd, format, args);
    va_end(args);
    return count;
}

static int print_chk(int fd, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int count = __vdprintf_chk(fd, 1, format, args);
    va_end(args);
    return count;
}

void printing(void) {
    int file = open("printed", O_RDWR | O_CREAT, 0600);
    CALL(dprintf(file, "%d %s %.3f %Lg %c %ld %ld %ld %g %g\n", 7, "seven", 7.5, (long double)1.25, 'x', 1L, 2L,
                 3L, 0.5, 0.25));
    CALL(__dprintf_chk(file, 1, "%g %g %g %g %g %g %g %g %g %d\n", 1., 2., 3., 4., 5., 6., 7., 8., 9., 10));
    CALL(print(file, "%d %s %.3f %g\n", 8, "eight", 8.5, 0.125));
    CALL(print_chk(file, "%s %d %g\n", "nine", 9, 9.5));
    CALL(dprintf(-1, "%d\n", 7));
    CALL(print(-1, "%d\n", 7));
    CALL(lseek(file, 0, SEEK_SET));
    ssize_t count = read(file, buf, sizeof buf);
    printf("%.*s", (int)count, buf);
    close(file);
}

void ends_of_streams(void) {
    int ends[2];
    connection(ends);
    signal(SIGPIPE, SIG_IGN);
    CALL(shutdown(ends[0], SHUT_WR));
    arrived(ends[1]);
    CALL(read(ends[1], buf, 5));
    CALL(send(ends[0], buf, 5, MSG_NOSIGNAL));
    CALL(write(ends[0], buf, 5));
    CALL(close(ends[1]));
    arrived(ends[0]);
    CALL(read(ends[0], buf, 5));
    CALL(close(ends[0]));
    connection(ends);
    struct linger now = {1, 0};
    setsockopt(ends[0], SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(ends[0]);
    arrived(ends[1]);
    CALL(read(ends[1], buf, 5));
    CALL(read(ends[1], buf, 5));
    CALL(write(ends[1], buf, 5));
    close(ends[1]);
    signal(SIGPIPE, SIG_DFL);
}
