package main

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/rdsd/rdsd/examples/link"
	"github.com/rdsd/rdsd/verbs"
)

// control is the connection of the set-up exchange. The sides send one message each in
// turn, the client first.
type control struct {
	config
	*link.Link
	cycle int // bytes of the cycle buffer: the larger of both sides' sizes
}

const (
	outOff     = 0
	inOff      = keysLen
	controlMem = 2 * keysLen
)

func (e *end) newControl() (*control, error) {
	l, err := e.newLink(controlMem, 4, 0)
	if err != nil {
		return nil, err
	}
	return &control{config: e.config, Link: l}, l.PostRecv(inOff, keysLen)
}

// exchange sends a message and returns the peer's, of the same length.
func (c *control) exchange(out []byte) ([]byte, error) {
	if c.isClient {
		if err := c.sendMsg(out); err != nil {
			return nil, err
		}
		return c.recvMsg(len(out))
	}
	in, err := c.recvMsg(len(out))
	if err != nil {
		return nil, err
	}
	return in, c.sendMsg(out)
}

func (c *control) sendMsg(b []byte) error {
	copy(c.Mem[outOff:], b)
	return c.Do(verbs.SendWR{WRID: idSend, Op: verbs.OpSend, SGL: c.SGE(outOff, len(b))})
}

func (c *control) recvMsg(want int) ([]byte, error) {
	if err := c.Take(idRecv); err != nil {
		return nil, err
	}
	if int(c.N) != want {
		return nil, fmt.Errorf("peer sent %d bytes, want %d", c.N, want)
	}
	b := append([]byte(nil), c.Mem[inOff:inOff+want]...)
	return b, c.PostRecv(inOff, keysLen)
}

// hello exchanges and checks version, cycle buffer, cache line and MTU.
func (c *control) hello() error {
	text := make([]byte, versionLen)
	copy(text, version)
	b, err := c.exchange(text)
	if err != nil {
		return err
	}
	if err := checkVersion(b); err != nil {
		return err
	}
	if b, err = c.exchange(binary.BigEndian.AppendUint32(nil, cycle)); err != nil {
		return err
	}
	if c.cycle, err = checkCycle(b); err != nil {
		return err
	}
	if _, err = c.exchange(binary.BigEndian.AppendUint32(nil, cacheLine)); err != nil {
		return err
	}
	_, err = c.exchange([]byte{mtu[0], 0})
	return err
}

// meet exchanges keys. Some meetings only make sure that both sides are at the same point.
func (c *control) meet(k keys) (keys, error) {
	out := make([]byte, keysLen)
	k.put(out)
	b, err := c.exchange(out)
	if err != nil {
		return keys{}, err
	}
	return parseKeys(b), nil
}

// report exchanges the results: rate in MiB/s and messages in million per second. The
// server's numbers mean nothing. report returns the peer's rate, which the server prints.
func (c *control) report(size, iters int, rate, messages float64) (float64, error) {
	var theirs uint64
	for i, x := range []uint64{uint64(size), uint64(iters), math.Float64bits(rate), math.Float64bits(rate), math.Float64bits(messages)} {
		b, err := c.exchange(binary.BigEndian.AppendUint64(nil, x))
		if err != nil {
			return 0, err
		}
		if i == 3 {
			theirs = binary.BigEndian.Uint64(b)
		}
	}
	return math.Float64frombits(theirs), nil
}
