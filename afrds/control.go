package afrds

import (
	"syscall"

	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/rds"
)

// outgoing is a message that a sendmsg is putting together.
type outgoing struct {
	flags   int
	payload []byte
	ctl     cmsg.Send
	m       rds.Message
	mapped  *rds.Region // made by RDMA_MAP: ends with a send that fails
	tokens  []uint64    // of its operations, as rds knows them
}

// checkChain checks the form of the whole chain, and RDMA_ARGS, as the kernel does
// before it checks the payload (send.c rds_rdma_bytes). EINVAL: a malformed chain,
// or RDMA_ARGS that are too short. EMSGSIZE: more remote bytes than a message may
// have.
func checkChain(control []byte) error {
	sum := uint64(0)
	for {
		m, rest, ok, err := cmsg.Next(control)
		switch {
		case err != nil:
			return errno(err)
		case !ok && sum > cmsg.MaxMessage:
			return syscall.EMSGSIZE
		case !ok:
			return nil
		}
		control = rest
		if m.Level != cmsg.SOLRDS || m.Type != cmsg.TypeRDMAArgs {
			continue
		}
		var a cmsg.RDMAArgs
		if err := a.Parse(m.Data); err != nil {
			return errno(err)
		}
		if sum += min(a.RemoteVec.Bytes, cmsg.MaxMessage+1); sum > cmsg.MaxMessage {
			sum = cmsg.MaxMessage + 1
		}
	}
}

// sizes checks each control message alone, in their order (send.c rds_rm_size).
// EINVAL, EMSGSIZE, EFAULT: RDMA_ARGS, see vectorSize. EINVAL: a type that cannot be
// sent.
func (k *Kernel) sizes(control []byte) error {
	sendable := cmsg.Of(cmsg.TypeRDMAArgs, cmsg.TypeRDMADest, cmsg.TypeRDMAMap, cmsg.TypeAtomicFAdd, cmsg.TypeAtomicCSwp,
		cmsg.TypeMaskedAtomicFAdd, cmsg.TypeMaskedAtomicCSwp, cmsg.TypeZcopyCookie)
	for {
		m, rest, ok, err := cmsg.Next(control)
		if err != nil || !ok {
			return errno(err)
		}
		control = rest
		switch {
		case m.Level != cmsg.SOLRDS:
		case !sendable.Has(m.Type):
			return syscall.EINVAL
		case m.Type == cmsg.TypeRDMAArgs:
			var a cmsg.RDMAArgs
			if err := a.Parse(m.Data); err != nil {
				return errno(err)
			}
			if err := k.vectorSize(&a); err != nil {
				return err
			}
		}
	}
}

// vectorSize checks the local vector of a. EINVAL: it is empty, or has an empty
// entry. EMSGSIZE: it has more than 1024 entries. EFAULT: it is not in memory of the
// process.
func (k *Kernel) vectorSize(a *cmsg.RDMAArgs) error {
	switch {
	case a.NrLocal == 0:
		return syscall.EINVAL
	case a.NrLocal > cmsg.MaxLocalSegments:
		return syscall.EMSGSIZE
	}
	vecs, err := k.vectors(a)
	if err != nil {
		return err
	}
	for _, v := range vecs {
		if v.Bytes == 0 || v.Addr+v.Bytes < v.Addr {
			return syscall.EINVAL
		}
	}
	return nil
}

// vectors reads the local vector of a from memory.
func (k *Kernel) vectors(a *cmsg.RDMAArgs) ([]cmsg.IOVec, error) {
	raw, err := k.mem.read(a.LocalVecAddr, a.NrLocal*cmsg.IOVecSize)
	if err != nil {
		return nil, err
	}
	vecs, err := cmsg.ParseIOVecs(make([]cmsg.IOVec, 0, a.NrLocal), raw, int(a.NrLocal))
	return vecs, errno(err)
}

// process translates the control messages into what package rds sends (send.c
// rds_cmsg_send). docs/kernel.md has its errors.
func (s *Socket) process(rs *rds.Socket, o *outgoing, control []byte) error {
	if err := o.ctl.Parse(control); err != nil {
		return errno(err)
	}
	switch has := o.ctl.Present.Has; {
	case has(cmsg.TypeRDMAArgs):
		if err := s.addRDMA(o); err != nil {
			return err
		}
	case has(cmsg.TypeRDMADest):
		if !s.owns(o.ctl.Dest) {
			return syscall.EINVAL
		}
		if err := s.offer(o.ctl.Dest, o.m.Addr); err != nil {
			return err
		}
		o.m.Cookie = rds.Cookie(o.ctl.Dest)
	case has(cmsg.TypeRDMAMap):
		region, err := s.register(rs, &o.ctl.Map, 0)
		if err != nil {
			return err
		}
		o.mapped = region
		o.m.Cookie = region.Cookie()
	}
	if o.ctl.AtomicType() != 0 {
		if err := s.addAtomic(o); err != nil {
			return err
		}
	}
	o.setSilent()
	return s.setZeroCopy(o)
}

