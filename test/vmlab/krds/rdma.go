package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/rdsd/rdsd/cmsg"
	"golang.org/x/sys/unix"
)

// RDMA between two programs, as databases use RDS: rdma-ask registers memory and
// sends a request with its cookie; rdma-serve writes into it, or reads from it,
// with its reply behind the operation. Each end checks the data; rdma-serve also
// the statuses.

// ask is a request, and a reply.
type ask struct {
	Seq    uint32
	Kind   uint32 // askWrite, askRead
	Size   uint32
	Off    uint32 // in the region
	How    uint32
	Status uint32 // of a reply: 0, or the operation's that failed
	Sum    uint64 // of a reply: of what was read
}

const (
	askWrite  = 1 // the server writes
	askRead   = 2
	askSilent = 1 << 0 // the reply comes as a message of its own, behind a silent operation
	askBad    = 1 << 1 // the server spoils the key: there is no reply
	askSplit  = 1 << 2 // the server's memory is in pieces
	askLen    = 32

	askHeader = 4096 // of the server's memory, for vectors
	askMax    = 1 << 20
	askGuard  = 64
)

func (a *ask) append(b []byte) []byte {
	le := binary.LittleEndian
	for _, v := range []uint32{a.Seq, a.Kind, a.Size, a.Off, a.How, a.Status} {
		b = le.AppendUint32(b, v)
	}
	return le.AppendUint64(b, a.Sum)
}

func parseAsk(b []byte) (a ask, err error) {
	if len(b) != askLen {
		return a, fmt.Errorf("a request of %d bytes", len(b))
	}
	le := binary.LittleEndian
	for i, p := range []*uint32{&a.Seq, &a.Kind, &a.Size, &a.Off, &a.How, &a.Status} {
		*p = le.Uint32(b[4*i:])
	}
	a.Sum = le.Uint64(b[24:])
	return a, nil
}

func fill(b []byte, seed uint64) {
	for i := range b {
		seed = seed*6364136223846793005 + 1442695040888963407
		b[i] = byte(seed >> 56)
	}
}

