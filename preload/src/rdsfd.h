/* librds within the preload library: it copies payload with pre_copy, which may fail, and leaves faults to
 * the handler of fault.c. The descriptors that it keeps for long are hidden from the
 * program, and it closes what is hidden. Those of a session are hidden by client.c. */
#include <sys/mman.h>
#include <unistd.h>
int pre_close_hidden(int fd);
int pre_memfd_hidden(const char *name, unsigned flags);
int pre_pipe_hidden(int fds[2], int flags);
#define close(fd) pre_close_hidden(fd)
#define memfd_create(name, flags) pre_memfd_hidden(name, flags)
#define pipe2(fds, flags) pre_pipe_hidden(fds, flags)
#include <stddef.h>
int pre_copy(void *to, const void *from, size_t n);
