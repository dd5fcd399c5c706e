/* Pages that move between private memory and a file, while other threads use them. A page lies
 * in the file where it lies in the address space. */
#ifndef RDSI_MOVE_H
#define RDSI_MOVE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* rdsi_move_in copies private pages into the file and maps them from there. The pages can be
 * read all the time; a thread that writes there waits. One move at a time. It returns 0, or a
 * negative errno and has changed nothing. */
int rdsi_move_in(int file, uintptr_t start, uintptr_t end);

/* rdsi_move_out copies pages from the file and maps the copies, which are private, with prot. */
int rdsi_move_out(int file, uintptr_t start, uintptr_t end, int prot);

/* rdsi_stopped reports whether a fault is that of a write which a move has stopped. It waits for the
 * end of the move first, so the write is to be tried again. A handler of signals may call it. */
bool rdsi_stopped(int sig, const siginfo_t *info);

#endif
