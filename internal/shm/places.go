package shm

// Place names a place in the segment: its offset in bytes.
type Place struct {
	Name string
	Off  int
}

// Header returns the places of the segment's first page, which are the same for all
// parameters.
func Header() []Place {
	return []Place{
		{"magic", offMagic}, {"version", offVersion}, {"size", offSize}, {"params", offParams},
		{"daemon asleep", offDaemonAsleep}, {"client asleep", offClientAsleep},
		{"submission tail", offSubTail}, {"submission head", offSubHead},
		{"event tail", offEventTail}, {"event head", offEventHead},
		{"send-return tail", offSendRetTail}, {"send-return head", offSendRetHead},
		{"receive-return tail", offRecvRetTail}, {"receive-return head", offRecvRetHead},
	}
}

// Parts returns the places of the rings and wishes of a segment with these parameters.
func Parts(p Params) []Place {
	l := layoutOf(p)
	return []Place{
		{"submission ring", l.sub}, {"event ring", l.event}, {"send-return ring", l.sendRet},
		{"receive-return ring", l.recvRet}, {"want cells", l.wantCells}, {"want slots", l.wantSlots},
	}
}
