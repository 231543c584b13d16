/* A connection that cannot be made, as each way of waiting tells of it: connects WAY.
 *
 * Says line by line what the calls answer. Other than TCP's own nobody may have an answer, so
 * the test compares. In a network of its own, where it may make one, an address answers that the
 * host is unreachable and another one does not answer at all.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/select.h>

#include "check.h"

static const char *way;

static const char *told(long result) {
    return result < 0 ? strerrorname_np(errno) : "done";
}

static uint16_t sum_of(const void *from, size_t count) {
    const uint8_t *octets = from;
    uint32_t sum = 0;
    for (size_t at = 0; at < count; at += 2)
        sum += octets[at] << 8 | (at + 1 < count ? octets[at + 1] : 0);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return htons(~sum);
}

/* The router of our network: 10.77.0.2 is unreachable, of 10.77.0.3 it says nothing. */
static void route(int tun) {
    uint8_t packet[2048];
    for (;;) {
        ssize_t count = read(tun, packet, sizeof packet);
        struct iphdr *from = (void *)packet;
        if (count < (ssize_t)sizeof *from || from->version != 4 || from->daddr != inet_addr("10.77.0.2"))
            continue;
        size_t quoted = from->ihl * 4 + 8;
        struct {
            struct iphdr ip;
            struct icmphdr icmp;
            uint8_t quote[68];
        } answer = {.ip = {.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_ICMP},
                    .icmp = {.type = ICMP_DEST_UNREACH, .code = ICMP_HOST_UNREACH}};
        size_t len = sizeof answer.ip + sizeof answer.icmp + quoted;
        answer.ip.tot_len = htons(len);
        answer.ip.saddr = from->daddr;
        answer.ip.daddr = from->saddr;
        answer.ip.check = sum_of(&answer.ip, sizeof answer.ip);
        memcpy(answer.quote, packet, quoted);
        answer.icmp.checksum = sum_of(&answer.icmp, sizeof answer.icmp + quoted);
        IS(write(tun, &answer, len), len);
    }
}

static void bring_up(const char *name, const char *addr) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq request = {0};
    strcpy(request.ifr_name, name);
    struct sockaddr_in *in = (void *)&request.ifr_addr;
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = inet_addr(addr);
    IS(ioctl(fd, SIOCSIFADDR, &request), 0);
    in->sin_addr.s_addr = inet_addr("255.255.255.0");
    IS(ioctl(fd, SIOCSIFNETMASK, &request), 0);
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    IS(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    close(fd);
}

/* Returns whether there is one. */
static int own_network(void) {
    int tun;
    struct ifreq request = {.ifr_name = "rddp0", .ifr_flags = IFF_TUN | IFF_NO_PI};
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
        return 0;
    bring_up("lo", "127.0.0.1");
    if ((tun = open("/dev/net/tun", O_RDWR | O_CLOEXEC)) < 0 || ioctl(tun, TUNSETIFF, &request) != 0)
        return 0;
    bring_up("rddp0", "10.77.0.1");
    pid_t parent = getpid();
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            route(tun);
        _exit(0);
    }
    return 1;
}

/* Waits once, in each kind of call for the events that the kind asks for. Returns them as poll's
 * events. */
static int wait_for(int fd, int epoll, int timeout) {
    if (strcmp(way, "select") == 0) {
        fd_set in, out, except;
        struct timeval span = {timeout / 1000, timeout % 1000 * 1000};
        FD_ZERO(&in);
        FD_SET(fd, &in);
        out = except = in;
        if (select(fd + 1, &in, &out, &except, timeout < 0 ? NULL : &span) < 0)
            return -errno;
        return (FD_ISSET(fd, &in) ? POLLIN : 0) | (FD_ISSET(fd, &out) ? POLLOUT : 0) |
               (FD_ISSET(fd, &except) ? POLLPRI : 0);
    }
    if (epoll >= 0) {
        struct epoll_event event = {0};
        IS(epoll_wait(epoll, &event, 1, timeout) >= 0, 1);
        return event.events;
    }
    struct pollfd entry = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    IS(poll(&entry, 1, timeout) >= 0, 1);
    return entry.revents;
}

static int set_with(int fd) {
    int epoll = -1;
    uint32_t edge = strcmp(way, "edge") == 0 ? EPOLLET : 0;
    if (edge || strcmp(way, "level") == 0) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | edge};
        epoll = epoll_create1(0);
        IS(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
    }
    return epoll;
}

/* Waits until all events of an end are there: the kernel sets them one after the other. */
static int told_of_end(int fd, int epoll) {
    int whole = strcmp(way, "select") == 0 ? POLLIN | POLLOUT : POLLIN | POLLHUP, all = 0;
    while ((all & whole) != whole)
        all |= wait_for(fd, epoll, -1);
    /* What it sets last may come as an edge of its own. */
    return strcmp(way, "edge") == 0 ? all | wait_for(fd, epoll, 50) : all;
}

static int error_of(int fd) {
    int error = -1;
    socklen_t len = sizeof error;
    IS(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len), 0);
    return error;
}

