/* Descriptors made, sockets set up, their options. */
#include "calls.h"

void making(void) {
    CALL(socket(AF_INET, SOCK_STREAM, 0));
    CALL(socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
    CALL(socket(AF_UNIX, SOCK_DGRAM, 0));
    CALL(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
    CALL(socket(9999, SOCK_STREAM, 0));
    CALL(socket(AF_INET, 77, 0));
    int fds[2];
    CALL(socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
    show("fds", fds, sizeof fds);
    CALL(socketpair(AF_INET, SOCK_STREAM, 0, fds));
    CALL(socketpair(AF_UNIX, SOCK_STREAM, 0, BAD));
    CALL(pipe(fds));
    CALL(pipe(BAD));
    CALL(pipe2(fds, O_CLOEXEC | O_NONBLOCK));
    CALL(pipe2(fds, 0x77777777));
    CALL(pipe2(BAD, 0));
    CALL(open("/dev/null", O_RDONLY));
    CALL(open("/nonexistent/file", O_RDWR | O_CREAT, 0600));
    CALL(open("made", O_RDWR | O_CREAT | O_TRUNC, 0640));
    struct stat stat_;
    CALL(stat("made", &stat_));
    printf("  mode %o\n", stat_.st_mode);
    CALL(open(BAD, O_RDONLY));
    CALL(open64("made", O_RDONLY | O_CLOEXEC));
    CALL(open64("made64", O_WRONLY | O_CREAT | O_EXCL, 0604));
    CALL(stat("made64", &stat_));
    printf("  mode %o\n", stat_.st_mode);
    CALL(openat(AT_FDCWD, "made64", O_WRONLY | O_CREAT | O_EXCL, 0600));
    CALL(openat(AT_FDCWD, "madeat", O_WRONLY | O_CREAT, 0601));
    CALL(stat("madeat", &stat_));
    printf("  mode %o\n", stat_.st_mode);
    CALL(openat64(-1, "madeat", O_RDONLY));
    CALL(openat64(AT_FDCWD, "madeat", O_RDONLY));
    CALL(__open_2("made", O_RDONLY));
    CALL(__open64_2("made", O_RDONLY));
    CALL(__openat_2(AT_FDCWD, "made", O_RDONLY));
    CALL(__openat64_2(AT_FDCWD, "nothing", O_RDONLY));
    CALL(creat("created", 0600));
    CALL(creat64("created64", 0600));
    CALL(creat("/nonexistent/file", 0600));
    CALL(epoll_create(1));
    CALL(epoll_create(0));
    CALL(epoll_create1(EPOLL_CLOEXEC));
    CALL(epoll_create1(77));
    CALL(close_range(3, ~0U, 0));
}

void connecting(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), other = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in addr = loopback(0), peer;
    socklen_t len = sizeof peer;
    CALL(bind(fd, (void *)&addr, 3));
    CALL(bind(fd, BAD, sizeof addr));
    CALL(bind(-1, (void *)&addr, sizeof addr));
    CALL(bind(0, (void *)&addr, sizeof addr));
    CALL(listen(-1, 5));
    CALL(accept(fd, NULL, NULL));
    CALL(bind(fd, (void *)&addr, sizeof addr));
    CALL(bind(fd, (void *)&addr, sizeof addr));
    CALL(listen(fd, 5));
    getsockname(fd, (void *)&addr, &len);
    CALL(connect(-1, (void *)&addr, len));
    CALL(connect(other, (void *)&addr, 2));
    CALL(connect(other, BAD, sizeof addr));
    CALL(connect(other, (void *)&addr, sizeof addr));
    CALL(connect(other, (void *)&addr, sizeof addr));
    CALL(accept(-1, NULL, NULL));
    memset(&peer, 0, sizeof peer);
    len = sizeof peer;
    CALL(accept(fd, (void *)&peer, &len));
    printf("  %u octets, family %d, %x\n", len, peer.sin_family, ntohl(peer.sin_addr.s_addr));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    CALL(accept(fd, NULL, NULL));
    CALL(accept4(fd, NULL, NULL, SOCK_NONBLOCK));
    CALL(accept4(fd, NULL, NULL, 77));
    int third = socket(AF_INET, SOCK_STREAM, 0);
    CALL(connect(third, (void *)&addr, sizeof addr));
    arrived(fd);
    len = sizeof peer;
    CALL(accept4(fd, (void *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK));
    CALL(accept4(-1, NULL, NULL, 0));
    close(fd);
    int fourth = socket(AF_INET, SOCK_STREAM, 0);
    CALL(connect(fourth, (void *)&addr, sizeof addr)); /* refused */
    CALL(shutdown(third, 77));
    CALL(shutdown(third, SHUT_WR));
    CALL(shutdown(third, SHUT_WR));
    CALL(shutdown(fourth, SHUT_RD));
    CALL(shutdown(-1, SHUT_RD));
    CALL(shutdown(0, SHUT_RD));
    CALL(close_range(3, ~0U, 0));
}

void options(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), value = 1;
    socklen_t len = sizeof value;
    CALL(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value));
    CALL(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, 1));
    CALL(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, BAD, sizeof value));
    CALL(setsockopt(fd, SOL_SOCKET, 7777, &value, sizeof value));
    CALL(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value));
    CALL(setsockopt(fd, IPPROTO_TCP, TCP_ULP, "nothing", 7));
    CALL(setsockopt(fd, 0x7777, 1, &value, sizeof value));
    CALL(setsockopt(-1, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value));
    CALL(setsockopt(0, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value));
    CALL(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &len));
    printf("  %d in %u octets\n", value, len);
    len = 1;
    CALL(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &len));
    len = -1;
    CALL(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &len));
    len = sizeof value;
    CALL(getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &len));
    CALL(getsockopt(fd, SOL_SOCKET, SO_TYPE, BAD, &len));
    CALL(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, BAD));
    CALL(getsockopt(fd, SOL_SOCKET, 7777, &value, &len));
    CALL(getsockopt(-1, SOL_SOCKET, SO_TYPE, &value, &len));
    CALL(getsockopt(0, SOL_SOCKET, SO_TYPE, &value, &len));
    close(fd);
}
