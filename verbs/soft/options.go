package soft

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// Options of New. The zero value is usable.
type Options struct {
	// Name in DeviceAttr; "soft" if empty.
	Name string
	// With CRCOff no QP of the device asks for checksums, whatever its QPInitAttr
	// says. They are still used with a peer that asks.
	CRC verbs.CRCMode
	// Congestion is the TCP congestion control that is set on every connection; ""
	// leaves the one of the system. A refusal is not an error; see
	// Device.Congestion.
	Congestion string
	// Threads is how many I/O threads, at most 16, move, sum and encrypt large payloads for the
	// owner's thread. Where crypto/tls encrypts (FIPS mode), that stays with the owner's.
	Threads int
	// With Spill they have only what the owner's thread has no time for: the payload of a queue pair while
	// it moves that of another itself.
	Spill bool
	// MaxReadDepth limits QPCap.ReadDepth; 0: 64.
	MaxReadDepth int
	// MaxHandshakes limits incoming connections that are being set up, requests that
	// were not accepted or rejected yet included; 0: 1024, as many hosts may come back
	// at once. More are closed.
	MaxHandshakes int
	// MinCQE is the least capacity of a completion queue; 0: 1<<20. Memory is taken
	// as entries are used.
	MinCQE int
	// PlainMPA adds nothing to the private data of the MPA frames, for peers that do
	// not accept more bytes than the consumer gave. Immediate data, atomics and RNR
	// retries are then not negotiated.
	PlainMPA bool
	// SegmentToMSS cuts messages so that an FPDU fits into a TCP segment (RFC 5044
	// section 5), for peers that work better with such FPDUs. Otherwise FPDUs are as
	// large as possible.
	SegmentToMSS bool
	// HandshakeTimeout limits the MPA exchange of an incoming connection and,
	// without ConnectParam.TimeoutNs, the whole set-up of an outgoing one; 0: 5 s. A
	// request that is not answered for twice as long is closed.
	HandshakeTimeout time.Duration
	// LingerTimeout limits how long a closed connection is kept to deliver what was
	// written, above all a Terminate; 0: 2 s.
	LingerTimeout time.Duration
	// Listen, if not nil, opens the listening TCP sockets. Its connections are
	// *net.TCPConn. The device closes the listeners.
	Listen func(ctx context.Context, addr netip.AddrPort) (net.Listener, error)
	// TLS, if not nil, says how connections with a peer are secured, in either
	// direction: nil for plain connections, else by TLS 1.3. Both ends then show a
	// certificate that has their address as an IP SAN, or as a DNS SAN the
	// ServerName that is returned for the peer. With InsecureSkipVerify the
	// VerifyConnection that is returned decides instead what a certificate must be for;
	// that its chain leads to the authorities is checked always. An error refuses the
	// connection, and the peer gets the alert access_denied. It is called by several goroutines.
	TLS func(peer netip.Addr) (*tls.Config, error)
	// Silent, if not nil, says whether a peer that TLS refuses by its address gets no alert. It is called by several
	// goroutines.
	Silent func() bool
	// HandshakeRate limits how many incoming connections that are to be secured are
	// accepted per second; 0: 200. Each address (of IPv6: each /64) may have a
	// fortieth of it, and 128 at once. Of those whose handshake succeeds only what an
	// address has beyond 128 a second, and 256 at once, counts. A peer that is refused gets
	// the alert user_canceled, and its error is verbs.ErrBusy.
	HandshakeRate int
	// Refused, if not nil, is called for incoming connections that TLS or its limits
	// turned away, with the reason. It is called by several goroutines.
	Refused func(local, remote netip.Addr, why error)
	// Tap, if not nil, sees every byte of every connection's stream.
	Tap Tap
	// Late, if not nil, is a tap that comes and goes. Without a Tap only.
	Late LateTap
}

