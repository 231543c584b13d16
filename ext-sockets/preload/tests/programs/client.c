/* client PORT [nonblocking]: twice connects, says hello, prints what comes back. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int fails(const char *what) {
    printf("%s: %s\n", what, strerrorname_np(errno));
    return 1;
}

static int wait_for(int fd, short events) {
    struct pollfd one = {fd, events, 0};
    return poll(&one, 1, 20000) == 1 ? 0 : -1;
}

static int once(int port, int nonblocking) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | (nonblocking ? SOCK_NONBLOCK : 0), 0);
    if (connect(fd, (void *)&addr, sizeof addr) != 0) {
        int error = 0;
        socklen_t len = sizeof error;
        if (errno != EINPROGRESS)
            return fails("connect");
        if (wait_for(fd, POLLOUT) != 0)
            return fails("poll");
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error != 0)
            return errno = error, fails("SO_ERROR");
    }
    if (write(fd, "hello", 5) != 5)
        return fails("write");
    char text[100] = "";
    size_t have = 0;
    ssize_t count;
    if (shutdown(fd, SHUT_WR) != 0)
        return fails("shutdown");
    for (;;) {
        if (nonblocking && wait_for(fd, POLLIN) != 0)
            return fails("poll");
        count = read(fd, text + have, sizeof text - 1 - have);
        if (count < 0 && errno == EAGAIN)
            continue;
        if (count <= 0)
            break;
        have += count;
    }
    if (count < 0)
        return fails("read");
    printf("%s\n", text);
    close(fd);
    return 0;
}

int main(int argc, char **argv) {
    int nonblocking = argc > 2;
    int first = once(atoi(argv[1]), nonblocking);
    return once(atoi(argv[1]), nonblocking) | first;
}
