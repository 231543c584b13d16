#include "readiness.h"

int listening(struct sockaddr_in *addr, int ddp) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1, off = 0;
    socklen_t len = sizeof *addr;
    memset(addr, 0, sizeof *addr);
    addr->sin_family = AF_INET;
    addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (ddp) {
        IS(setsockopt(fd, SOL_DDP, DDPMODE, &on, sizeof on), 0);
        IS(setsockopt(fd, SOL_DDP, DDP_CRC, &off, sizeof off), 0);
    }
    IS(bind(fd, (void *)addr, len), 0);
    IS(listen(fd, 5), 0);
    IS(getsockname(fd, (void *)addr, &len), 0);
    return fd;
}

void quiet(int ends[2]) {
    struct sockaddr_in addr;
    int listener = listening(&addr, 1);
    ends[1] = socket(AF_INET, SOCK_STREAM, 0);
    IS(connect(ends[1], (void *)&addr, sizeof addr), 0);
    ends[0] = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    IS(ends[0] >= 0, 1);
    close(listener);
}

/* RFC 5044 section 7.1.1: revision 1, no markers, no CRC, no private data. */
void request(int peer) { IS(write(peer, "MPA ID Req Frame\0\1\0\0", 20), 20); }

void greeted(int ends[2]) {
    char octets[64];
    quiet(ends);
    request(ends[1]);
    struct pollfd one = {ends[0], POLLIN, 0};
    while (recv(ends[1], octets, 20, MSG_DONTWAIT) != 20)
        poll(&one, 1, 1);
    IS(memcmp(octets, "MPA ID Rep Frame", 16), 0);
}

void ready(int ends[2]) {
    char octet;
    greeted(ends);
    send_fpdu(ends[1], 1, 'r');
    struct pollfd one = {ends[0], POLLIN, 0};
    IS(poll(&one, 1, LONG), 1);
    IS(read(ends[0], &octet, 1), 1);
}

/* Message number of the next Send of each peer of a test, by descriptor. */
static uint32_t msn[1024];

int fpdu(unsigned char *out, int payload, int value) {
    int ulpdu = 18 + payload, len = (2 + ulpdu + 3) / 4 * 4 + 4;
    memset(out, 0, len);
    out[0] = ulpdu >> 8;
    out[1] = ulpdu;
    out[2] = 0x41; /* untagged, last (RFC 5041 section 4.2) */
    out[3] = 0x43; /* a Send (RFC 5040 section 4.1) */
    memset(out + 20, value, payload);
    return len;
}

static int next_fpdu(int peer, unsigned char *out, int payload, int value) {
    /* A number may be another connection's by now, even with the same port: its cookie tells. */
    static uint64_t cookie_of[1024];
    uint64_t cookie = 0;
    socklen_t len = sizeof cookie;
    IS(getsockopt(peer, SOL_SOCKET, SO_COOKIE, &cookie, &len), 0);
    if (cookie_of[peer] != cookie)
        msn[peer] = 0;
    cookie_of[peer] = cookie;
    int size = fpdu(out, payload, value);
    uint32_t number = htonl(++msn[peer]);
    memcpy(out + 12, &number, 4);
    return size;
}

void send_fpdu(int peer, int payload, int value) {
    unsigned char octets[70000];
    int len = next_fpdu(peer, octets, payload, value);
    IS(write(peer, octets, len), len);
}

struct job {
    int peer, len;
    unsigned char octets[4096];
};

volatile int trickled;

static void *write_slowly(void *of) {
    struct job *job = of;
    for (int i = 0; i < job->len; i++) {
        usleep(300);
        if (i == job->len - 1)
            trickled = 1;
        if (write(job->peer, job->octets + i, 1) != 1)
            abort();
    }
    free(job);
    return NULL;
}

pthread_t trickle(int peer, int payload, int value) {
    struct job *job = malloc(sizeof *job);
    pthread_t thread;
    job->peer = peer;
    job->len = next_fpdu(peer, job->octets, payload, value);
    trickled = 0;
    IS(pthread_create(&thread, NULL, write_slowly, job), 0);
    return thread;
}

long sleeps(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

struct timespec now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time;
}

long since(struct timespec *begin) {
    struct timespec end = now();
    return (end.tv_sec - begin->tv_sec) * 1000000 + (end.tv_nsec - begin->tv_nsec) / 1000;
}
