/* Readiness of a framed socket whose peer makes its FPDUs by hand, also one octet at a time. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rddp/ddp.h>

#define LONG 20000
#define SOON 30

static const char *doing = "";

#define WHERE doing
#include "../check.h"
/* Most events of one wait. */
#define FEW(what, most) ((what) <= (most) || is_so(WHERE, __LINE__, #what, (long)(what), (long)(most)))

/* peer.c */
int listening(struct sockaddr_in *addr, int ddp);
/* A framed responder that does not block, and its peer: a plain socket, with nothing said yet, */
void quiet(int ends[2]);
/* after the startup, */
void greeted(int ends[2]);
/* or after an FPDU of one octet, which has been read. */
void ready(int ends[2]);
void request(int peer);
/* An FPDU of so many octets of payload, each `value`. Its length. */
int fpdu(unsigned char *out, int payload, int value);
void send_fpdu(int peer, int payload, int value);
/* Writes it in a thread, an octet at a time. */
pthread_t trickle(int peer, int payload, int value);
extern volatile int trickled;
/* Returns how often this thread has slept. */
long sleeps(void);
long since(struct timespec *begin);
struct timespec now(void);

/* waits.c: a descriptor in one of these ways of waiting. */
enum kind { POLL, PPOLL, SELECT, PSELECT, LEVEL, EDGE, PWAIT, PWAIT2, KINDS };
extern const char *const names[];
struct waiter {
    enum kind kind;
    int fd, epoll, events;
};
struct waiter waiter(enum kind kind, int fd, int events);
/* The events that are there (of POLLIN and POLLOUT) within so many milliseconds; -1 and errno. */
int await(struct waiter *, int milliseconds, const sigset_t *mask);
void done(struct waiter *);
