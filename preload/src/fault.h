/* Faults at addresses of the program, and the program's own handlers of them. */
#ifndef PRE_FAULT_H
#define PRE_FAULT_H

#include <signal.h>
#include <stdbool.h>

/* ---- copy.c, for handlers ---- */
/* pre_copy_ends lets a copy that has met the fault return -EFAULT. false: the fault is of no copy. */
bool pre_copy_ends(int sig, const siginfo_t *info, void *context);
/* pre_mask_changed makes the thread's next copy ask which signals are blocked. */
void pre_mask_changed(void);
/* pre_mask_lifted reports whether a copy has unblocked signals that the program blocks. */
bool pre_mask_lifted(void);

/* ---- fault.c ---- */
/* pre_catch_faults stands in front of the program's handlers from the first RDS socket on. */
void pre_catch_faults(void);
void pre_catch_in_child(void);

#endif
