package metrics

import (
	"math"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/lists"
)

// MaxUsers bounds the users and accounts with series of their own. The others, the last in the order of
// ctl.ByUser, are added up as uid="other", without quotas.
const MaxUsers = 32

// userResources are the values of the label resource.
var userResources = []struct {
	name string
	get  func(*ctl.User) ctl.Usage
}{
	{"clients", func(u *ctl.User) ctl.Usage { return u.Clients }},
	{"sockets", func(u *ctl.User) ctl.Usage { return u.Sockets }},
	{"destinations", func(u *ctl.User) ctl.Usage { return u.Destinations }},
	{"operations", func(u *ctl.User) ctl.Usage { return u.Operations }},
	{"grants", func(u *ctl.User) ctl.Usage { return u.Grants }},
	{"registered_bytes", func(u *ctl.User) ctl.Usage { return u.RegisteredBytes }},
	{"queued_bytes", func(u *ctl.User) ctl.Usage { return u.QueuedBytes }},
	{"unreceived_descriptors", func(u *ctl.User) ctl.Usage { return u.Unreceived }},
}

// collectUsers sends the users' series. It returns how many users have no series of their
// own.
func collectUsers(ch chan<- prometheus.Metric, users []ctl.User) (truncated int) {
	users = slices.Clone(users)
	lists.Sort(users, ctl.ByUser)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	own := min(len(users), MaxUsers)
	for _, r := range userResources {
		var others uint64
		for i := range users {
			usage := r.get(&users[i])
			if i >= own {
				others += usage.Used
				continue
			}
			uid, quota := "", math.Inf(1)
			if n := users[i].UID; n != nil {
				uid = strconv.FormatUint(uint64(*n), 10)
			}
			if usage.Quota != nil {
				quota = float64(*usage.Quota)
			}
			gauge(usedDesc, float64(usage.Used), uid, users[i].Account, r.name)
			gauge(quotaDesc, quota, uid, users[i].Account, r.name)
		}
		if own < len(users) {
			gauge(usedDesc, float64(others), "other", "", r.name)
		}
	}
	return len(users) - own
}
