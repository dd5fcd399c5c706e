package daemon

import (
	"math"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
)

// usersTimeout is short, because the status has to come while the engine is stuck, too.
const usersTimeout = time.Second

const nobody = math.MaxUint32 // (uid_t)-1 and (gid_t)-1 are nobody's

// Users lists what each user and each account has and may have, in no order, for rdsctl and metrics. It
// lists only those that have a process here, or of whose processes something is left.
func (b backend) Users() ([]ctl.User, error) {
	users := map[config.Account]*ctl.User{}
	quotas := map[config.Account]config.Quota{}
	of := func(a config.Account) *ctl.User {
		if users[a] == nil {
			u, uid := &ctl.User{Account: a.Label}, uint32(nobody)
			if a.Label == "" {
				uid = a.UID
				u.UID = &uid
			}
			users[a], quotas[a] = u, b.d.policy.Load().Quota(a, uid, nobody)
		}
		return users[a]
	}
	uses, err := b.d.engine.Inspect(func(f func()) error { return b.d.loop.askFor(usersTimeout, f) }).Users()
	if err != nil {
		return nil, err
	}
	for a, has := range uses {
		u := of(a)
		quotas[a] = has.Quota
		u.Sockets.Used, u.Destinations.Used, u.Operations.Used = uint64(has.Sockets), uint64(has.Destinations), uint64(has.Operations)
		u.Grants.Used = uint64(has.Grants)
		u.Waiting, u.HeldBytes = uint64(has.Waiting), uint64(has.HeldBytes)
	}
	for a, t := range b.d.engine.Memory().OfUsers() {
		of(a).RegisteredBytes.Used, of(a).QueuedBytes.Used = t.Registered, t.Shared
	}
	for a, n := range b.d.admission.clientsOf() {
		of(a).Clients.Used = uint64(n)
	}
	for a, n := range b.d.unreceived.ofUsers() {
		of(a).Unreceived = n
	}
	out := make([]ctl.User, 0, len(users))
	for a, u := range users {
		q := quotas[a]
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
