package e2e

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rdsd/rdsd/internal/latency"
	"github.com/rdsd/rdsd/rds"
)

// victimUID is the victim's user. It has nothing in common with nobody, who attacks.
const victimUID = 65533

// roleVictim is a client process with a ping-pong within its host and one with another host. The
// role goes on with a struct parties. A line of its standard input is for how long it is to measure.
const roleVictim = "victim "

// parties are the daemons that a victim or an attacker uses, its own host's first.
type parties struct {
	Sockets [2]string   // control sockets
	Addrs   [2]addrPort // port 0
}

// trips are the round trips that began in one measurement.
type trips struct {
	P50, P99, Max time.Duration
}

// measured is what the victim says about one measurement.
type measured struct {
	Local, Remote trips
	Attach        time.Duration // the longest of Open, Bind, Alloc and Register of another Client, together
}

// pings is one of the victim's ping-pongs.
type pings struct {
	s, echo *rds.Socket

	mu       sync.Mutex
	came     *sync.Cond
	from, to time.Duration      // the trips that count begin then; guarded by mu
	all      *latency.Histogram // guarded by mu
	last     time.Duration      // when the last trip that has ended began; guarded by mu
	err      error              // guarded by mu
}

// began is the origin of the victim's times.
var began = time.Now()

func victimMain(role string) int {
	var on parties
	if err := json.Unmarshal([]byte(role), &on); err != nil {
		fmt.Println(err)
		return 1
	}
	var all [2]*pings
	for i := range all {
		var err error
		if all[i], err = newPings(on, i); err != nil {
			fmt.Println(err)
			return 1
		}
		go all[i].answers()
		go all[i].returns()
	}
	go beats(all[:])
	fmt.Println("attached")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		d, err := time.ParseDuration(in.Text())
		if err == nil {
			err = measures(on, all, d)
		}
		if err != nil {
			fmt.Println("failed", strings.ReplaceAll(err.Error(), "\n", " "))
		}
	}
	return 0
}

func newPings(on parties, there int) (p *pings, err error) {
	p = &pings{all: latency.New()}
	p.came = sync.NewCond(&p.mu)
	if p.s, err = bound(on, 0); err != nil {
		return nil, err
	}
	p.echo, err = bound(on, there)
	return p, err
}

// bound is a socket of a client of its own.
func bound(on parties, at int) (*rds.Socket, error) {
	c, err := rds.Open(context.Background(), rds.Options{Socket: on.Sockets[at]})
	if err != nil {
		return nil, err
	}
	return c.Bind(on.Addrs[at])
}

// beats begins a trip of each ping-pong every millisecond, whether the others have ended or
// not. A trip begins when it is due: what a late beat costs counts.
func beats(all []*pings) {
	b := make([]byte, 8)
	for due := time.Since(began); ; due += time.Millisecond {
		time.Sleep(due - time.Since(began))
		binary.LittleEndian.PutUint64(b, uint64(due))
		for _, p := range all {
			if _, err := p.s.SendTo(b, p.echo.LocalAddrPort()); err != nil {
				p.fails(err)
				return
			}
		}
	}
}

func (p *pings) answers() {
	b := make([]byte, 8)
	for {
		_, from, err := p.echo.RecvFrom(b)
		if err == nil {
			_, err = p.echo.SendTo(b, from)
		}
		if err != nil {
			p.fails(err)
			return
		}
	}
}

func (p *pings) returns() {
	b := make([]byte, 8)
	for {
		if _, _, err := p.s.RecvFrom(b); err != nil {
			p.fails(err)
			return
		}
		due := time.Duration(binary.LittleEndian.Uint64(b))
		took := time.Since(began) - due
		p.mu.Lock()
		if p.from <= due && due < p.to {
			p.all.Record(took)
		}
		if p.last = due; due >= p.to {
			p.came.Broadcast()
		}
		p.mu.Unlock()
	}
}

func (p *pings) fails(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errors.Join(p.err, err)
	p.came.Broadcast()
}

// begin has the trips count that begin in the next d.
func (p *pings) begin(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all.Reset()
	p.from = time.Since(began)
	p.to = p.from + d
}

// end waits until all trips that count have ended.
func (p *pings) end() (trips, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil && p.last < p.to {
		p.came.Wait()
	}
	s := p.all.Summary()
	if p.err != nil || s == nil {
		return trips{}, fmt.Errorf("the ping-pong ends: %w", p.err)
	}
	return trips{s.P50, s.P99, s.Max}, nil
}

// measures prints a line with what happens in the next d. Attaching must succeed in that time.
func measures(on parties, all [2]*pings, d time.Duration) (err error) {
	for _, p := range all {
		p.begin(d)
	}
	var m measured
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(d / 3) {
		took, err := attaches(on)
		if err != nil {
			return fmt.Errorf("attaching: %w", err)
		}
		m.Attach = max(m.Attach, took)
	}
	if m.Local, err = all[0].end(); err != nil {
		return err
	}
	if m.Remote, err = all[1].end(); err != nil {
		return err
	}
	b, err := json.Marshal(m)
	fmt.Printf("%s\n", b)
	return err
}

// attaches is what a process does that starts.
func attaches(on parties) (time.Duration, error) {
	from := time.Now()
	c, err := rds.Open(context.Background(), rds.Options{Socket: on.Sockets[0], Params: rds.Params{SendWindows: 1, RecvWindows: 1}})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	s, err := c.Bind(on.Addrs[0])
	if err != nil {
		return 0, err
	}
	b, err := c.Alloc(64 << 10)
	if err != nil {
		return 0, err
	}
	_, err = s.Register(b, 0, len(b.Bytes()), rds.AllowWrite)
	return time.Since(from), err
}
