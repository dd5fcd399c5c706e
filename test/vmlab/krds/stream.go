package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// A stream is what one socket sends to another: a first mark, -n messages, and a last mark. The
// marks have the stream's seed and the number of messages. The lengths of the messages follow
// from -sizes, which sender and receiver share, and the bytes from the seed. So the receiver
// knows every byte of each message. It fails if a message is missing, changed, or at the wrong
// socket, or comes twice or late.
//
// With -lossy messages may be missing, so that a daemon can be restarted during a stream. Each
// message then has at least 24 bytes and begins with seed and number. Its length is not checked.
const (
	magicFirst = "rdsstrm1"
	magicLast  = "rdsstrmE"
	markLen    = 32
	numberLen  = 24

	goodbye = "goodbye"        // from a sender that has received the receiver's answer
	byeWait = 10 * time.Second // how long the receiver waits for each goodbye
)

// content fills b with the content of message n of a stream. It differs by place, number and seed.
func content(b []byte, seed uint64, n int) {
	x := (seed+1)*0x9e3779b97f4a7c15 ^ uint64(n+1)*0xbf58476d1ce4e5b9
	for len(b) >= 8 {
		x = x*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(b, x)
		b = b[8:]
	}
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
}

// mark returns the first or the last message of a stream of n messages.
func mark(magic string, seed uint64, n int, lossy bool) []byte {
	b := append(make([]byte, 0, markLen), magic...)
	b = binary.BigEndian.AppendUint64(b, seed)
	b = binary.BigEndian.AppendUint64(b, uint64(n))
	flags := uint64(0)
	if lossy {
		flags = 1
	}
	return binary.BigEndian.AppendUint64(b, flags)
}

// message fills b with message i of a stream.
func message(b []byte, seed uint64, i int, lossy bool) {
	if !lossy {
		content(b, seed, i)
		return
	}
	binary.BigEndian.PutUint64(b, seed)
	binary.BigEndian.PutUint64(b[8:], uint64(i))
	binary.BigEndian.PutUint64(b[16:], ^seed)
	content(b[numberLen:], seed, i)
}

