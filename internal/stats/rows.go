package stats

// Socket is the row of a bound socket: the fields of ctl.SocketInfo. Rows are copied as
// words, so a row consists of whole words and has no pointers.
type Socket struct {
	Addr        [16]byte // IPv4 mapped
	Incarnation uint32
	Port        uint16
	Used        uint8 // 0 if the row is free
	Congested   uint8
	PID, UID    uint32
	Name        [24]byte // NUL-padded, as all texts here; longer texts are cut

	SendMessages, SendBytes, RecvBytes, RecvLimit, Ops uint64

	Oldest                                         uint64 // ns, 0 for none
	SentMessages, SentBytes, GotMessages, GotBytes uint64
	PlacedBytes, ServedBytes                       uint64 // by RDMA of others, here
	Messages, Operations                           Times
}

// Peer is the row of a connection: the fields of ctl.PeerInfo without the reason for its
// transport. QueuedMessages leaves out messages that wait for their turn at the connection.
type Peer struct {
	Local, Remote [16]byte
	Used, Lane    uint8
	CRC, Kernel   uint8
	TCPLanes      uint16
	Wanted, Path  uint8
	State         [16]byte
	Transport     [16]byte
	TLS           [40]byte
	LastError     [128]byte

	Since       int64 // unix nanoseconds, 0 for never
	LastErrorAt int64
	Instance    uint64
	SendCredits uint32
	RecvCredits uint32

	NextTx, Acked, Rx                                          uint64
	QueuedMessages, QueuedBytes, UnackedMessages, UnackedBytes uint64
	Resets, Retransmitted, DroppedOps, UnknownOps, Lost        uint64

	RTT, RTTLast, RTTLeast                         uint64 // ns, 0 for unknown
	Oldest                                         uint64 // ns, 0 for none
	RTTAt                                          int64  // unix nanoseconds, 0 for never
	SentMessages, SentBytes, GotMessages, GotBytes uint64
	WrittenBytes, ReadBytes                        uint64 // by RDMA
	PlacedBytes, ServedBytes                       uint64 // by the peer's RDMA
	Messages, Operations                           Times
}

// SetText copies s to a row's field. A text that is too long is cut.
func SetText(field []byte, s string) { clear(field[copy(field, s):]) }

// Text is the text that SetText copied. It accepts any bytes.
func Text(field []byte) string {
	for i, c := range field {
		if c == 0 {
			return string(field[:i])
		}
	}
	return string(field)
}