static int within(int fd, int milliseconds) {
    int syn = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_SYNCNT, &syn, sizeof syn);
    return setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
}

/* The socket connects again, now to a listener, and moves octets. */
static void connects_after_all(int fd, int epoll) {
    char octet = 0;
    struct sockaddr_in here;
    int listener = socket(AF_INET, SOCK_STREAM, 0), count = 0;
    listen_somewhere(listener, &here);
    /* An error that was not fetched is the answer to this call. */
    int result = connect(fd, (void *)&here, sizeof here);
    if (result < 0 && errno != EINPROGRESS) {
        printf("connect again: %s\n", told(result));
        result = connect(fd, (void *)&here, sizeof here);
    }
    printf("connect elsewhere: %s\n", told(result));
    int other = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    while ((count = write(fd, "x", 1)) < 0 && errno == EAGAIN)
        IS(wait_for(fd, epoll, -1) != 0, 1), read(other, &octet, 1);
    IS(count, 1);
    while (octet != 'x' && (count = read(other, &octet, 1)) < 0 && errno == EAGAIN) {
        struct pollfd entry = {other, POLLIN, 0};
        IS(poll(&entry, 1, -1), 1);
    }
    IS(octet, 'x');
    printf("and moves octets, SO_ERROR %d\n", error_of(fd));
    close(other), close(listener);
}

static void fails(const char *what, struct sockaddr_in to, int fetches) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), epoll = -1;
    char octet;
    /* A socket that is not connected yet is in a set as it is. */
    if (strcmp(way, "edge") == 0)
        epoll = set_with(fd), wait_for(fd, epoll, 0);
    IS(within(fd, 200), 0);
    printf("%s, %s: connect %s\n", way, what, told(connect(fd, (void *)&to, sizeof to)));
    if (epoll < 0)
        epoll = set_with(fd);
    printf("told %#x\n", told_of_end(fd, epoll));
    if (fetches) {
        printf("SO_ERROR %s, and then", strerrorname_np(error_of(fd)));
        printf(" %d\n", error_of(fd));
    }
    if (fetches != 2) {
        ssize_t count = recv(fd, &octet, 1, 0);
        printf("recv %zd %s\n", count, told(count));
        printf("send %s\n", told(send(fd, "x", 1, MSG_NOSIGNAL)));
        printf("send %s\n", told(send(fd, "x", 1, MSG_NOSIGNAL)));
        count = recv(fd, &octet, 1, 0);
        printf("recv %zd %s\n", count, told(count));
    }
    printf("told %#x\n", wait_for(fd, epoll, 0));
    connects_after_all(fd, epoll);
    close(fd);
}

/* While it is being connected, nothing is said of it, and no call ends that. */
static void takes_time(struct sockaddr_in to) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    char octet;
    IS(within(fd, 500), 0);
    printf("%s, silent: connect %s\n", way, told(connect(fd, (void *)&to, sizeof to)));
    printf("connect %s\n", told(connect(fd, (void *)&to, sizeof to)));
    int epoll = set_with(fd);
    printf("told %#x\n", wait_for(fd, epoll, 50));
    printf("send %s\n", told(send(fd, "x", 1, 0)));
    printf("recv %s\n", told(recv(fd, &octet, 1, 0)));
    printf("SO_ERROR %d\n", error_of(fd));
    printf("told %#x\n", told_of_end(fd, epoll));
    printf("SO_ERROR %s\n", strerrorname_np(error_of(fd)));
    close(fd);

    /* A blocking socket waits, and gives up after the time that was set. */
    fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval span = {0, 50000}, none = {0, 0};
    IS(within(fd, 500), 0);
    IS(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &span, sizeof span), 0);
    printf("blocking: connect %s\n", told(connect(fd, (void *)&to, sizeof to)));
    IS(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none), 0);
    printf("recv %s\n", told(recv(fd, &octet, 1, 0)));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    IS(within(fd, 500), 0);
    printf("connect %s\n", told(connect(fd, (void *)&to, sizeof to)));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    connect(fd, (void *)&to, sizeof to);
    printf("shutdown %s\n", told(shutdown(fd, SHUT_WR)));
    printf("shutdown %s\n", told(shutdown(fd, SHUT_WR)));
    printf("send %s\n", told(send(fd, "x", 1, MSG_NOSIGNAL)));
    close(fd);
}

static struct sockaddr_in somewhere(const char *addr, int port) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(addr), .sin_port = htons(port)};
}

int main(int count, char **words) {
    struct sockaddr_in closed;
    way = words[1];
    setbuf(stdout, NULL);
    int own = own_network();
    /* A port on which nothing listens any more. */
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    listen_somewhere(listener, &closed);
    close(listener);
    for (int fetches = 0; fetches < 3; fetches++) {
        fails("closed", closed, fetches);
        if (own)
            fails("unreachable", somewhere("10.77.0.2", 80), fetches);
    }
    if (own)
        takes_time(somewhere("10.77.0.3", 80));
    return 0;
}
