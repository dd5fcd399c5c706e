package main

import (
	"context"
	"fmt"

	"github.com/rdsd/rdsd/bench/worker"
	"github.com/rdsd/rdsd/rds"
)

// rdmaWindow is how many operations are in progress at a time.
const rdmaWindow = 8

// rdmaTarget registers a region and sends its cookie to every socket that asks for it. Then it
// receives the messages that operations come with.
func rdmaTarget(w *worker.Worker) error {
	c, s, err := attachOne(w)
	if err != nil {
		return err
	}
	defer c.Close()
	n := w.Int("footprint") << 20
	buf, err := c.Alloc(n)
	if err != nil {
		return err
	}
	fill(buf.Bytes())
	reg, err := s.Register(buf, 0, n, rds.AllowRead|rds.AllowWrite)
	if err != nil {
		return err
	}
	ms := messages(sendBatch, 8)
	if err := s.RecvMsg(&ms[0]); err != nil {
		return err
	}
	if _, err := s.SendMsg(&rds.Message{Addr: ms[0].Addr, Cookie: reg.Cookie()}); err != nil {
		return err
	}
	return w.Serve(func() error {
		for {
			n, err := s.RecvMsgs(ms)
			if err != nil {
				return err
			}
			w.Msgs.Add(uint64(n))
		}
	})
}

func fill(b []byte) {
	for i := range b {
		b[i] = byte(i)
	}
}

// initiator returns the client of an rdmaTarget, with a region of its own.
func initiator(w *worker.Worker) (c *rds.Client, s *rds.Socket, local rds.Segment, remote rds.Cookie, err error) {
	if c, s, err = attachOne(w); err != nil {
		return
	}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	local.Len = w.Int("size")
	if local.Buf, err = c.Alloc(w.Int("footprint") << 20); err != nil {
		return
	}
	fill(local.Buf.Bytes())
	if _, err = s.Send(nil); err != nil {
		return
	}
	var hello rds.Message
	err = s.RecvMsg(&hello)
	return c, s, local, hello.Cookie, err
}

func rdmaWrite(w *worker.Worker) error { return rdmaBulk(w, rds.Write, w.Count) }
func rdmaRead(w *worker.Worker) error  { return rdmaBulk(w, rds.Read, w.Count) }

// rdmaReadOn reads until its input ends.
func rdmaReadOn(w *worker.Worker) error { return rdmaBulk(w, rds.Read, w.Serve) }

// rdmaBulk walks through the regions at both ends with operations of size bytes. It counts
// operations with status SUCCESS: the peer has acknowledged them.
func rdmaBulk(w *worker.Worker, kind rds.OpKind, run func(func() error) error) error {
	c, s, seg, remote, err := initiator(w)
	if err != nil {
		return err
	}
	defer c.Close()
	local := []rds.Segment{seg}
	op := rds.RDMA{Kind: kind, Cookie: remote, Local: local, Notify: true}
	m := rds.Message{Op: &op}
	done := make([]rds.Completion, rdmaWindow)
	n := seg.Buf.Len()
	return run(func() error {
		inFlight, off := 0, 0
		for {
			for ; inFlight < rdmaWindow; inFlight++ {
				local[0].Off, op.RemoteOff = off, uint64(off)
				if _, err := s.SendMsg(&m); err != nil {
					return err
				}
				off = (off + seg.Len) % n
			}
			if _, err := s.Wait(context.Background(), rds.WaitSet{Completion: true}); err != nil {
				return err
			}
			k := s.Completions(done)
			if err := firstError(done[:k]); err != nil {
				return err
			}
			inFlight -= k
			w.Msgs.Add(uint64(k))
		}
	})
}

func rdmaWriteTrip(w *worker.Worker) error { return rdmaTrips(w, rds.Write) }
func rdmaReadTrip(w *worker.Worker) error  { return rdmaTrips(w, rds.Read) }

// rdmaTrips runs one operation at a time and measures the time until its status is known. The
// operations are silent: no application at the target gets a message.
func rdmaTrips(w *worker.Worker, kind rds.OpKind) error {
	c, s, seg, remote, err := initiator(w)
	if err != nil {
		return err
	}
	defer c.Close()
	op := rds.RDMA{Kind: kind, Cookie: remote, Local: []rds.Segment{seg}, Notify: true, Silent: true}
	m := rds.Message{Op: &op}
	var done [1]rds.Completion
	return w.Trips(1, func() error {
		if _, err := s.SendMsg(&m); err != nil {
			return err
		}
		if _, err := s.Wait(context.Background(), rds.WaitSet{Completion: true}); err != nil {
			return err
		}
		return firstError(done[:s.Completions(done[:])])
	})
}

func firstError(cs []rds.Completion) error {
	for _, c := range cs {
		if err := c.Err(); err != nil {
			return fmt.Errorf("operation %d: %w", c.ID, err)
		}
	}
	return nil
}
