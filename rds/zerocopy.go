package rds

// checkFrom checks a payload that is sent from where it lies. mu is held.
func (t *tx) checkFrom(m *Message) error {
	if len(m.Payload) > 0 {
		return invalid("a message with both Payload and From")
	}
	return t.checkSegment(&m.From, 0)
}

// ZeroCopyDone moves into dst the cookies of messages that were sent with ZeroCopy
// and have been acknowledged or withdrawn. It returns how many it moved and never
// blocks. Each cookie comes once, in the order in which the messages ended. It says
// nothing about delivery. Messages that Close withdraws return no cookie; those that
// came back before Close can still be taken.
//
// Source: RDS_CMSG_ZCOPY_COMPLETION, net/rds/recv.c rds_recvmsg_zcookie.
func (s *Socket) ZeroCopyDone(dst []uint32) int {
	t, r := &s.c.tx, &s.c.rx
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.dead {
		t.reap()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := s.zcDone.move(dst)
	s.zcOpen -= n
	s.taken()
	return n
}

// zeroCopied queues the cookie of a message that ended. tx.mu is held.
func (s *Socket) zeroCopied(cookie uint32) {
	r := &s.c.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	s.zcDone.push(cookie)
	s.arrived(wantZeroCopy)
	s.notifyAll(wantZeroCopy)
}
