package librds

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/rds"
)

// player carries out the commands of a script with package rds. Its answers are what the
// driver's are compared with.
type player struct {
	clients map[string]*rds.Client
	opened  map[string]rds.Options // how the clients were opened
	socks   map[string]*rds.Socket
	bufs    map[string]*rds.Buffer
	regions map[string]*rds.Region
	rcv     map[string]time.Duration // receive timeouts
	snd     map[string]time.Duration
	options map[string]int64          // by socket and name
	polls   map[string]poll           // by socket
	remote  map[string]netip.AddrPort // where a socket is connected to, which package rds does not have
	w       []string                  // the command
	refused string                    // the words about the last bind or close
	lastInc uint32                    // of the sender of the last message that recv returned
}

func newPlayer() *player {
	return &player{clients: map[string]*rds.Client{}, opened: map[string]rds.Options{}, socks: map[string]*rds.Socket{}, bufs: map[string]*rds.Buffer{}, regions: map[string]*rds.Region{},
		rcv: map[string]time.Duration{}, snd: map[string]time.Duration{}, options: map[string]int64{}, polls: map[string]poll{}, remote: map[string]netip.AddrPort{}}
}

func (p *player) end() error {
	for _, c := range p.clients {
		c.Close()
	}
	return nil
}

// errnoNames are those that the driver knows.
func errorText(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		errno = syscall.ETIMEDOUT
	case errors.Is(err, syscall.EOPNOTSUPP):
		return "error EOPNOTSUPP" // its other name is ENOTSUP
	case errors.Is(err, fs.ErrNotExist):
		errno = syscall.ENOENT
	case !errors.As(err, &errno):
		return "error without errno: " + err.Error()
	}
	return "error " + unix.ErrnoName(errno)
}

// try is the error, or the text of ok.
func try(err error, format string, args ...any) string {
	if err != nil {
		return errorText(err)
	}
	return fmt.Sprintf(format, args...)
}

func (p *player) do(line string) (string, error) {
	p.w = strings.Fields(line)
	f := commands[p.w[0]]
	if f == nil {
		return "no command " + p.w[0], nil
	}
	return f(p), nil
}

func (p *player) sock() *rds.Socket { return p.socks[p.w[1]] }

// ctx is the context of a send or receive with the flags from word i on.
func (p *player) ctx(i int) context.Context {
	if p.has(i, "dontwait") || p.options[p.w[1]+"nonblock"] != 0 {
		return rds.DontWait
	}
	return context.Background()
}

// to is the destination in word 2, or that of connect.
func (p *player) to() netip.AddrPort {
	if a := p.addr(2); a.IsValid() {
		return a
	}
	return p.remote[p.w[1]]
}

// arg is word i, or "" if there is none.
func (p *player) arg(i int) string {
	if i < len(p.w) {
		return p.w[i]
	}
	return ""
}

func (p *player) number(i int) int64 {
	n, _ := strconv.ParseInt(p.arg(i), 0, 64)
	return n
}

func addrOf(text string) netip.AddrPort {
	if text == "-" {
		return netip.AddrPort{}
	}
	return netip.MustParseAddrPort(text)
}

func (p *player) addr(i int) netip.AddrPort { return addrOf(p.arg(i)) }

func addrText(a netip.AddrPort) string {
	if !a.IsValid() {
		return "-"
	}
	return a.String()
}

func payload(w string) []byte {
	if !strings.HasPrefix(w, "#") {
		return []byte(w)
	}
	n, _ := strconv.Atoi(w[1:])
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + i%26)
	}
	return b
}

func bytesText(b []byte) string {
	if len(b) <= 64 {
		return string(b)
	}
	sum := uint32(0)
	for _, c := range b {
		sum = sum*31 + uint32(c)
	}
	return fmt.Sprintf("%d bytes %d", len(b), sum)
}

func (p *player) has(from int, flag string) bool {
	for i := from; i < len(p.w); i++ {
		if p.w[i] == flag {
			return true
		}
	}
	return false
}

func limit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}

func msgText(m *rds.Received) string {
	s := fmt.Sprintf("[%s] from %s n %d len %d", bytesText(m.Payload[:m.N]), addrText(m.Addr), m.N, m.Len)
	for _, f := range []struct {
		on   bool
		text string
	}{{m.N < m.Len, " truncated"}, {m.Cookie != 0, " cookie"}, {m.SrcInc != 0, " inc"}} {
		if f.on {
			s += f.text
		}
	}
	if m.Traceparent != "" {
		s += " of " + m.Traceparent
	}
	return s
}

// arm sets the deadlines of one call.
func (p *player) arm() {
	for _, d := range []struct {
		after time.Duration
		set   func(time.Time) error
	}{{p.rcv[p.w[1]], p.sock().SetReadDeadline}, {p.snd[p.w[1]], p.sock().SetWriteDeadline}} {
		var at time.Time
		if d.after > 0 {
			at = time.Now().Add(d.after)
		}
		_ = d.set(at)
	}
}
