/* Errors in words. */
#include <inttypes.h>
#include <stdio.h>

#include "int.h"

static _Thread_local char refusal[512];
static _Thread_local char outcome[256];

void rdsi_refused(const char *text, size_t len)
{
	snprintf(refusal, sizeof refusal, "%.*s", (int)len, text);
}

const char *rds_refusal(void) { return refusal; }

/* What the errors of this library mean. Those of the kernel that pass through it have the C
 * library's texts. */
static const struct { int err; const char *text; } texts[] = {
	{0, "success"},
	{EAGAIN, "nothing to receive, or the send buffer, message ids or send memory are full: wait with rds_wait"},
	{ENOBUFS, "the destination is congested, a quota or limit of the daemon is reached, or Linux kernels overran the socket"},
	{ENOSPC, "no room for one more completion or zero-copy cookie: take some"},
	{EMLINK, "too many destinations are in use: wait for some, or use another client"},
	{EMSGSIZE, "longer than the send buffer, than 1 MiB, or than the operation may be"},
	{ENOTCONN, "no destination: name one, or call rds_connect"},
	{EDESTADDRREQ, "the unspecified address is no destination"},
	{EOPNOTSUPP, "an address of another family, a cookie for a host that is reached by RDS/TCP, or a daemon too old for the request"},
	{EINVAL, "an argument that no daemon accepts: an address, a range, rights, an operation, an option's value, or an id that was not issued"},
	{EFAULT, "the local memory of an atomic is not 8 bytes at a multiple of 8, or the memory is not mapped"},
	{EBADF, "the socket, buffer, region or client was closed"},
	{EALREADY, "the borrowed datagram was returned before"},
	{EBUSY, "messages, operations or regions use it: wait for their end"},
	{ESTALE, "the handle is of the process before a fork: open and bind in this one"},
	{ECONNRESET, "the RDS daemon is gone: rds_reopen attaches to the next one"},
	{ECONNABORTED, "the session has ended, rds_client_error has the reason"},
	{ENOENT, "no RDS daemon answers: start rdsd, or name its control socket in rds_options.path or RDSD_SOCKET"},
	{EPROTONOSUPPORT, "the library and the daemon are of versions that do not match: upgrade both"},
	{EPROTO, "what answers at the control socket does not speak the daemon's protocol"},
	{EUSERS, "the daemon has as many processes as it takes (limits.max_clients, quota.clients)"},
	{ESHUTDOWN, "the daemon is drained: it takes no new sockets"},
	{EADDRINUSE, "another socket has the port"},
	{EADDRNOTAVAIL, "the address is not one of the daemon's (setting listen)"},
	{EACCES, "forbidden by the mode of the control socket, the bind policy, or peers.allow"},
	{ETIMEDOUT, "the time limit of the call has passed"},
	{EINTR, "a signal handler has run: call again"},
	{EHOSTDOWN, "the host does not answer"},
	{EPERM, "the host's daemon rejects this host, or the seals and pages of imported memory"},
	{EHOSTUNREACH, "no way leads to the host"},
	{ECONNREFUSED, "no RDS daemon listens on the host, or a close has found messages for which there was no socket: see rds_refusal"},
	{ENOPROTOOPT, "no such option"},
	{EIO, "the operation failed at the target or locally: rds_completion_text says why"},
	{ECANCELED, "the operation was withdrawn, or rds_wake ended the wait"},
	{EPIPE, "a message was not delivered and never will be: send it again"},
	{ETIME, "the outcome of the operation is not known and never will be"},
};

/* The same of outcomes, of package rds. */
static const struct { uint32_t status; int err; const char *text; } outcomes[] = {
#define OUTCOME(status, err, text) {status, err, text},
	RDS_OUTCOMES(OUTCOME)
};

static const char *outcome_text(uint32_t status, int err)
{
	for (size_t i = 0; i < sizeof outcomes / sizeof *outcomes; i++)
		if (outcomes[i].status == status && outcomes[i].err == err)
			return outcomes[i].text;
	return NULL;
}

const char *rds_completion_text(const struct rds_completion *completion)
{
	const char *text = outcome_text(completion->status, completion->err);
	if (text)
		return text;
	text = outcome_text(completion->status, 0);
	if (!text)
		return "a status that this library does not know";
	snprintf(outcome, sizeof outcome, "%s: %s", text, strerror(completion->err));
	return outcome;
}

static const char *kind_text(uint32_t kind)
{
	switch (kind) {
#define KIND(kind, text) case kind: return text;
	RDS_UNDELIVERED(KIND)
	}
	return "";
}

void rdsi_not_delivered(const struct rds_notice *n)
{
	char to[RDS_ADDR_TEXT] = "several destinations";
	if (!rdsi_no_addr(&n->to))
		rds_addr_format(&n->to, to, sizeof to);
	snprintf(refusal, sizeof refusal, "not delivered to %s: %s (messages: %" PRIu64 ")", to, kind_text(n->kind), n->count);
}

void rdsi_failed(const struct rds_completion *c)
{
	char to[RDS_ADDR_TEXT];
	rds_addr_format(&c->to, to, sizeof to);
	bool v6 = to[0] == '[';
	to[strlen(to) - (v6 ? 3 : 2)] = 0; /* the port, :0 */
	snprintf(refusal, sizeof refusal, "not delivered to %s: %s %" PRIu64 ": outcome: %s", to + v6, c->id ? "operation" : "message with token",
		 c->id ? c->id : c->token, rds_completion_text(c));
}

const char *rds_error_text(int err)
{
	int n = err < 0 ? -err : err;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		if (texts[i].err == n)
			return texts[i].text;
	return strerror(n);
}
