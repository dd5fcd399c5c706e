/* Names of numbers in the scripts of the conformance test. */
#ifndef NAMES_H
#define NAMES_H

#include <errno.h>
#include <rds/rds.h>
#include <stdint.h>
#include <string.h>

struct name {
	const char *text;
	int64_t value;
};

static const struct name errnos[] = {{"EAGAIN", EAGAIN}, {"EBADF", EBADF}, {"EINVAL", EINVAL}, {"EMSGSIZE", EMSGSIZE},
	{"ENOTCONN", ENOTCONN}, {"EDESTADDRREQ", EDESTADDRREQ}, {"EOPNOTSUPP", EOPNOTSUPP}, {"EADDRINUSE", EADDRINUSE},
	{"EADDRNOTAVAIL", EADDRNOTAVAIL}, {"ENOBUFS", ENOBUFS}, {"EBUSY", EBUSY}, {"ECONNRESET", ECONNRESET},
	{"ECONNABORTED", ECONNABORTED}, {"ETIMEDOUT", ETIMEDOUT}, {"EFAULT", EFAULT}, {"EACCES", EACCES}, {"EIO", EIO},
	{"EPIPE", EPIPE}, {"ETIME", ETIME}, {"ECANCELED", ECANCELED}, {"ENOENT", ENOENT}, {"ENOMEM", ENOMEM},
	{"ERANGE", ERANGE}, {"ESTALE", ESTALE}, {"EPROTO", EPROTO}, {"EPROTONOSUPPORT", EPROTONOSUPPORT}, {"ESHUTDOWN", ESHUTDOWN},
	{"ECONNREFUSED", ECONNREFUSED}, {"EHOSTUNREACH", EHOSTUNREACH}, {"EINTR", EINTR}, {"EPERM", EPERM},
	{"EMLINK", EMLINK}, {"ENOSPC", ENOSPC}, {"EHOSTDOWN", EHOSTDOWN}, {NULL, 0}};

static const struct name options[] = {{"nonblock", RDS_OPT_NONBLOCK}, {"sndbuf", RDS_OPT_SNDBUF}, {"rcvbuf", RDS_OPT_RCVBUF},
	{"sndtimeo", RDS_OPT_SNDTIMEO}, {"rcvtimeo", RDS_OPT_RCVTIMEO}, {"lane", RDS_OPT_LANE}, {"anybody", RDS_OPT_ANYBODY},
	{"failunreachable", RDS_OPT_FAIL_UNREACHABLE}, {"congmonitor", RDS_OPT_CONG_MONITOR}, {"linger", RDS_OPT_LINGER},
	{"notices", RDS_OPT_NOTICES}, {NULL, 0}};

static const struct name conditions[] = {{"message", RDS_UNTIL_MESSAGE}, {"space", RDS_UNTIL_SEND_SPACE}, {"sendto", RDS_UNTIL_SEND_TO},
	{"completion", RDS_UNTIL_COMPLETION}, {"notice", RDS_UNTIL_NOTICE}, {"zerocopy", RDS_UNTIL_ZERO_COPY},
	{"congestion", RDS_UNTIL_CONGESTION}, {"op", RDS_UNTIL_OP}, {"status", RDS_UNTIL_STATUS}, {"relief", RDS_UNTIL_RELIEF}, {"unreachable", RDS_UNTIL_UNREACHABLE}, {NULL, 0}};

static const struct name notices[] = {{"lost", RDS_LOST}, {"no socket", RDS_NO_SOCKET}, {"peer down", RDS_PEER_DOWN},
	{"peer up", RDS_PEER_UP}, {"gave up", RDS_GAVE_UP}, {"unreachable", RDS_UNREACHABLE}, {"not granted", RDS_NOT_GRANTED}, {NULL, 0}};

static const struct name statuses[] = {{"success", RDS_SUCCESS}, {"remote error", RDS_REMOTE_ERROR}, {"canceled", RDS_CANCELED},
	{"dropped", RDS_DROPPED}, {"other error", RDS_OTHER_ERROR}, {"unknown", RDS_UNKNOWN}, {NULL, 0}};

static inline int64_t value_of(const struct name *n, const char *text)
{
	for (; n->text; n++)
		if (!strcmp(n->text, text))
			return n->value;
	return -1;
}

static inline const char *name_of(const struct name *n, int64_t value)
{
	for (; n->text; n++)
		if (n->value == value)
			return n->text;
	return "?";
}

#endif
