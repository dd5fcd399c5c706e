package sim

import (
	"errors"
	"net/netip"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

// ownerUID is the user that the daemons run as. Processes of other users have quotas.
const ownerUID = 500

// policy returns the quotas of a run.
func (o *options) policy() *config.Policy {
	q := config.NoQuota()
	if o.quotaOps > 0 {
		q[config.Operations] = uint64(o.quotaOps)
	}
	if o.quotaBytes > 0 {
		q[config.RegisteredBytes] = uint64(o.quotaBytes)
	}
	if o.quotaGrants > 0 {
		q[config.Grants] = uint64(o.quotaGrants)
	}
	return &config.Policy{Quotas: config.Quotas{User: q}, Owner: ownerUID}
}

// scarce reports whether a grant can be refused because a table or a quota is full.
func (o *options) scarce() bool { return o.maxGrants+o.quotaGrants > 0 }

// checkTables checks that the grants between h and each peer fit into the table, and that no
// user has more than half of them.
func (h *host) checkTables() {
	limit := h.tableSize()
	if limit == 0 {
		return
	}
	engine.EachTable(h.e, func(remote netip.Addr, given, most, known int) {
		if given > limit || known > limit || most > (limit+1)/2 {
			broken("quota", "host %d and %v: %d grants of ours, %d of one user, %d known of its, a table has %d", h.n, remote, given, most, known, limit)
		}
	})
}

// mayRefuse checks that c's daemon has a reason to refuse a grant to a socket at to. It has to
// be called when the refusal comes.
func (c *client) mayRefuse(to netip.Addr) {
	o := &c.h.w.opt
	there, all := c.at.GrantsOf(c.h.addr, to)
	given := 0
	engine.EachTable(c.h.e, func(remote netip.Addr, n, _, _ int) {
		if remote == to {
			given = n
		}
	})
	trusted := c.uid == 0
	switch free := c.h.tableSize() - given; {
	case o.quotaGrants > 0 && all >= o.quotaGrants && !trusted:
	case o.maxGrants > 0 && to != c.h.addr && (free <= 0 || there >= free && !trusted):
	default:
		broken("quota", "uid %d of host %d was refused a grant to %v, with %d there of %d, of a table of %d, and %d in all of %d",
			c.uid, c.h.n, to, there, given, o.maxGrants, all, o.quotaGrants)
	}
}

// cred returns the user that the nth process of a host runs as.
func (o *options) cred(n int) ipc.Cred {
	if o.users == 0 {
		return ipc.Cred{}
	}
	uid := uint32(1000 + n%o.users)
	return ipc.Cred{UID: uid, GID: uid}
}

// alloc allocates a Buffer, or returns nil if the quota forbids it.
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
