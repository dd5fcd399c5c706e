package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/rdsd/rdsd/rds"
)

// worker is a client process with traffic of all kinds: datagrams to its own host and to
// another, and operations in both directions.
type worker struct {
	Socket string   // the daemon's control socket
	At     addrPort // address of its socket
	Sinks  []addrPort
	Hub    addrPort // a socket that does operations on memory whose cookie it gets
	Cookie rds.Cookie
	Size   int // of the memory, bytes
}

// runRole is the main function of a client process.
func runRole(role string) int {
	if role == roleUser {
		return userMain()
	}
	if step, ok := strings.CutPrefix(role, roleSpeaker); ok {
		return speakerMain(step)
	}
	if on, ok := strings.CutPrefix(role, roleVictim); ok {
		return victimMain(on)
	}
	if what, ok := strings.CutPrefix(role, roleAttacker); ok {
		return attackerMain(what)
	}
	if w, ok := strings.CutPrefix(role, roleReceiver); ok {
		return receiverMain(w)
	}
	var w worker
	err := json.NewDecoder(strings.NewReader(role)).Decode(&w)
	if err == nil {
		err = w.run()
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func (w *worker) run() error {
	c, err := rds.Open(context.Background(), rds.Options{Socket: w.Socket})
	if err != nil {
		return err
	}
	s, err := c.Bind(w.At)
	if err != nil {
		return err
	}
	mine, err := c.Alloc(w.Size)
	if err != nil {
		return err
	}
	reg, err := s.Register(mine, 0, w.Size, rds.AllowRead|rds.AllowWrite)
	if err != nil {
		return err
	}
	if _, err := s.Send(context.Background(), &rds.Message{Addr: w.Hub, Cookie: reg.Cookie()}); err != nil {
		return err
	}
	failed := make(chan error, 3)
	go func() { failed <- w.datagrams(s) }()
	go func() { failed <- w.operations(c, s) }()
	go func() { failed <- w.drain(s) }()
	return <-failed
}

func (w *worker) datagrams(s *rds.Socket) error {
	buf := make([]byte, 100000)
	for i := 0; ; i++ {
		if _, err := s.SendTo(buf[:i*7919%len(buf)], w.Sinks[i%len(w.Sinks)]); err != nil {
			return err
		}
	}
}

func (w *worker) operations(c *rds.Client, s *rds.Socket) error {
	local, err := c.Alloc(w.Size)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		op := &rds.RDMA{Write: true, Cookie: w.Cookie, Local: []rds.Segment{{Buf: local, Len: w.Size}}, Report: true}
		if i%2 == 1 {
			op.Write = false
		}
		id, err := s.Send(context.Background(), &rds.Message{Addr: w.Hub, Op: op, Payload: make([]byte, i%5000)})
		if err != nil {
			return err
		}
		if i == 20 {
			if _, err := s.Barrier(context.Background(), w.Hub.Addr(), id); err != nil {
				return err
			}
			fmt.Println("busy")
		}
		if i%64 == 63 {
			if _, err := s.Barrier(context.Background(), w.Hub.Addr(), id-32); err != nil {
				return err
			}
		}
	}
}

func (w *worker) drain(s *rds.Socket) error {
	for {
		if _, _, err := s.RecvFrom(nil); err != nil {
			return err
		}
	}
}
