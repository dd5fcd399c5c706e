/* Memory that the daemon has made and this process maps. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "int.h"

/* rdsi_map maps the file fd if it is size bytes long and cannot change its size, so that no
 * access can fault. child says whether a child of a fork shares it. It returns 0 or
 * -EPROTO, or the error of the mapping. */
int rdsi_map(int fd, size_t size, bool writable, bool child, struct rdsi_mapping *m)
{
	const int want = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	struct stat st;
	if (fstat(fd, &st))
		return -errno;
	int seals = fcntl(fd, F_GET_SEALS);
	if (size == 0 || st.st_size < 0 || (uint64_t)st.st_size != size || seals < 0 || (seals & want) != want)
		return -EPROTO;
	void *p = mmap(NULL, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	if (!child)
		madvise(p, size, MADV_DONTFORK); /* without it the child only has more page tables */
	*m = (struct rdsi_mapping){p, size};
	return 0;
}

/* rdsi_add_window notes a window, which rds_client_close unmaps. On failure it unmaps it. */
int rdsi_add_window(rds_client *c, struct rdsi_mapping m)
{
	int err = 0;
	pthread_mutex_lock(&c->maps_mu);
	struct rdsi_mapping *w = c->unmapped ? NULL : realloc(c->windows, (c->nwindows + 1) * sizeof *w);
	if (w) {
		c->windows = w;
		w[c->nwindows++] = m;
	} else {
		err = c->unmapped ? -EBADF : -ENOMEM;
		munmap(m.mem, m.size);
	}
	pthread_mutex_unlock(&c->maps_mu);
	return err;
}
