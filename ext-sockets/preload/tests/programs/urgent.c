/* Urgent octets in each order of calls: urgent [sdp]. Prints every result, for a comparison of TCP
 * with SDP. */
#define _GNU_SOURCE
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/select.h>

#include <rddp/ddp.h>

#include "check.h"

static int ends[2];

static void connection(int sdp) {
    struct sockaddr_in addr;
    int listener = socket(AF_INET, SOCK_STREAM, 0), mode = DDPMODE_SDP, on = 1;
    if (sdp)
        IS(setsockopt(listener, SOL_DDP, DDPMODE, &mode, sizeof mode), 0);
    listen_somewhere(listener, &addr);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (sdp)
        IS(setsockopt(ends[0], SOL_DDP, DDPMODE, &mode, sizeof mode), 0);
    IS(connect(ends[0], (void *)&addr, sizeof addr), 0);
    ends[1] = accept(listener, NULL, NULL);
    IS(setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
    close(listener);
    char octet;
    IS(write(ends[0], "x", 1), 1);
    IS(read(ends[1], &octet, 1), 1);
    IS(write(ends[1], "x", 1), 1);
    IS(read(ends[0], &octet, 1), 1);
}

/* Events that hold now, each asked for alone: by poll, and by select. (Where both are asked for,
 * SDP tells of the urgent octet when those before its message are read.) */
static void tell_events(void) {
    fd_set in, urgent;
    struct timeval now = {0};
    FD_ZERO(&in);
    FD_ZERO(&urgent);
    FD_SET(ends[1], &in);
    FD_SET(ends[1], &urgent);
    struct pollfd one = {ends[1], POLLIN, 0}, alone = {ends[1], POLLPRI, 0};
    poll(&one, 1, 0);
    poll(&alone, 1, 0);
    select(ends[1] + 1, &in, NULL, NULL, &now);
    select(ends[1] + 1, NULL, NULL, &urgent, &now);
    printf(" [%s%s|%d%d]", one.revents & POLLIN ? "IN" : "", alone.revents & POLLPRI ? "PRI" : "",
           FD_ISSET(ends[1], &in) != 0, FD_ISSET(ends[1], &urgent) != 0);
}

static void receive(size_t room, int flags) {
    char octets[100] = "";
    errno = 0;
    ssize_t count = recv(ends[1], octets, room, flags | MSG_DONTWAIT);
    if (count < 0)
        printf(" %s", strerror(errno));
    else
        printf(" \"%.*s\"", (int)count, octets);
}

/* Each letter a call: lower case sends, O with the last urgent; others receive. */
static void run(const char *script, int sdp) {
    connection(sdp);
    printf("%s:", script);
    for (const char *at = script; *at; at++) {
        int value = -1, on = 1;
        switch (*at) {
        case 's': IS(send(ends[0], "abc", 3, 0), 3); break;
        case 'o': IS(send(ends[0], "d!", 2, MSG_OOB), 2); break;
        case 'u': IS(send(ends[0], "?", 1, MSG_OOB), 1); break;
        case 'f': IS(shutdown(ends[0], SHUT_WR), 0); break;
        case 'I': IS(setsockopt(ends[1], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on), 0); break;
        case 'R': receive(100, 0); break;
        case 'S': receive(2, 0); break;
        case 'P': receive(100, MSG_PEEK); break;
        case 'U': receive(1, MSG_OOB); break;
        case 'V': receive(1, MSG_OOB | MSG_PEEK); break;
        case 'W': receive(100, MSG_WAITALL); break;
        case 'M': IS(ioctl(ends[1], SIOCATMARK, &value), 0); printf(" mark=%d", value); break;
        case 'N': IS(ioctl(ends[1], FIONREAD, &value), 0); printf(" has=%d", value); break;
        case 'E': usleep(2000); tell_events(); break;
        }
    }
    puts("");
    close(ends[0]), close(ends[1]);
}

int main(int count, char **words) {
    int sdp = count > 1 && strcmp(words[1], "sdp") == 0;
    static const char *const scripts[] = {
        "URM",           "soEUURRM",       "soEVURRMU",     "uENMUMENR",     "uERUM",       "soRMRMU",
        "soSMSMRMU",     "soPRPMUPR",      "osENRMNRU",     "osERMURER",     "IsoERMNRMUE", "IuENURM",
        "ooEURRM",       "uuEUURM",        "soNURNRN",      "usERRUM",       "ofERMURRE",   "soWMWR",
        "uVVUVRE",       "soUsRMRE",       "IosRMPRMR",     "sosRMRSR",      "uMRMsER",     "suRMEREsRE",
    };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        run(scripts[i], sdp);
    return 0;
}
