package stats

// Socket is a bound socket as its row in the lists has it: the fields of
// ctl.SocketInfo. Rows are copied by words: whole ones, no pointers.
type Socket struct {
	Addr        [16]byte // IPv4 mapped
	Incarnation uint32
	Port        uint16
	Used        uint8 // 0: the row is free
	Congested   uint8
	PID, UID    uint32
	Name        [24]byte // NUL-padded, as all texts here; what is longer is cut off

	SendMessages, SendBytes, RecvBytes, RecvLimit, Ops uint64
}

// Peer is a connection as its row has it: the fields of ctl.PeerInfo but for the
// reason of its transport. Messages that wait for their turn at it are not in
// QueuedMessages.
type Peer struct {
	Local, Remote [16]byte
	Used, Lane    uint8
	CRC, Kernel   uint8
	TCPLanes      uint16
	_             uint16
	State         [16]byte
	Transport     [16]byte
	TLS           [40]byte
	LastError     [128]byte

	Since       int64 // unix nanoseconds, 0: never
	Instance    uint64
	SendCredits uint32
	RecvCredits uint32

	NextTx, Acked, Rx                                          uint64
	QueuedMessages, QueuedBytes, UnackedMessages, UnackedBytes uint64
	Resets, Retransmitted, DroppedOps, UnknownOps, Lost        uint64
}

// SetText copies as much of s to row's field as there is room for.
func SetText(field []byte, s string) { clear(field[copy(field, s):]) }

// Text is what SetText copied, whatever the bytes are now.
func Text(field []byte) string {
	for i, c := range field {
		if c == 0 {
			return string(field[:i])
		}
	}
	return string(field)
}
