/* The program's msghdr and names: copied before they are looked at, in the kernel's order. */
#include <limits.h>
#include <stdlib.h>

#include "pre.h"

int pre_name_load(struct sockaddr_storage *to, const void *addr, socklen_t len)
{
	return len > sizeof *to ? -EINVAL : pre_load(to, (uintptr_t)addr, len);
}

int pre_name_store(const struct sockaddr_storage *from, socklen_t n, void *addr, socklen_t *len)
{
	socklen_t room;
	int err = pre_load(&room, (uintptr_t)len, sizeof room);
	if (!err && (int)room < 0)
		err = -EINVAL;
	if (!err)
		err = pre_store((uintptr_t)addr, from, room < n ? room : n);
	return err ? err : pre_store((uintptr_t)len, &n, sizeof n);
}

static int load_vector(struct pre_msg *m, const struct iovec *from, size_t n)
{
	if (n > sizeof m->few / sizeof *m->few && !(m->v = malloc(n * sizeof *m->v)))
		return -ENOMEM;
	int err = pre_load(m->v, (uintptr_t)from, n * sizeof *m->v);
	for (size_t i = 0; i < n && !err; i++)
		if (m->v[i].iov_len > SSIZE_MAX)
			err = -EINVAL;
	m->h.msg_iov = m->v;
	m->h.msg_iovlen = n;
	return err;
}

int pre_msg_load(struct pre_msg *m, const struct msghdr *from, bool send)
{
	m->v = m->few;
	int err = pre_load(&m->h, (uintptr_t)from, sizeof m->h);
	if (err)
		return err;
	if (!(m->to = m->h.msg_name))
		m->h.msg_namelen = 0;
	if ((int)m->h.msg_namelen < 0)
		return -EINVAL;
	if (!send || m->h.msg_namelen > sizeof m->name)
		m->h.msg_namelen = sizeof m->name;
	if (m->to)
		m->h.msg_name = &m->name;
	if (send && m->to && (err = pre_name_load(&m->name, m->to, m->h.msg_namelen)))
		return err;
	return m->h.msg_iovlen > PRE_MAX_SEGMENTS ? -EMSGSIZE : load_vector(m, m->h.msg_iov, m->h.msg_iovlen);
}

int pre_msg_vector(struct pre_msg *m, const struct iovec *v, int n)
{
	m->h = (struct msghdr){0};
	m->v = m->few;
	return n < 0 || n > IOV_MAX ? -EINVAL : load_vector(m, v, (size_t)n);
}

int pre_msg_store(const struct pre_msg *m, struct msghdr *to)
{
	int err = m->to ? pre_name_store(&m->name, m->h.msg_namelen, m->to, &to->msg_namelen) : 0;
	if (!err)
		err = pre_store((uintptr_t)&to->msg_flags, &m->h.msg_flags, sizeof m->h.msg_flags);
	return err ? err : pre_store((uintptr_t)&to->msg_controllen, &m->h.msg_controllen, sizeof m->h.msg_controllen);
}

void pre_msg_end(struct pre_msg *m)
{
	if (m->v != m->few)
		free(m->v);
}
