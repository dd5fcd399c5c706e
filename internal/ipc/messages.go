package ipc

import (
	"fmt"
	"net/netip"
	"syscall"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/shm"
)

// Type of a frame.
type Type uint16

// Frame types.
const (
	TypeHello      Type = 1
	TypeHelloOK    Type = 2
	TypeBind       Type = 3
	TypeBindOK     Type = 4
	TypeCloseSock  Type = 5
	TypeSetRcvBuf  Type = 6
	TypeAlloc      Type = 7
	TypeAllocOK    Type = 8
	TypeFree       Type = 9
	TypeRegister   Type = 10
	TypeRegisterOK Type = 11
	TypeExpose     Type = 12
	TypeRelease    Type = 13
	TypeGrowSend   Type = 14
	TypeGrowSendOK Type = 15
	TypeOK         Type = 16
	TypeErr        Type = 17
	TypeGoodbye    Type = 18
	TypeCtl        Type = 19
	TypeCtlPart    Type = 20
	TypeAddrs      Type = 21
	TypeAddrsOK    Type = 22
	TypeImport     Type = 23
	TypeImportOK   Type = 24
	TypeTakeOver   Type = 25
	TypeTakeOverOK Type = 26
)

// Body is the body of a frame. Only types of this package implement it.
type Body interface {
	Type() Type
	fields(c *codec) // goes through them, to read or to write them
}

// Request is a Body that the client sends. The comment of each says which Body answers it.
type Request interface {
	Body
	request() Type // the type of the answer, if it is not Err
}

// Response is a Body from the daemon.
type Response interface {
	Body
	response()
}

// Role is what a connection is for.
type Role uint32

// Roles.
const (
	RoleClient Role = 1 // a process with sockets: gets shared memory
	RoleCtl    Role = 2 // rdsctl: Ctl requests; or a new daemon: TakeOver
)

// Hello opens a session. Answer: HelloOK, for RoleClient with the descriptors of HelloFDs.
// A daemon of another version answers Err with EPROTONOSUPPORT and both versions.
type Hello struct {
	Version  uint32 // 0 stands for this package's; a Hello of another version is read no further
	Features uint64 // bits: what the client supports
	Role     Role
	Name     string     // of the process, for rdsctl and logs; up to MaxName bytes without NUL
	Params   shm.Params // wanted; zero for the daemon's defaults
}

// HelloOK accepts a session.
type HelloOK struct {
	Version    uint32 // as in Hello
	Features   uint64 // bits: what both support
	Instance   uint64 // of the daemon, random per start
	MaxSockets uint32
	MaxBuffers uint32
	MaxMessage uint64     // payload bytes
	MaxBytes   uint64     // the most bytes in all buffers of this client
	SpinNs     uint64     // how long a waiting client should look for work before it blocks, 0: not at all
	Params     shm.Params // granted
}

// Bind makes a socket. Answer: BindOK. Errors: EADDRINUSE, EADDRNOTAVAIL, EINVAL, EACCES
// (bind policy), ENOBUFS (quota).
type Bind struct {
	Addr   netip.Addr
	Port   uint16 // 0 if the daemon is to choose
	RcvBuf uint32 // 0 for the default
}

// BindOK names the socket.
type BindOK struct {
	Sock uint32 // its handle (shm.SockHandle), in descriptors and requests
	Addr netip.Addr
	Port uint16
	Inc  uint32 // incarnation
}

// CloseSock closes a socket. Answer: OK, and the port is free then.
type CloseSock struct{ Sock uint32 }

// SetRcvBuf sets a socket's receive buffer. Answer: OK.
type SetRcvBuf struct{ Sock, Bytes uint32 }

// Alloc makes a buffer for RDMA. Answer: AllocOK and the buffer's memfd. Errors: ENOMEM,
// ENOBUFS (quota), EINVAL.
type Alloc struct{ Size uint64 }

// AllocOK names the buffer. One descriptor comes along.
type AllocOK struct {
	Buffer uint32
	Size   uint64 // of the memfd: Alloc.Size rounded up to pages
}

