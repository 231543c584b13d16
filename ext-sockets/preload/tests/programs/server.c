/* server [once]: prints its port, and gives everyone back what they say, one after the other, or
 * the first one alone. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct sockaddr_in addr = {.sin_family = AF_INET};
    socklen_t len = sizeof addr;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (void *)&addr, len) || listen(listener, 5) || getsockname(listener, (void *)&addr, &len))
        return 1;
    printf("%d\n", ntohs(addr.sin_port));
    fflush(stdout);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        char octets[4096];
        ssize_t count;
        if (argc > 1)
            close(listener);
        while ((count = read(fd, octets, sizeof octets)) > 0)
            if (write(fd, octets, count) != count)
                break;
        close(fd);
        if (argc > 1)
            pause();
    }
}
