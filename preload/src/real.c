/* The C library's own functions. */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../librds/src/int.h"
#include "pre.h"

#define PRE_REAL(result, name, ...) result (*real_##name)(__VA_ARGS__);
#include "real.h"
#undef PRE_REAL

_Atomic bool pre_ready;

static void find(void *at, const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);
	memcpy(at, &f, sizeof f);
}

/* A C library without close_range still has the system call. */
static int raw_close_range(unsigned first, unsigned last, int flags)
{
	return (int)syscall(SYS_close_range, first, last, flags);
}

static void find_all(void)
{
#define PRE_REAL(result, name, ...) find(&real_##name, #name);
#include "real.h"
#undef PRE_REAL
	if (!real_close_range)
		real_close_range = raw_close_range;
	if (!real_fcntl64)
		real_fcntl64 = real_fcntl;
	atomic_store_explicit(&pre_ready, true, memory_order_release);
}

/* A constructor of another library may call a hook before this library's constructor runs. Two
 * threads may find the functions at the same time; both find the same. */
void pre_init(void)
{
	find_all();
}

/* The handlers of a fork come before those of the program. If they cannot be registered here, the
 * first RDS socket tries again. */
__attribute__((constructor)) static void load(void)
{
	pre_init();
	rdsi_fork_handlers();
}