// Free ends a buffer. Answer: OK. While regions, operations or payloads use the buffer, the
// answer is EBUSY. With Wait, OK comes when none uses it any more.
type Free struct{ Buffer, Wait uint32 }

// Register makes part of a buffer reachable by peers. Answer: RegisterOK.
type Register struct {
	Sock, Buffer uint32
	Off, Len     uint64
	Access       abi.Rights
}

// RegisterOK names the region.
type RegisterOK struct {
	Region uint32
	Cookie uint64
}

// Expose grants a region to a peer whose cookie travels inside a payload. Answer: OK when
// the grant was queued.
type Expose struct {
	Region uint32
	Addr   netip.Addr
	Port   uint16 // 0 for any socket there
}

// Release ends a region. Answer: OK when no operation can touch its memory any more.
type Release struct{ Region uint32 }

// GrowSend asks for one more window of the send arena. Answer: GrowSendOK and the window's
// memfd. Error: ENOBUFS (quota).
type GrowSend struct{}

// GrowSendOK has the number of send windows. One descriptor comes along.
type GrowSendOK struct{ Windows uint32 }

// Addrs asks for the addresses of the daemon, at which sockets can be bound. Answer:
// AddrsOK. Only with FeatureAddrs.
type Addrs struct{}

// AddrsOK has the addresses in the order of the daemon's settings, at most MaxAddrs.
type AddrsOK struct{ Addrs []netip.Addr }

// OK answers a request without a result.
type OK struct{}

// Err answers a request that failed. It is an error that unwraps to its errno.
type Err struct {
	Errno uint32
	Text  string // up to MaxText bytes
}

func (m *Err) Error() string {
	if m.Text == "" {
		return syscall.Errno(m.Errno).Error()
	}
	return m.Text
}

// Unwrap returns the errno.
func (m *Err) Unwrap() error { return syscall.Errno(m.Errno) }

// Goodbye is the last frame of a session that the daemon ends.
type Goodbye struct {
	Ends bool // the daemon itself is ending, and all sessions with it
	Text string
}

// Ctl is a JSON request of rdsctl. Answer: CtlPart frames. The last one is marked.
type Ctl struct{ JSON []byte }

// CtlPart is a piece of the JSON answer.
type CtlPart struct {
	Last bool
	JSON []byte
}

// newBody returns an empty body of type t, or nil if there is no such type.
func newBody(t Type) Body {
	switch t {
	case TypeHello:
		return &Hello{}
	case TypeHelloOK:
		return &HelloOK{}
	case TypeBind:
		return &Bind{}
	case TypeBindOK:
		return &BindOK{}
	case TypeCloseSock:
		return &CloseSock{}
	case TypeSetRcvBuf:
		return &SetRcvBuf{}
	case TypeAlloc:
		return &Alloc{}
	case TypeAllocOK:
		return &AllocOK{}
	case TypeFree:
		return &Free{}
	case TypeRegister:
		return &Register{}
	case TypeRegisterOK:
		return &RegisterOK{}
	case TypeExpose:
		return &Expose{}
	case TypeRelease:
		return &Release{}
	case TypeGrowSend:
		return &GrowSend{}
	case TypeGrowSendOK:
		return &GrowSendOK{}
	case TypeOK:
		return &OK{}
	case TypeErr:
		return &Err{}
	case TypeGoodbye:
		return &Goodbye{}
	case TypeCtl:
		return &Ctl{}
	case TypeCtlPart:
		return &CtlPart{}
	case TypeAddrs:
		return &Addrs{}
	case TypeAddrsOK:
		return &AddrsOK{}
	case TypeImport:
		return &Import{}
	case TypeImportOK:
		return &ImportOK{}
	case TypeTakeOver:
		return &TakeOver{}
	case TypeTakeOverOK:
		return &TakeOverOK{}
	}
	return nil
}

func (t Type) String() string {
	if m := newBody(t); m != nil {
		return fmt.Sprintf("%T", m)[len("*ipc."):]
	}
	return fmt.Sprintf("type %d", uint16(t))
}

// maxFDs is how many descriptors may come with a body of type t.
func (t Type) maxFDs() int {
	switch t {
	case TypeHelloOK:
		return MaxFDs
	case TypeAllocOK, TypeGrowSendOK, TypeImport:
		return 1
	case TypeTakeOverOK:
		return 2
	default:
		return 0
	}
}

