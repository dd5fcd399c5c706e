package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	// worse is how many times as long the victim's trips may take beside an attack, at the 99th
	// percentile.
	worse = 3
	// noise is a time of which the test does not judge. An attacker may use a processor, as every process
	// may. A trip to another host waits five times for a processor: for the victim's two threads that
	// wake up, and the daemons. Each wait can be a tick of the scheduler, 4 ms.
	noise = 20 * time.Millisecond
	// stops is what the short form judges instead. The attacks took 255 ms to 1.6 s before they were
	// answered.
	stops = 250 * time.Millisecond
)

// attack is one way to harm others. The victim must not notice it.
type attack struct {
	name    string
	program string
	users   []uint32     // whose processes attack; in the next round, the users two below; nil: nobody's
	options []option     // of the victim's daemon
	setUp   func(*fight) // before the daemon starts
	during  func(*fight) // something that must succeed in each phase
	logged  []string     // warnings that the attack may provoke
}

// fight is a test of one attack.
type fight struct {
	*attack
	t       *testing.T
	here    *host
	on      parties
	metrics string
	peers   []netip.Addr
	victim  *user
}

// TestAttacked: while a process of one user does its worst, processes of another user attach, and
// their round trips, within the host and to another one, take at the 99th percentile no more than three times
// as long as without. Phases without and with the attacker follow one another, and the medians of
// all phases are compared. So what else the machine does decides less. If they are too far apart,
// there are more rounds. The short form only tells whether somebody is stopped: a loaded machine makes the rest
// a matter of luck. An attacker's user is another one in each round, so that no penalty protects the victim.
func TestAttacked(t *testing.T) {
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			if os.Getuid() != 0 {
				t.Skip("runs processes of other users: needs root")
			}
			isolatedAlone(t, func(t *testing.T) {
				f := &fight{attack: &a, t: t}
				f.begin()
				f.rounds()
			})
		})
	}
}

// begin starts two hosts and the victim.
func (f *fight) begin() {
	t := f.t
	t.Helper()
	f.metrics = addrPortOf(newAddress(t), 9464).String()
	if f.setUp != nil {
		f.setUp(f)
	}
	f.here = openToAll(t, append([]option{withArgs("-metrics-listen", f.metrics)}, f.options...)...)
	there := openToAll(t)
	for _, h := range []*host{f.here, there} {
		h.expected = append(h.expected, f.logged...)
	}
	f.on = parties{[2]string{f.here.sock, there.sock}, [2]addrPort{f.here.at(0), there.at(0)}}
	for range 17 {
		f.peers = append(f.peers, newAddress(t))
	}
	role, err := json.Marshal(f.on)
	if err != nil {
		t.Fatal(err)
	}
	f.victim = startUserAs(t, victimUID, "attached", envRole+"="+roleVictim+string(role))
	f.measures(100*time.Millisecond, func() {}) // so that it is connected
}

// phases are what the victim has measured, quiet or attacked.
type phases []measured

