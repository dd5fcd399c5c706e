package sim

import (
	"errors"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

// ownerUID is whom the daemons run as; processes of others have quotas.
const ownerUID = 500

// policy is what users may have on the hosts of a run.
func (o *options) policy() *config.Policy {
	q := config.NoQuota()
	if o.quotaOps > 0 {
		q[config.Operations] = uint64(o.quotaOps)
	}
	if o.quotaBytes > 0 {
		q[config.RegisteredBytes] = uint64(o.quotaBytes)
	}
	return &config.Policy{Quotas: config.Quotas{User: q}, Owner: ownerUID}
}

// cred is whom the nth process of a host runs as.
func (o *options) cred(n int) ipc.Cred {
	if o.users == 0 {
		return ipc.Cred{}
	}
	uid := uint32(1000 + n%o.users)
	return ipc.Cred{UID: uid, GID: uid}
}

// alloc makes a Buffer; nil: the quota forbids it.
func (c *client) alloc(n int) *memory {
	buf, err := c.c.Alloc(n)
	have := 0
	for _, o := range c.h.clients {
		if o.uid == c.uid {
			for _, m := range o.mem {
				have += len(m.b)
			}
		}
	}
	limited := c.h.w.opt.quotaBytes > 0 && c.uid != 0
	switch {
	case err == nil && limited && have+n > c.h.w.opt.quotaBytes:
		broken("quota", "uid %d has %d registered bytes and got %d more, its quota is %d", c.uid, have, n, c.h.w.opt.quotaBytes)
	case errors.Is(err, unix.ENOBUFS) && limited:
		c.full = true
		return nil
	}
	must(err)
	m := &memory{buf: buf, b: buf.Bytes()}
	c.mem = append(c.mem, m)
	return m
}