// Tap records streams, before and after encryption by TLS, for a packet capture. Its
// method is called on the owner's thread, and for MPA start-up frames on other
// threads. It must not block and must not keep b.
type Tap interface {
	// Stream gets the next bytes of the TCP stream from local to remote (out)
	// or back, in stream order for each direction of a connection.
	Stream(local, remote netip.AddrPort, out bool, b []byte)
}

func (o *Options) defaults() {
	if o.Name == "" {
		o.Name = "soft"
	}
	if o.MaxReadDepth <= 0 {
		o.MaxReadDepth = 64
	}
	if o.MaxHandshakes <= 0 {
		o.MaxHandshakes = 1024
	}
	if o.MinCQE <= 0 {
		o.MinCQE = 1 << 20
	}
	if o.HandshakeTimeout <= 0 {
		o.HandshakeTimeout = 5 * time.Second
	}
	if o.HandshakeRate <= 0 {
		o.HandshakeRate = 200
	}
	if o.LingerTimeout <= 0 {
		o.LingerTimeout = 2 * time.Second
	}
}

// maxPrivate returns how many bytes the consumer may put into an MPA frame.
func (o *Options) maxPrivate() int {
	if o.PlainMPA {
		return iwarp.MaxPrivate
	}
	return iwarp.MaxPrivate - iwarp.FeaturesLen
}

// Sizes that shape the data path. See the benchmarks for the two limits.
const (
	maxBurst  = 256 << 10         // bytes per QP, direction and Progress
	stageSize = maxBurst + 68<<10 // a burst and one whole FPDU
	maxSegs   = 128               // pieces of pending output per QP

	// smallStage is enough for the output of a QP that has little to say, and
	// for the beginning of a frame. So a thousand QPs that say a word at the
	// same time take a thousand pages and not a thousand bursts.
	smallStage = 4 << 10

	copyLimit = 8 << 10  // payload up to this is copied into the stage
	directMin = 32 << 10 // missing payload from this on is read in place

	// bulkMin is the payload of a segment that makes the next ones likely to
	// be large as well. It is above the 32 KiB of conn's SENDs, of which many
	// in one read are better copied.
	bulkMin = 48 << 10
	// bulkTail is read behind a payload read in place: trailer and the next
	// header, a few small messages with luck, but not much of a large payload.
	bulkTail = 2 << 10

	maxWR     = 1 << 15
	maxSGE    = 16
	maxInline = 1024
	maxMsg    = 1 << 31
	maxMRs    = 1 << 20
	maxReject = 148
	maxCQE    = 1 << 22
)

// Stats are counters of a device since New. The owner writes the first group,
// connection set-up the second.
type Stats struct {
	BytesOut, BytesIn   uint64
	CallsOut, CallsIn   uint64 // send and receive system calls that moved bytes
	FramesIn            uint64
	TermSent, TermRecvd uint64
	CRCErrors           uint64
	TLSErrors           uint64 // connections ended for a bad record or by the peer's alert
	Disconnects         uint64 // connections that ended other than by ToError or Destroy
	FencesSent          uint64 // zero-length READs for AckRemote
	StaleAnswers        uint64 // segments with data that answered a READ of no bytes and were dropped
	StaleCRC            uint64 // those of StaleAnswers whose CRC was wrong
	StartNudges         uint64 // first frames sent again to a silent responder
	RNRWaits            uint64 // messages that found no receive
	RNRParked           uint64 // messages put aside, those behind a waiting one included
	RNRStalls           uint64 // times a stream was not read because too many messages were put aside
	RNRExceeded         uint64 // connections ended because a peer's message waited too long

	HandshakeGarbage uint64 // incoming: not MPA, or broken rules
	HandshakeTimeout uint64 // incoming: silent
	HandshakeRefused uint64 // incoming: over MaxHandshakes, or never answered
	HandshakeMarkers uint64 // peers that want markers
	HandshakePlain   uint64 // incoming: plain where TLS is needed, or the reverse
	HandshakeTLS     uint64 // incoming: handshakes of TLS that failed, certificates above all
	HandshakeLimited uint64 // incoming: over HandshakeRate
	HandshakeSecured uint64 // handshakes of TLS that succeeded, either way
}
