package afrds

import (
	"sync"
	"syscall"

	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/rds"
)

// Kernel makes sockets over one rds.Client. The sockets share one space of memory
// addresses. Its methods may be called from many goroutines.
type Kernel struct {
	c    *rds.Client
	path string
	mem  memory

	mu    sync.Mutex
	socks map[*Socket]struct{} // open ones, for the tables
}

// New makes a Kernel over c. The caller closes c after the sockets.
func New(c *rds.Client) *Kernel { return &Kernel{c: c, socks: map[*Socket]struct{}{}} }

// SetControl names the control socket of the daemon that is asked for the tables of
// RDS_INFO_*. "" stands for the default one.
func (k *Kernel) SetControl(path string) { k.path = path }

// Socket is socket(2). ESOCKTNOSUPPORT: any type but SOCK_SEQPACKET, any
// protocol but 0; EAFNOSUPPORT: any domain but AF_RDS. SOCK_NONBLOCK and
// SOCK_CLOEXEC may be added to the type.
//
// Source: net/rds/af_rds.c rds_create.
func (k *Kernel) Socket(domain, typ, protocol int) (*Socket, error) {
	nonblock := typ&syscall.SOCK_NONBLOCK != 0
	typ &^= syscall.SOCK_NONBLOCK | syscall.SOCK_CLOEXEC
	switch {
	case domain != cmsg.AFRDS:
		return nil, syscall.EAFNOSUPPORT
	case typ != syscall.SOCK_SEQPACKET || protocol != 0:
		return nil, syscall.ESOCKTNOSUPPORT
	}
	s := newSocket(k)
	s.nonblock.Store(nonblock)
	k.mu.Lock()
	k.socks[s] = struct{}{}
	k.mu.Unlock()
	return s, nil
}

// Socketpair is socketpair(2). It returns EOPNOTSUPP.
func (k *Kernel) Socketpair(domain, typ, protocol int) error { return syscall.EOPNOTSUPP }

func (k *Kernel) forget(s *Socket) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.socks, s)
}
