/* Declarations for all files of this program: see main.c. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

ssize_t __read_chk(int, void *, size_t, size_t);
ssize_t __recv_chk(int, void *, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);
int __poll_chk(struct pollfd *, nfds_t, int, size_t);
int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);
int __dprintf_chk(int, int, const char *, ...);
int __vdprintf_chk(int, int, const char *, va_list);
ssize_t preadv64v2(int, const struct iovec *, int, off_t, int);
ssize_t pwritev64v2(int, const struct iovec *, int, off_t, int);

/* No memory is there; volatile, so that compilers do not see it. */
extern void *volatile BAD;

/* errno is 0 before each call, so that one that is set on success shows too. */
#define CALL(what) \
    do { \
        errno = 0; \
        long result_ = (long)(what); \
        int errno_ = errno; \
        printf("%s = %ld, %d\n", #what, result_, errno_); \
    } while (0)

extern char buf[4096];
extern struct iovec pieces[3], bad_pieces[1];

void show(const char *what, const void *octets, size_t count);
void clear(void);
struct sockaddr_in loopback(int port);
/* Two ends of a TCP connection. */
void connection(int ends[2]);
/* An octet each way, after which both ends are ready for more. */
void exchange(int ends[2]);
/* Waits until octets are there, so that what follows does not depend on time. */
void arrived(int fd);

void making(void);
void connecting(void);
void moving(void);
void fortified(void);
void printing(void);
void within_kernel(void);
void numbers_in_a_child(void);
void options(void);
void waiting(void);
void ends_of_streams(void);
void numbered(void);
void children(void);
