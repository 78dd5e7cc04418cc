/* The console's commands for file descriptors of memory:
 *
 *   send_fd PID 7            passes descriptor 7 to the console PID
 *   receive_fd               waits for it, after `receive_fd_later`; answers its number here
 *   receive_fd_later         from now on this console can be sent descriptors
 *   file_of 7                the file's inode and device
 *   close_fd 7
 *
 * A driver's descriptor is of a device file. To open that again through /proc gives another memory, or
 * none, so it must be sent, or copied. */
#pragma once
#include <fcntl.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>
#include "console.h"

static int other_processes(char **a);

static int inbox = -1;

/* The abstract address of the console with this PID. */
static socklen_t address_of_console(struct sockaddr_un *address, const char *pid)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "console-%s", pid);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int open_inbox(void)
{
    struct sockaddr_un address;
    char pid[16];
    snprintf(pid, sizeof pid, "%d", getpid());
    inbox = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return bind(inbox, (struct sockaddr *)&address, address_of_console(&address, pid));
}

/* Sends a descriptor, or receives one into `*descriptor`. */
static int pass_descriptor(const char *pid, int *descriptor)
{
    struct sockaddr_un address;
    union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control = {{0}};
    struct iovec byte = {"", 1};
    char received;
    struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control.room};
    if (!pid) {
        byte.iov_base = &received;
        if (recvmsg(inbox, &message, MSG_CMSG_CLOEXEC) < 0 || !CMSG_FIRSTHDR(&message))
            return -1;
        memcpy(descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof *descriptor);
        return 0;
    }
    message.msg_namelen = address_of_console(&address, pid);
    message.msg_name = &address;
    *CMSG_FIRSTHDR(&message) = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), descriptor, sizeof *descriptor);
    int sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ssize_t sent = sendmsg(sender, &message, 0);
    close(sender);
    return sent == 1 ? 0 : -1;
}

/* A copy of a descriptor of the process `pid`, or of this process: of the same open file. The numbers
 * are those of pidfd_open and pidfd_getfd, which glibc 2.17 does not know. */
static int copy_of_descriptor(const char *pid, const char *number)
{
    int process = strcmp(pid, "self") ? atoi(pid) : getpid();
    int found = (int)syscall(434, process, 0);
    int copy = (int)syscall(438, found, atoi(number), 0);
    close(found);
    return copy;
}

static int descriptors(char **a)
{
    if (IS("close_fd"))
        return close(atoi(a[1]));
    if (IS("receive_fd_later"))
        return open_inbox();
    if (IS("send_fd")) {
        int descriptor = atoi(a[2]);
        return pass_descriptor(a[1], &descriptor);
    }
    if (IS("receive_fd")) {
        int descriptor = -1;
        ANSWER(pass_descriptor(NULL, &descriptor), "pid=%d fd=%d", getpid(), descriptor);
    }
    if (IS("file_of")) {
        struct stat found;
        memset(&found, 0, sizeof found);
        ANSWER(fstat(atoi(a[1]), &found), "inode=%llu major=%u minor=%u",
               (unsigned long long)found.st_ino, major(found.st_rdev), minor(found.st_rdev));
    }
    return other_processes(a);
}