// addRDMA adds the operation of RDMA_ARGS (rdma.c rds_cmsg_rdma_args). EINVAL: more
// local than remote bytes. EFAULT: a local address that is not in a buffer.
func (s *Socket) addRDMA(o *outgoing) error {
	a := &o.ctl.Args
	vecs, err := s.k.vectors(a)
	if err != nil {
		return err
	}
	if _, err := a.CheckLocal(vecs); err != nil {
		return errno(err)
	}
	op := &rds.RDMA{Cookie: rds.Cookie(a.Cookie), RemoteOff: a.RemoteVec.Addr,
		Local: make([]rds.Segment, len(vecs))}
	if a.Flags&cmsg.FlagReadWrite != 0 {
		op.Write = true
	}
	for i, v := range vecs {
		if op.Local[i], err = s.k.mem.segment(v.Addr, v.Bytes); err != nil {
			return err
		}
	}
	op.Token, op.Notify = s.expect(o, a.UserToken, a.Flags)
	o.m.Op = op
	return nil
}

// addAtomic adds the operation of one of the atomic types (rdma.c rds_cmsg_atomic).
// EFAULT: a local address that is not in a buffer or not aligned.
func (s *Socket) addAtomic(o *outgoing) error {
	a := &o.ctl.Atomic
	if err := a.Check(); err != nil {
		return errno(err)
	}
	local, err := s.k.mem.segment(a.LocalAddr, 8)
	if err != nil {
		return err
	}
	op := &rds.Atomic{Cookie: rds.Cookie(a.Cookie), RemoteOff: a.RemoteAddr, Local: local}
	switch o.ctl.AtomicType() {
	case cmsg.TypeAtomicFAdd:
		op.Add = a.Word[0]
	case cmsg.TypeMaskedAtomicFAdd:
		op.Add, op.NoCarry = a.Word[0], a.Word[1]
	case cmsg.TypeAtomicCSwp:
		op.CmpSwap, op.Compare, op.Swap = true, a.Word[0], a.Word[1]
	default:
		op.CmpSwap, op.Masked = true, true
		op.Compare, op.Swap, op.CompareMask, op.SwapMask = a.Word[0], a.Word[1], a.Word[2], a.Word[3]
	}
	op.Token, op.Notify = s.expect(o, a.UserToken, a.Flags)
	o.m.Atomic = op
	return nil
}

// expect notes an operation whose status the application wants, and returns
// what rds is to be asked for.
func (s *Socket) expect(o *outgoing, token, flags uint64) (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	notify := flags&cmsg.FlagNotifyMe != 0
	if !notify && !s.opts.recverr {
		return 0, false
	}
	s.token++
	s.ops[s.token] = pendingOp{token, notify}
	o.tokens = append(o.tokens, s.token)
	return s.token, true
}

// setSilent applies RDS_RDMA_SILENT. It counts if every operation has it and the
// message has nothing to tell the peer.
func (o *outgoing) setSilent() {
	silent := len(o.payload) == 0
	if o.m.Op != nil {
		silent = silent && o.ctl.Args.Flags&cmsg.FlagSilent != 0
	}
	if o.m.Atomic != nil {
		silent = silent && o.ctl.Atomic.Flags&cmsg.FlagSilent != 0
	}
	if o.m.Op != nil {
		o.m.Op.Silent = silent
	}
	if o.m.Atomic != nil {
		o.m.Atomic.Silent = silent
	}
}

// setZeroCopy applies MSG_ZEROCOPY and its cookie. EINVAL: there is one without the
// other, or SO_ZEROCOPY is not set.
func (s *Socket) setZeroCopy(o *outgoing) error {
	cookie := o.ctl.Present.Has(cmsg.TypeZcopyCookie)
	s.mu.Lock()
	on := o.flags&msgZeroCopy != 0 && s.opts.zerocopy != 0
	s.mu.Unlock()
	if cookie && !on {
		return syscall.EINVAL
	}
	if !on {
		return nil
	}
	o.m.ZeroCopy, o.m.ZeroCopyCookie = true, o.ctl.ZcopyCookie
	if n := uint64(len(o.payload)); n > 0 {
		// Memory the daemon can reach stays where it is; other is copied.
		if seg, err := s.k.mem.segment(addressOf(o.payload), n); err == nil {
			o.m.From, o.m.Payload = seg, nil
		}
	}
	return nil
}