// sendWith is sendTo with control messages. A registration wants a connection:
// EAGAIN until there is one, and from the kernel EINVAL while one goes down: its
// queue pair takes no work request any more.
func (c *config) sendWith(s socket, payload, name, control []byte) error {
	for end := time.Now().Add(c.limit); ; {
		_, err := s.sendmsg(payload, name, control, 0)
		if err == nil || time.Now().After(end) {
			return err
		}
		_, kernel := s.(*kernelSocket)
		if again := errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EINTR) ||
			kernel && len(control) > 0 && errors.Is(err, unix.EINVAL); !again {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// rdmaServe carries out -n operations for whoever asks.
func rdmaServe(c *config) error {
	s, err := c.open(c.at.AddrPort)
	if err != nil {
		return err
	}
	defer s.close()
	if err := limitRecv(s, c.limit); err != nil {
		return err
	}
	const slots = 8
	mem, addr, err := s.alloc(slots * (askHeader + askMax))
	if err != nil {
		return err
	}
	fmt.Fprintln(c.out, "ready")
	counts := map[string]int{}
	open := map[uint64]ask{}
	who := map[uint64][]byte{}
	buf, name, control := make([]byte, 1<<16), make([]byte, 28), make([]byte, 512)
	var recv cmsg.Recv
	for asked, told := 0, 0; told < c.n; {
		r, err := s.recvmsg(buf, name, control, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("after %d requests and %d statuses: %w", asked, told, err)
		}
		if err := recv.Parse(control[:r.control]); err != nil {
			return err
		}
		for _, st := range recv.Status {
			told++
			a, ok := open[st.UserToken]
			if !ok {
				return fmt.Errorf("a second status, %d, of operation %d", st.Status, st.UserToken)
			}
			delete(open, st.UserToken)
			counts[fmt.Sprintf("status %d", st.Status)]++
			// Dropped by a connection that broke, or too late: who asked has taken the
			// key back and asks again. Who allows neither counts.
			const remoteError, dropped = 1, 3
			if bad := a.How&askBad != 0; bad && st.Status == 0 || !bad && st.Status != 0 && st.Status != dropped && st.Status != remoteError {
				return fmt.Errorf("operation %d, key spoilt %v: status %d", st.UserToken, bad, st.Status)
			}
			if st.Status != 0 && a.How&askBad == 0 {
				a.Status = uint32(st.Status)
				if err := c.sendWith(s, a.append(nil), who[st.UserToken], nil); err != nil {
					return err
				}
			}
		}
		if r.name == 0 {
			continue
		}
		a, err := parseAsk(buf[:r.n])
		switch {
		case err != nil:
			return err
		case !recv.Present.Has(cmsg.TypeRDMADest):
			return errors.New("a request without a cookie")
		}
		asked++
		slot := uint64(asked % slots * (askHeader + askMax))
		local := mem[slot+askHeader:][:a.Size]
		at := addr + slot + askHeader
		vecs := []cmsg.IOVec{{Addr: at, Bytes: uint64(a.Size)}}
		if a.How&askSplit != 0 && a.Size > 2 {
			k := uint64(a.Size)/3 + 1
			vecs = []cmsg.IOVec{{Addr: at, Bytes: k}, {Addr: at + k, Bytes: uint64(a.Size) - k}}
		}
		var v []byte
		for _, x := range vecs {
			v = x.Append(v)
		}
		copy(mem[slot:], v)
		token := uint64(asked)
		args := cmsg.RDMAArgs{Cookie: recv.Dest, RemoteVec: cmsg.IOVec{Addr: uint64(a.Off), Bytes: uint64(a.Size)}, LocalVecAddr: addr + slot,
			NrLocal: uint64(len(vecs)), Flags: cmsg.FlagNotifyMe, UserToken: token}
		if a.How&askBad != 0 {
			args.Cookie ^= 0x5a00
		}
		if a.Kind == askWrite {
			args.Flags |= cmsg.FlagReadWrite
			fill(local, uint64(a.Seq))
		} else {
			args.Flags |= cmsg.FlagFence
			clear(local)
		}
		open[token], who[token] = a, slices.Clone(name[:r.name])
		payload := a.append(nil)
		silent := a.How&askSilent != 0
		if silent {
			args.Flags |= cmsg.FlagSilent
			payload = nil
		}
		send := cmsg.Send{Present: cmsg.Of(cmsg.TypeRDMAArgs), Args: args}
		ctl, err := send.Append(nil)
		if err != nil {
			return err
		}
		if err := c.sendWith(s, payload, name[:r.name], ctl); err != nil {
			return fmt.Errorf("operation %d: %w", asked, err)
		}
		if silent {
			if err := c.sendWith(s, a.append(nil), name[:r.name], nil); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(c.out, "%d operations: %s\n", c.n, list(counts))
	return nil
}

func list(counts map[string]int) string {
	var l []string
	for k, n := range counts {
		l = append(l, fmt.Sprintf("%d %s", n, k))
	}
	sort.Strings(l)
	return strings.Join(l, ", ")
}

// rdmaAsk asks for -n operations of -sizes, one at a time, each in memory
// registered anew.
func rdmaAsk(c *config) error {
	// A reply that was lost with a connection does not come. The kernel finishes
	// a broken connection when the registrations made on it have ended, so they
	// have to before it can be asked again.
	var s socket
	var mem, cookie []byte
	var addr, cookieAt uint64
	open := func() (err error) {
		if s, err = c.open(c.from.AddrPort); err != nil {
			return err
		}
		if err := limitRecv(s, c.patience); err != nil {
			return err
		}
		if mem, addr, err = s.alloc(askMax + 3*4096); err != nil {
			return err
		}
		cookie, cookieAt = mem[len(mem)-8:], addr+uint64(len(mem)-8)
		mem = mem[:askMax+2*4096]
		return nil
	}
	if err := open(); err != nil {
		return err
	}
	defer func() { s.close() }()
	free := func() error {
		args := cmsg.FreeMRArgs{Cookie: binary.NativeEndian.Uint64(cookie), Flags: cmsg.FlagInvalidate}
		if err := s.setsockopt(solRDS, int(cmsg.OptFreeMR), args.Append(nil)); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("RDS_FREE_MR: %w", err)
		}
		return nil // EINVAL: its use has ended it
	}
	to := sockaddr(c.to.AddrPort)
	buf, name := make([]byte, 1<<16), make([]byte, 28)
	control := make([]byte, 512)
	done, again := 0, 0
	want := make([]byte, askMax+2*4096)
	for i := range c.n {
		size := max(c.sizes[i%len(c.sizes)], 1)
		start := 64 + i*37%4000 // anywhere in a page
		a := ask{Seq: uint32(i + 1), Kind: askWrite + uint32(i%2), Size: uint32(size), Off: uint32(i * 11 % 500)}
		region := int(a.Off) + size
		if start+region+askGuard > len(mem) {
			a.Off, region = 0, size
		}
		if i%3 == 2 {
			a.How |= askSplit
		}
		if c.silent && i%5 == 4 {
			a.How |= askSilent
		}
		if c.bad > 0 && i%c.bad == c.bad-1 {
			a.How = askBad
		}
		for try := 0; ; try++ {
			a.Seq = uint32(i+1) | uint32(try)<<20
			fill(mem, uint64(a.Seq)<<32)
			copy(want, mem)
			send := cmsg.Send{Present: cmsg.Of(cmsg.TypeRDMAMap), Map: cmsg.GetMRArgs{Vec: cmsg.IOVec{Addr: addr + uint64(start), Bytes: uint64(region)},
				CookieAddr: cookieAt, Flags: cmsg.FlagReadWrite | cmsg.FlagUseOnce | cmsg.FlagInvalidate}}
			ctl, err := send.Append(nil)
			if err != nil {
				return err
			}
			if err := c.sendWith(s, a.append(nil), to, ctl); err != nil {
				return fmt.Errorf("request %d: %w", i, err)
			}
			if a.How&askBad != 0 {
				time.Sleep(c.patience / 4) // until it has been tried
				if err := free(); err != nil {
					return err
				}
				break
			}
			got, err := reply(s, a.Seq, buf, name, control)
			if (errors.Is(err, unix.ETIMEDOUT) || errors.Is(err, unix.EAGAIN)) && time.Duration(try)*c.patience < c.limit {
				if err := free(); err != nil {
					return err
				}
				// The kernel finishes the old connection in a moment without any
				// registration; one made at once would be on it, and keep it.
				time.Sleep(c.patience / 8)
				// A request that nobody has acked holds its registration, whatever
				// is freed, and waits for the connection: closing withdraws it.
				if _, kernel := s.(*kernelSocket); kernel && try > 0 {
					s.close()
					if err := open(); err != nil {
						return err
					}
				}
				again++
				continue
			}
			if err != nil {
				return fmt.Errorf("request %d of %d bytes, try %d: %w", i, size, try, err)
			}
			if got.Status != 0 { // the connection went down under it
				again++
				continue
			}
			at := start + int(a.Off)
			if a.Kind == askWrite {
				fill(want[at:at+size], uint64(got.Seq))
			}
			if i := firstDiff(mem, want); i >= 0 {
				return fmt.Errorf("request %d, kind %d of %d bytes at %d: byte %d is wrong", a.Seq, a.Kind, size, at, i)
			}
			done++
			break
		}
	}
	fmt.Fprintf(c.out, "%d operations in place, %d asked for again\n", done, again)
	return nil
}

func firstDiff(a, b []byte) int {
	if bytes.Equal(a, b[:len(a)]) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// reply waits for the answer to request seq; those to earlier tries may still
// come.
func reply(s socket, seq uint32, buf, name, control []byte) (ask, error) {
	for {
		r, err := s.recvmsg(buf, name, control, 0)
		switch {
		case errors.Is(err, unix.EINTR), err == nil && r.name == 0:
			continue
		case err != nil:
			return ask{}, err
		}
		a, err := parseAsk(buf[:r.n])
		if err != nil || a.Seq == seq {
			return a, err
		}
	}
}
