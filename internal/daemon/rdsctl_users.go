package daemon

import (
	"math"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
)

// usersTimeout is short, because the status has to come while the engine is stuck, too.
const usersTimeout = time.Second

const noGroup = math.MaxUint32 // (gid_t)-1 is nobody's

// Users lists what each user has and may have, in no order, for rdsctl and metrics. It
// lists only users who have a process here, or of whose processes something is left.
func (b backend) Users() ([]ctl.User, error) {
	users := map[uint32]*ctl.User{}
	quotas := map[uint32]config.Quota{}
	of := func(uid uint32) *ctl.User {
		if users[uid] == nil {
			users[uid] = &ctl.User{UID: uid}
			quotas[uid] = b.d.policy.Load().Quota(uid, noGroup)
		}
		return users[uid]
	}
	uses, err := b.d.engine.Inspect(func(f func()) error { return b.d.loop.askFor(usersTimeout, f) }).Users()
	if err != nil {
		return nil, err
	}
	for uid, a := range uses {
		u := of(uid)
		quotas[uid] = a.Quota
		u.Sockets.Used, u.Destinations.Used, u.Operations.Used = uint64(a.Sockets), uint64(a.Destinations), uint64(a.Operations)
		u.Grants.Used = uint64(a.Grants)
		u.Waiting, u.HeldBytes = uint64(a.Waiting), uint64(a.HeldBytes)
	}
	for uid, t := range b.d.engine.Memory().OfUsers() {
		of(uid).RegisteredBytes.Used, of(uid).QueuedBytes.Used = t.Registered, t.Shared
	}
	for uid, n := range b.d.admission.clientsOf() {
		of(uid).Clients.Used = uint64(n)
	}
	for uid, n := range b.d.unreceived.ofUsers() {
		of(uid).Unreceived = n
	}
	out := make([]ctl.User, 0, len(users))
	for uid, u := range users {
		q := quotas[uid]
		for r, to := range [config.NumResources]*ctl.Usage{config.Clients: &u.Clients, config.Sockets: &u.Sockets,
			config.Destinations: &u.Destinations, config.Operations: &u.Operations, config.Grants: &u.Grants,
			config.RegisteredBytes: &u.RegisteredBytes, config.QueuedBytes: &u.QueuedBytes} {
			if n := q[r]; n != config.Unlimited {
				to.Quota = &n
			}
		}
		out = append(out, *u)
	}
	return out, nil
}