// p99 is the median of the 99th percentiles of a kind of trips.
func (p phases) p99(of func(*measured) trips) time.Duration {
	var all []time.Duration
	for i := range p {
		all = append(all, of(&p[i]).P99)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// rounds measures until the victim is as well beside the attacks as without, or there were
// enough rounds to say that it is not.
func (f *fight) rounds() {
	t := f.t
	t.Helper()
	least, most, phase, floor := 3, 9, 700*time.Millisecond, stops
	if long {
		least, most, phase, floor = 9, 21, 3*time.Second, noise
	}
	var quiet, attacked phases
	for round := 0; !t.Failed(); round++ {
		quiet = append(quiet, f.measures(phase, func() {}))
		all := f.attackers(round)
		attacked = append(attacked, f.measures(phase, func() { // their ends are a part of the attack
			for _, u := range all {
				u.Kill()
				if out := u.stdout(); strings.Contains(out, "failed") {
					t.Errorf("the attacker: %s", out)
				}
			}
		}))
		t.Logf("round %d: quiet %+v; attacked %+v", round, quiet[round], attacked[round])
		if round+1 < least {
			continue
		}
		bad := ""
		for what, of := range map[string]func(*measured) trips{"local": func(m *measured) trips { return m.Local }, "remote": func(m *measured) trips { return m.Remote }} {
			q, a := quiet.p99(of), attacked.p99(of)
			t.Logf("%s, %d rounds: p99 %v quiet, %v attacked: %.1f times", what, round+1, q, a, float64(a)/float64(q))
			if a > max(worse*q, floor) {
				bad += fmt.Sprintf("%s trips of another user take %v at the 99th percentile, %v without the attacker. ", what, a, q)
			}
		}
		if bad == "" {
			return
		}
		if round+1 == most {
			t.Error(bad)
		}
	}
}

// attackers starts the attackers of a round.
func (f *fight) attackers(round int) (all []*user) {
	f.t.Helper()
	uids := f.users
	if uids == nil {
		uids = []uint32{nobody}
	}
	role, err := json.Marshal(&attacker{parties: f.on, Program: f.program, Metrics: f.metrics, Peers: f.peers})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, uid := range uids {
		all = append(all, startUserAs(f.t, uid-2*uint32(round), "attacks", envRole+"="+roleAttacker+string(role)))
	}
	return all
}

// measures returns what the victim measures in the next d. In the last third of that time it calls late.
func (f *fight) measures(d time.Duration, late func()) (m measured) {
	f.t.Helper()
	from := time.Now()
	if _, err := fmt.Fprintln(f.victim.in, d); err != nil {
		f.t.Fatal(err)
	}
	if f.during != nil {
		f.during(f)
	}
	time.Sleep(time.Until(from.Add(d * 2 / 3)))
	late()
	line := f.victim.line("{")
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		f.t.Fatalf("the victim: %s", line)
	}
	return m
}

// probes asks whether the daemon lives, as often as an orchestrator does in minutes.
func (f *fight) probes() {
	f.t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	for range 10 {
		r, err := c.Get("http://" + f.metrics + "/livez")
		for i := 0; err != nil && i < 2; i++ { // an orchestrator ends a daemon after three failures
			r, err = c.Get("http://" + f.metrics + "/livez")
		}
		if err != nil {
			f.t.Errorf("three probes: %v", err)
			continue
		}
		if r.Body.Close(); r.StatusCode != http.StatusOK {
			f.t.Errorf("a probe: %s", r.Status)
		}
	}
}

// inCgroup has the daemon run in a memory cgroup of 1 GiB.
func (f *fight) inCgroup() {
	f.t.Helper()
	const limit = "1073741824"
	for mount, file := range map[string]string{"/sys/fs/cgroup": "memory.max", "/sys/fs/cgroup/memory": "memory.limit_in_bytes"} {
		dir := filepath.Join(mount, fmt.Sprintf("e2e-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		f.t.Cleanup(func() { _ = os.Remove(dir) })
		if c, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0); err == nil { // a file of the kernel's
			_, err = c.WriteString(limit)
			c.Close()
			if err == nil {
				f.options = append(f.options, under("sh", "-c", "echo $$ >"+dir+`/cgroup.procs && exec "$@"`, "sh"))
				return
			}
		}
	}
	f.t.Skip("no memory cgroup can be made here")
}

// subordinates has a daemon under which two subordinate uids are nobody's.
func (f *fight) subordinates() {
	f.t.Helper()
	file := filepath.Join(f.t.TempDir(), "subuid")
	if err := os.WriteFile(file, fmt.Appendf(nil, "%d:100000:65536\n", nobody), 0o644); err != nil {
		f.t.Fatal(err)
	}
	f.options = append(f.options, under("unshare", "--mount", "sh", "-c", "mount --bind "+file+` /etc/subuid && exec "$@"`, "sh"))
}

func (f *fight) upgrades() { f.here.upgrade() }

// attacks are tried one after the other.
var attacks = []attack{
	{name: "processors", program: "compute"},
	{name: "unread answers", program: "unread", options: []option{under("prlimit", "--nofile=700:700")}, during: (*fight).upgrades,
		logged: []string{"frame of 3 bytes", "client ended"}},
	{name: "holes", program: "holes", logged: []string{"holes"}},
	{name: "freed memory", program: "freed"},
	{name: "holes in a cgroup", program: "fill", setUp: (*fight).inCgroup, users: []uint32{60000, 60001}, logged: []string{"holes", "cgroup"}},
	{name: "metrics", program: "metrics", during: (*fight).probes},
	{name: "Hellos and upgrades", program: "hellos", during: (*fight).upgrades},
	{name: "subordinate uids", program: "places", setUp: (*fight).subordinates, users: []uint32{110000, 111000, 112000, 113000},
		options: []option{withArgs("-limits-max-clients", "32", "-limits-max-sockets", "64", "-quota-clients", "8", "-quota-sockets", "16")}},
	{name: "connects", program: "connect"},
	{name: "lanes", program: "lanes"},
	{name: "copies and upgrades", program: "copies", during: (*fight).upgrades},
	{name: "a port that refuses", program: "kept"},
	{name: "rdsctl that does not read", program: "asks"},
	{name: "logs", program: "logs", logged: []string{"client ended"}},
}