// send sends a stream from each of -sockets sockets.
func send(c *config) error {
	var wg sync.WaitGroup
	errs := make([]error, c.sockets)
	start := time.Now()
	for k := range c.sockets {
		from := c.from.AddrPort
		if from.Port() != 0 {
			from = netip.AddrPortFrom(from.Addr(), from.Port()+uint16(k))
		}
		wg.Go(func() { errs[k] = c.sendStream(from, c.seed+uint64(k)) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "sent %d streams of %d messages in %v\n", c.sockets, c.n, time.Since(start).Round(time.Millisecond))
	return nil
}

// sendStream sends one stream and waits for the receiver's answer.
func (c *config) sendStream(from netip.AddrPort, seed uint64) error {
	s, err := c.open(from)
	if err != nil {
		return err
	}
	defer s.close()
	to := sockaddr(c.to.AddrPort)
	if err := c.sendTo(s, mark(magicFirst, seed, c.n, c.lossy), to); err != nil {
		return err
	}
	buf := make([]byte, maxMessage)
	for i := range c.n {
		n := c.sizes[i%len(c.sizes)]
		if c.lossy {
			n = max(n, numberLen)
		}
		message(buf[:n], seed, i, c.lossy)
		if err := c.sendTo(s, buf[:n], to); err != nil {
			return fmt.Errorf("message %d of %d bytes: %w", i, n, err)
		}
		time.Sleep(c.delay)
	}
	if err := c.sendTo(s, mark(magicLast, seed, c.n, c.lossy), to); err != nil {
		return err
	}
	return c.answered(s)
}

// answered waits until the receiver of a stream has answered, and says goodbye to it. Without
// this wait the close of s would withdraw messages that are not acked yet.
func (c *config) answered(s socket) error {
	if err := limitRecv(s, c.limit); err != nil {
		return err
	}
	var b [markLen]byte
	if _, _, err := recvFrom(s, b[:]); err != nil {
		return fmt.Errorf("no answer from the receiver: %w", err)
	}
	err := c.sendTo(s, []byte(goodbye), sockaddr(c.to.AddrPort))
	// In this time the goodbye mostly leaves before s is closed. A receiver that gets none ends, too.
	time.Sleep(200 * time.Millisecond)
	return err
}

// stream is a stream that is being received.
type stream struct {
	seed  uint64
	n     int // messages that the first mark announced
	next  int // number of the next message
	bytes int // received so far
	lost  int
	lossy bool
}

// recv receives and checks streams until -streams of them have ended. It answers the end of each.
func recv(c *config) error {
	s, err := c.open(c.at.AddrPort)
	if err != nil {
		return err
	}
	defer s.close()
	if err := limitRecv(s, c.limit); err != nil {
		return err
	}
	fmt.Fprintln(c.out, "ready")
	streams := map[netip.AddrPort]*stream{}
	buf, want := make([]byte, maxMessage), make([]byte, maxMessage)
	said, total, byes := time.Now(), 0, 0
	for ended := 0; ended < c.streams; {
		n, from, err := recvFrom(s, buf)
		if err != nil {
			return fmt.Errorf("after %d messages and %d streams: %w", total, ended, err)
		}
		if string(buf[:n]) == goodbye {
			byes++
			continue
		}
		total++
		time.Sleep(c.delay)
		if c.every > 0 && time.Since(said) >= c.every {
			said = time.Now()
			fmt.Fprintf(c.out, "%d messages\n", total)
		}
		done, err := c.check(streams, from, buf[:n], want)
		if err != nil {
			return fmt.Errorf("from %v: %w", from, err)
		}
		if done {
			ended++
			if err := c.sendTo(s, []byte("thanks"), sockaddr(from)); err != nil {
				return err
			}
		}
	}
	// The close of s withdraws answers that are not acked yet, so the senders must have them.
	if err := limitRecv(s, byeWait); err != nil {
		return err
	}
	for byes < c.streams {
		if n, _, err := recvFrom(s, buf); err != nil {
			break
		} else if string(buf[:n]) == goodbye {
			byes++
		}
	}
	return nil
}

// check checks one message b from a socket. It uses want as scratch memory. It returns done if b
// is the last mark of a stream.
func (c *config) check(streams map[netip.AddrPort]*stream, from netip.AddrPort, b, want []byte) (done bool, err error) {
	t := streams[from]
	if len(b) == markLen {
		be := binary.BigEndian
		seed, n, lossy := be.Uint64(b[8:]), int(be.Uint64(b[16:])), be.Uint64(b[24:]) == 1
		switch string(b[:8]) {
		case magicFirst:
			if t != nil && !lossy {
				return false, errors.New("a stream began before the one before it ended")
			}
			streams[from] = &stream{seed: seed, n: n, lossy: lossy}
			return false, nil
		case magicLast:
			if t == nil || t.seed != seed || !lossy && t.next != n {
				return false, fmt.Errorf("the end of stream %d of %d messages came in the state %+v", seed, n, t)
			}
			t.lost += n - t.next
			fmt.Fprintf(c.out, "stream from %v: %d messages, %d bytes, %d lost\n", from, t.n-t.lost, t.bytes, t.lost)
			delete(streams, from)
			return true, nil
		}
	}
	switch {
	case t == nil && c.lossy: // its first mark was lost
		return false, nil
	case t == nil:
		return false, fmt.Errorf("a message of %d bytes belongs to no stream", len(b))
	case t.next >= t.n:
		return false, fmt.Errorf("message %d came in a stream of %d messages", t.next, t.n)
	}
	if !t.lossy {
		if n := c.sizes[t.next%len(c.sizes)]; n != len(b) {
			return false, fmt.Errorf("message %d has %d bytes, want %d", t.next, len(b), n)
		}
	} else if err := t.skip(b); err != nil {
		return false, err
	}
	message(want[:len(b)], t.seed, t.next, t.lossy)
	if !bytes.Equal(b, want[:len(b)]) {
		return false, fmt.Errorf("message %d of %d bytes has wrong contents", t.next, len(b))
	}
	t.next++
	t.bytes += len(b)
	return false, nil
}

// skip counts the messages that are missing before the numbered message b.
func (t *stream) skip(b []byte) error {
	if len(b) < numberLen {
		return fmt.Errorf("a message of %d bytes in a numbered stream, want at least 24", len(b))
	}
	i := int(binary.BigEndian.Uint64(b[8:]))
	if binary.BigEndian.Uint64(b) != t.seed || i < t.next || i >= t.n {
		return fmt.Errorf("message %d of stream %d came, want message %d or later of stream %d", i, binary.BigEndian.Uint64(b), t.next, t.seed)
	}
	t.lost += i - t.next
	t.next = i
	return nil
}
