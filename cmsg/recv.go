package cmsg

// Recv is the control data of one recvmsg. Present says which of the other fields
// are set.
type Recv struct {
	Present Set
	Dest    uint64       // TypeRDMADest: a cookie of the sender
	Status  []Notify     // TypeRDMAStatus, in order
	Cong    uint64       // TypeCongUpdate: bit (port modulo 64) is set for ports that may not be congested any more
	Trace   RxTrace      // TypeRxPathLatency
	Zcopy   ZcopyCookies // TypeZcopyCompletion
}

// Parse decodes a control buffer and reuses the memory of r.Status. It ignores
// messages of other levels and of unknown types. EINVAL: a malformed chain, a
// message that is too short, or a message other than a status that comes twice.
// After an error the content of r is undefined.
func (r *Recv) Parse(control []byte) error {
	*r = Recv{Status: r.Status[:0]}
	for {
		m, rest, ok, err := Next(control)
		if err != nil || !ok {
			return err
		}
		control = rest
		if m.Level != SOLRDS {
			continue
		}
		if r.Present.Has(m.Type) && m.Type != TypeRDMAStatus {
			return invalid("control message type %d twice", m.Type)
		}
		known, err := r.decode(m)
		if err != nil {
			return err
		}
		if known {
			r.Present |= 1 << m.Type
		}
	}
}

func (r *Recv) decode(m Message) (known bool, err error) {
	switch m.Type {
	case TypeRDMADest:
		if err := need("RDMA_DEST", m.Data, 8); err != nil {
			return false, err
		}
		r.Dest = order.Uint64(m.Data)
	case TypeRDMAStatus:
		var n Notify
		if err := n.Parse(m.Data); err != nil {
			return false, err
		}
		r.Status = append(r.Status, n)
	case TypeCongUpdate:
		if err := need("CONG_UPDATE", m.Data, 8); err != nil {
			return false, err
		}
		r.Cong = order.Uint64(m.Data)
	case TypeRxPathLatency:
		return true, r.Trace.Parse(m.Data)
	case TypeZcopyCompletion:
		return true, r.Zcopy.Parse(m.Data)
	default:
		return false, nil
	}
	return true, nil
}

// Append appends r as a control buffer, in the order of the kernel: the cookie of a
// message, statuses, congestion, latency, zero-copy completions.
func (r *Recv) Append(b []byte) []byte {
	if r.Present.Has(TypeRDMADest) {
		b = order.AppendUint64(appendHeader(b, SOLRDS, TypeRDMADest, 8), r.Dest)
	}
	if r.Present.Has(TypeRDMAStatus) {
		for _, n := range r.Status {
			b = n.Append(appendHeader(b, SOLRDS, TypeRDMAStatus, NotifySize))
		}
	}
	if r.Present.Has(TypeCongUpdate) {
		b = order.AppendUint64(appendHeader(b, SOLRDS, TypeCongUpdate, 8), r.Cong)
	}
	if r.Present.Has(TypeRxPathLatency) {
		b = r.Trace.Append(appendHeader(b, SOLRDS, TypeRxPathLatency, RxTraceSize))
	}
	if r.Present.Has(TypeZcopyCompletion) {
		b = r.Zcopy.Append(appendHeader(b, SOLRDS, TypeZcopyCompletion, ZcopyCookiesSize))
		b = pad(b, ZcopyCookiesSize)
	}
	return b
}
