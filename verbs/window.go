package verbs

// MWType is the type of a memory window (values of ibv_mw_type).
type MWType uint8

const (
	// MWType1: the provider chooses the rkey at each bind. Any QP of the protection
	// domain may be reached with it. Binding again, or with length 0, ends it.
	MWType1 MWType = 1
	// MWType2: the consumer chooses the low 8 bits of the rkey. The rkey is valid on
	// the QP of the bind only. LOCAL_INV and the peer's SEND_WITH_INV end it.
	MWType2 MWType = 2
)

// MW is a memory window: an rkey for a part of a region, given and taken back by
// work requests.
type MW interface {
	Type() MWType
	// RKey is the key of the last bind posted. It may be used by messages sent
	// behind that bind on the same QP.
	RKey() uint32
	// Dealloc ends the window at once, bound or not.
	Dealloc() error
}

// BindMW are the arguments of OpBindMW, for windows of both types. (ibv_bind_mw is
// the same request for type 1.)
//
// PostSend returns EINVAL for a window or region of another device, for rights other
// than the remote ones, and for a type 2 key that differs from MW.RKey() in more
// than its low 8 bits. Other faults complete with WCMWBindErr when the request's
// turn comes: another protection domain, bounds, a region without AccessMWBind,
// write or atomic rights without the region's AccessLocalWrite, a type 2 window that
// is bound already.
type BindMW struct {
	MW     MW
	MR     MR
	Addr   uint64
	Length uint64 // 0: unbind (type 1 only)
	Access Access // AccessRemote*, AccessZeroBased
	RKey   uint32 // type 2: the new key
}

// IncRKey returns the next key of a type 2 window: its low 8 bits are increased by
// one (ibv_inc_rkey).
func IncRKey(rkey uint32) uint32 { return rkey&^0xff | uint32(uint8(rkey)+1) }
