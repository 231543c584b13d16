/* Octets moved within the kernel; numbers of descriptors; calls by number; children. */
#include "calls.h"

void within_kernel(void) {
    int ends[2], tube[2], file = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600);
    connection(ends);
    int a = ends[0], b = ends[1];
    if (pipe(tube) || write(file, "0123456789", 10) != 10)
        abort();
    off_t offset = 3;
    CALL(sendfile(a, file, &offset, 4));
    printf("  offset %ld, position %ld\n", (long)offset, (long)lseek(file, 0, SEEK_CUR));
    offset = 20;
    CALL(sendfile(a, file, &offset, 4));
    lseek(file, 8, SEEK_SET);
    CALL(sendfile(a, file, NULL, 100));
    printf("  position %ld\n", (long)lseek(file, 0, SEEK_CUR));
    offset = 1;
    CALL(sendfile64(a, file, &offset, 0));
    CALL(sendfile64(a, file, &offset, 2));
    CALL(sendfile(a, file, BAD, 2));
    CALL(sendfile(-1, file, NULL, 2));
    CALL(sendfile(a, -1, NULL, 2));
    CALL(sendfile(a, b, NULL, 2));
    arrived(b);
    CALL(recv(b, buf, 8, MSG_WAITALL));
    show("sendfile", buf, 8);
    CALL(write(tube[1], "splice", 6));
    CALL(splice(tube[0], NULL, a, NULL, 3, 0));
    CALL(splice(a, NULL, b, NULL, 3, 0));
    CALL(splice(-1, NULL, b, NULL, 3, 0));
    arrived(b);
    CALL(splice(b, NULL, tube[1], NULL, 3, SPLICE_F_NONBLOCK));
    CALL(tee(tube[0], a, 3, 0));
    CALL(tee(tube[0], tube[1], 3, 0));
    CALL(tee(-1, tube[1], 3, 0));
    CALL(vmsplice(tube[1], pieces, 1, 0));
    CALL(vmsplice(a, pieces, 1, 0));
    CALL(vmsplice(-1, pieces, 1, 0));
    CALL(copy_file_range(file, NULL, a, NULL, 3, 0));
    CALL(copy_file_range(b, NULL, file, NULL, 3, 0));
    offset = 0;
    off_t to = 30;
    CALL(copy_file_range(file, &offset, file, &to, 3, 0));
    printf("  offset %ld to %ld\n", (long)offset, (long)to);
    CALL(close_range(3, ~0U, 0));
}

static void numbers(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CALL(dup(fd));
    CALL(dup(-1));
    CALL(dup2(fd, 30));
    CALL(dup2(fd, fd));
    CALL(dup2(-1, 30));
    CALL(dup2(77, 77));
    CALL(dup2(fd, -1));
    CALL(dup2(fd, 1 << 30));
    CALL(dup3(fd, 31, O_CLOEXEC));
    CALL(fcntl(31, F_GETFD));
    CALL(dup3(fd, fd, 0));
    CALL(dup3(fd, 31, 77));
    CALL(fcntl(fd, F_DUPFD, 40));
    CALL(fcntl(fd, F_DUPFD_CLOEXEC, 40));
    CALL(fcntl(fd, F_DUPFD, 1 << 30));
    CALL(fcntl(fd, F_GETFL));
    CALL(fcntl(fd, F_SETFL, O_NONBLOCK | O_ASYNC));
    CALL(fcntl(40, F_GETFL));
    CALL(fcntl(fd, F_SETFD, FD_CLOEXEC));
    CALL(fcntl64(fd, F_GETFD));
    CALL(fcntl64(fd, F_SETFL, 0));
    CALL(fcntl(fd, F_SETOWN, getpid()));
    CALL(fcntl(fd, F_GETOWN) == getpid());
    CALL(fcntl(fd, 7777, 1));
    CALL(fcntl(-1, F_GETFL));
    struct flock lock = {.l_type = F_RDLCK};
    CALL(fcntl(fd, F_GETLK, &lock));
    CALL(fcntl(fd, F_GETLK, BAD));
    int value = 1;
    CALL(ioctl(fd, FIONBIO, &value));
    CALL(fcntl(fd, F_GETFL));
    CALL(ioctl(fd, FIONREAD, &value));
    CALL(ioctl(fd, FIONREAD, BAD));
    CALL(ioctl(fd, FIOASYNC, &value));
    CALL(ioctl(fd, SIOCATMARK, &value));
    CALL(ioctl(fd, FIOCLEX));
    CALL(ioctl(fd, 0x7777, 0));
    CALL(ioctl(-1, FIONREAD, &value));
    CALL(close(fd));
    CALL(close(fd));
    CALL(close(-1));
    CALL(close_range(41, 41, 0));
    CALL(fcntl(41, F_GETFD));
    CALL(close_range(40, 40, CLOSE_RANGE_CLOEXEC));
    CALL(fcntl(40, F_GETFD));
    CALL(close_range(9, 3, 0));
    CALL(close_range(3, 9, 77));
    CALL((closefrom(31), 0));
    CALL(fcntl(31, F_GETFD));
    CALL(fcntl(30, F_GETFD));
    fflush(stdout);
    closefrom(-5); /* standard output too */
    int after = fcntl(30, F_GETFD), why = errno;
    FILE *rest = fopen("lines", "a");
    fprintf(rest, "after closefrom(-5): %d, %d\n", after, why);
    fclose(rest);
}

/* In a child, whose lines go to a file: it closes its standard output. */
void numbers_in_a_child(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(open("lines", O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
        numbers();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("numbers: %d\n", status);
}

void numbered(void) {
    int ends[2];
    connection(ends);
    int a = ends[0], b = ends[1];
    CALL(syscall(SYS_write, a, "hello", 5L));
    arrived(b);
    CALL(syscall(SYS_read, b, buf, 5L));
    CALL(syscall(SYS_read, -1, buf, 5L));
    CALL(syscall(SYS_sendto, a, "there", 5L, 0L, 0L, 0L));
    arrived(b);
    CALL(syscall(SYS_recvfrom, b, buf, 5L, (long)MSG_PEEK, 0L, 0L));
    CALL(syscall(SYS_dup, a));
    CALL(syscall(SYS_fcntl, a, F_GETFL));
    CALL(syscall(SYS_close, a));
    CALL(syscall(SYS_close, a));
    CALL(syscall(SYS_getpid) == getpid());
    CALL(syscall(77777L));
    CALL(syscall(SYS_pread64, b, buf, 5L, 0L));
    CALL(close_range(3, ~0U, 0));
}

void children(void) {
    int ends[2];
    connection(ends);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        _exit(write(ends[1], "child", 5) == 5 ? 7 : 8);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CALL(WEXITSTATUS(status));
    CALL(recv(ends[0], buf, 5, MSG_WAITALL));
    child = vfork();
    if (child == 0) {
        close(ends[0]);
        close_range(3, ~0U, 0);
        _exit(9);
    }
    waitpid(child, &status, 0);
    CALL(WEXITSTATUS(status));
    CALL(write(ends[0], "still open", 10));
    arrived(ends[1]);
    CALL(read(ends[1], buf, 50));
    CALL(close_range(3, ~0U, 0));
}
