package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rds"
)

// holdings are what a daemon has of its clients.
type holdings struct {
	clients, sockets, regions, registered, shared, held, messages, ops uint64
	resources
}

// holdings returns what the daemon has now.
func (h *host) holdings() holdings {
	h.published()
	r := resourcesOf(h.pid())
	return holdings{h.gauge(stats.Clients), h.gauge(stats.Sockets), h.gauge(stats.Regions), h.gauge(stats.RegisteredBytes),
		h.gauge(stats.SharedBytes), h.gauge(stats.HeldBytes), h.gauge(stats.QueuedMessages), h.gauge(stats.OpsOutstanding), r}
}

// hub does operations on the memory of every socket that sends it a cookie.
type hub struct {
	t     *testing.T
	c     *rds.Client
	s     *rds.Socket
	local *rds.Buffer
	wg    sync.WaitGroup

	mu   sync.Mutex
	sums map[rds.Status]int // guarded by mu
}

func newHub(t *testing.T, c *rds.Client, s *rds.Socket, size int) *hub {
	t.Helper()
	b, err := c.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	h := &hub{t: t, c: c, s: s, local: b, sums: map[rds.Status]int{}}
	h.wg.Go(h.run)
	return h
}

func (h *hub) run() {
	ctx := context.Background()
	for {
		m := rds.Received{}
		if err := h.s.Recv(context.Background(), &m); err != nil {
			if !errors.Is(err, rds.ErrClosed) {
				h.t.Errorf("hub: %v", err)
			}
			return
		}
		if m.Cookie == 0 {
			continue
		}
		h.wg.Go(func() { h.use(ctx, m.Addr, m.Cookie) })
	}
}

// use reads and writes until the owner of the memory has ended.
func (h *hub) use(ctx context.Context, to addrPort, cookie rds.Cookie) {
	for i := 0; ; i++ {
		op := &rds.RDMA{Write: true, Cookie: cookie, Local: []rds.Segment{{Buf: h.local, Len: len(h.local.Bytes())}}, Notify: true}
		if i%2 == 0 {
			op.Write = false
		}
		id, err := h.s.Send(context.Background(), &rds.Message{Addr: to, Op: op})
		if err != nil {
			if !errors.Is(err, rds.ErrClosed) {
				h.t.Errorf("hub: %v", err)
			}
			return
		}
		c, err := h.s.WaitOp(ctx, to.Addr(), id)
		if err != nil {
			if !errors.Is(err, rds.ErrClosed) {
				h.t.Errorf("hub: %v", err)
			}
			return
		}
		h.mu.Lock()
		h.sums[c.Status]++
		h.mu.Unlock()
		if c.Status != rds.Success {
			return
		}
	}
}

// TestClientKilled kills clients at random moments, with operations in progress in both
// directions.
func TestClientKilled(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		here, there := hosts[0], hosts[1]
		const size = 300 << 10

		// Others go on throughout: datagrams and operations.
		l := startLoad(t, here, there, 5000)
		l.progress(100)
		ch, ct := here.open(), there.open()
		sinks := []*rds.Socket{here.bind(ch, 6000), there.bind(ct, 6000)}
		hubSock := there.bind(ct, 6001)
		hb := newHub(t, ct, hubSock, size)
		mem := newTarget(t, ct, hubSock, size, rds.AllowRead|rds.AllowWrite).expose(t, here.at(0))
		var drained sync.WaitGroup
		for _, s := range sinks {
			drained.Go(func() { newAudit().drop(s) })
		}
		role, err := json.Marshal(worker{Socket: here.sock, At: here.at(7000), Size: size, Cookie: mem.reg.Cookie(),
			Sinks: []addrPort{sinks[0].LocalAddrPort(), sinks[1].LocalAddrPort()}, Hub: hubSock.LocalAddrPort()})
		if err != nil {
			t.Fatal(err)
		}
		rounds := 25
		if long {
			rounds = 1000
		}
		rng := rand.New(rand.NewPCG(11, 13))
		base := here.holdings()
		probe := here.open()
		base.clients++
		base.shared = here.sharedOf(base.shared)
		for round := range rounds {
			w := startProcess(t, []string{envRole + "=" + string(role)}, os.Args[0])
			if round%3 > 0 {
				w.saw("busy")
			}
			// The moment is random. This does not wait for anything.
			time.Sleep(time.Duration(rng.IntN(30_000)) * time.Microsecond)
			w.Kill()
			if s := w.log(); s != "" {
				t.Fatalf("worker: %s", s)
			}
			// The port must be free as soon as the daemon can know of the end.
			eventually(t, "bind", func() error {
				s, err := probe.Bind(here.at(7000))
				if err == nil {
					err = s.Close()
				}
				return err
			})
		}
		eventually(t, "holdings", func() error {
			now := here.holdings()
			if now.clients != base.clients || now.sockets != base.sockets || now.regions != base.regions ||
				now.registered != base.registered || now.shared != base.shared {
				return fmt.Errorf("%+v, at first %+v", now, base)
			}
			return nil
		})
		l.progress(100)
		neverReset(t, hosts...)
		hb.mu.Lock()
		t.Logf("the hub's operations: %v", hb.sums)
		if hb.sums[rds.Success] == 0 || hb.sums[rds.Unknown] > 0 {
			t.Errorf("the hub's operations: %v", hb.sums)
		}
		hb.mu.Unlock()
		l.finish()
		l.ops.onlySuccess(t)
		l.audit.all(t, l.socks[0], l.socks[1])
		ch.Close()
		ct.Close()
		drained.Wait()
		hb.wg.Wait()
		if strings.Contains(here.log(), "broke the rules") {
			t.Error("a killed client is no rule breaker")
		}
	})
}

// sharedOf waits until the daemon counts the shared memory of one more client.
func (h *host) sharedOf(before uint64) (now uint64) {
	eventually(h.t, "shared memory", func() error {
		if now = h.gauge(stats.SharedBytes); now <= before {
			return fmt.Errorf("%d bytes, before %d", now, before)
		}
		return nil
	})
	return now
}
