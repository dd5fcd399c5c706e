"""Makes the module rds._rds of librds. Its declarations are those of the headers in RDS_INCLUDE, and librds.a
in RDS_LIBRDS is linked in; setup.py says where both are looked for."""
import os
import re
from pathlib import Path

import cffi

here = Path(__file__).resolve().parent
include = Path(os.environ.get("RDS_INCLUDE", here.parent / "librds" / "include"))
library = Path(os.environ.get("RDS_LIBRDS", here.parent / "bin" / "librds")) / "librds.a"


def declarations() -> str:
    """The headers without what is for the preprocessor. cffi asks the compiler for the constants."""
    texts, constants = [], []
    for name in ("types", "op", "wait", "again", "rds"):
        text = (include / "rds" / f"{name}.h").read_text()
        text = re.sub(r"#ifdef __cplusplus.*?#endif", "", text, flags=re.DOTALL)
        constants += re.findall(r"^#define (RDS_\w+) [\d(]", text, flags=re.MULTILINE)
        texts.append(re.sub(r"^#.*$", "", text, flags=re.MULTILINE).replace("RDS_API ", ""))
    return "\n".join([SYSTEM, *(f"#define {c} ..." for c in constants), *texts, FUNCTIONS])


SYSTEM = """
typedef unsigned int socklen_t;
struct iovec { void *iov_base; size_t iov_len; };
struct sockaddr { ...; };
struct sockaddr_storage { ...; };
"""

GOT = """
struct rdspy_got {
    uint8_t ip[16];
    uint16_t port, unused;
    uint32_t src_inc, off, end, len, assembly_ns;
    uint64_t cookie;
    int64_t time_ns;
    char traceparent[56];
};
"""

FUNCTIONS = GOT + """
ssize_t rdspy_recv(rds_socket *s, void *mem, size_t size, size_t least, struct rdspy_got *got, size_t count, unsigned flags);
ssize_t rdspy_send(rds_socket *s, const char *data, const uint32_t *lens, size_t len, size_t count, const struct rds_addr *to, unsigned flags);
"""

# A call for each message from Python would cost more than the message.
SOURCE = r"""
#include <errno.h>
#include <string.h>
#include <rds/rds.h>

""" + GOT + r"""
/* rdspy_recv receives what is there, one message behind the other, up to count and as long as least bytes of mem are
 * left. Only the first one waits. It returns how many. */
static ssize_t rdspy_recv(rds_socket *s, void *mem, size_t size, size_t least, struct rdspy_got *got, size_t count, unsigned flags)
{
    size_t i = 0, used = 0;
    for (; i < count && (i == 0 || size - used >= least); i++) {
        struct iovec iov = {(char *)mem + used, size - used};
        struct rds_msg m = {.iov = &iov, .iovlen = 1, .flags = i ? flags | RDS_DONTWAIT : flags, .traceparent = got[i].traceparent};
        int err = rds_recvmsg(s, &m);
        if (err)
            return i ? (ssize_t)i : err;
        struct rdspy_got *g = &got[i];
        memcpy(g->ip, m.addr.ip, sizeof g->ip);
        g->port = m.addr.port;
        g->src_inc = m.src_inc;
        g->off = (uint32_t)used;
        used += m.n;
        g->end = (uint32_t)used;
        g->len = (uint32_t)m.len;
        g->cookie = m.cookie;
        g->time_ns = m.time_ns;
        g->assembly_ns = m.assembly_ns;
    }
    return (ssize_t)i;
}

/* rdspy_send sends count messages that lie one behind the other in data, of lens[i] bytes or each of len. It returns
 * how many it queued, or the error of the first. */
static ssize_t rdspy_send(rds_socket *s, const char *data, const uint32_t *lens, size_t len, size_t count, const struct rds_addr *to, unsigned flags)
{
    struct rds_msg m[64];
    struct iovec iov[64];
    size_t sent = 0;
    memset(m, 0, sizeof m);
    while (sent < count) {
        size_t n = count - sent < 64 ? count - sent : 64;
        const char *at = data;
        for (size_t i = 0; i < n; i++) {
            iov[i] = (struct iovec){(char *)at, lens ? lens[sent + i] : len};
            at += iov[i].iov_len;
            if (to)
                m[i].addr = *to;
            m[i].iov = &iov[i];
            m[i].iovlen = 1;
            m[i].flags = flags;
        }
        ssize_t did = rds_sendmsgs(s, m, n);
        if (did < 0)
            return sent ? (ssize_t)sent : did;
        sent += (size_t)did;
        if ((size_t)did < n)
            break;
        data = at;
    }
    return (ssize_t)sent;
}
"""

ffi = cffi.FFI()
ffi.cdef(declarations())
ffi.set_source("rds._rds", SOURCE, include_dirs=[str(include)], extra_objects=[str(library)], extra_compile_args=["-std=gnu11"], libraries=["pthread"])