// Check reports a version other than this package's as a *VersionError.
func (m *Hello) Check() error {
	if m.Version != 0 && m.Version != Version {
		return &VersionError{Client: m.Version, Daemon: Version}
	}
	return nil
}

// Check reports a version other than this package's as a *VersionError.
func (m *HelloOK) Check() error {
	if m.Version != 0 && m.Version != Version {
		return &VersionError{Client: Version, Daemon: m.Version}
	}
	return nil
}

// AddrPort is address and port in one.
func (m *Bind) AddrPort() netip.AddrPort { return netip.AddrPortFrom(m.Addr, m.Port) }

// AddrPort is address and port in one.
func (m *BindOK) AddrPort() netip.AddrPort { return netip.AddrPortFrom(m.Addr, m.Port) }

// AddrPort is address and port in one.
func (m *Expose) AddrPort() netip.AddrPort { return netip.AddrPortFrom(m.Addr, m.Port) }

func (*Hello) request() Type     { return TypeHelloOK }
func (*Bind) request() Type      { return TypeBindOK }
func (*CloseSock) request() Type { return TypeOK }
func (*SetRcvBuf) request() Type { return TypeOK }
func (*Alloc) request() Type     { return TypeAllocOK }
func (*Free) request() Type      { return TypeOK }
func (*Register) request() Type  { return TypeRegisterOK }
func (*Expose) request() Type    { return TypeOK }
func (*Release) request() Type   { return TypeOK }
func (*GrowSend) request() Type  { return TypeGrowSendOK }
func (*Ctl) request() Type       { return TypeCtlPart }
func (*Addrs) request() Type     { return TypeAddrsOK }
func (*Import) request() Type    { return TypeImportOK }

func (*HelloOK) response()    {}
func (*BindOK) response()     {}
func (*AllocOK) response()    {}
func (*RegisterOK) response() {}
func (*GrowSendOK) response() {}
func (*OK) response()         {}
func (*Err) response()        {}
func (*Goodbye) response()    {}
func (*CtlPart) response()    {}
func (*AddrsOK) response()    {}
func (*ImportOK) response()   {}

// Type implements Body, as do all below.
func (*Hello) Type() Type { return TypeHello }

// Type implements Body.
func (*HelloOK) Type() Type { return TypeHelloOK }

// Type implements Body.
func (*Bind) Type() Type { return TypeBind }

// Type implements Body.
func (*BindOK) Type() Type { return TypeBindOK }

// Type implements Body.
func (*CloseSock) Type() Type { return TypeCloseSock }

// Type implements Body.
func (*SetRcvBuf) Type() Type { return TypeSetRcvBuf }

// Type implements Body.
func (*Alloc) Type() Type { return TypeAlloc }

// Type implements Body.
func (*AllocOK) Type() Type { return TypeAllocOK }

// Type implements Body.
func (*Free) Type() Type { return TypeFree }

// Type implements Body.
func (*Register) Type() Type { return TypeRegister }

// Type implements Body.
func (*RegisterOK) Type() Type { return TypeRegisterOK }

// Type implements Body.
func (*Expose) Type() Type { return TypeExpose }

// Type implements Body.
func (*Release) Type() Type { return TypeRelease }

// Type implements Body.
func (*GrowSend) Type() Type { return TypeGrowSend }

// Type implements Body.
func (*GrowSendOK) Type() Type { return TypeGrowSendOK }

// Type implements Body.
func (*OK) Type() Type { return TypeOK }

// Type implements Body.
func (*Err) Type() Type { return TypeErr }

// Type implements Body.
func (*Goodbye) Type() Type { return TypeGoodbye }

// Type implements Body.
func (*Ctl) Type() Type { return TypeCtl }

// Type implements Body.
func (*CtlPart) Type() Type { return TypeCtlPart }

// Type implements Body.
func (*Addrs) Type() Type { return TypeAddrs }

// Type implements Body.
func (*AddrsOK) Type() Type { return TypeAddrsOK }
