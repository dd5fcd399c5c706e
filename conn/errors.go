package conn

import (
	"errors"
	"fmt"
)

// Why a connection ended, for Trace, PeerDown and Info.LastError.
var (
	ErrProtocol     = errors.New("conn: the peer broke the protocol")
	ErrIncompatible = errors.New("conn: incompatible peer")
	ErrTimeout      = errors.New("conn: the handshake took too long")
	ErrRejected     = errors.New("conn: the peer rejected the connection")
	// ErrPath comes of a daemon or kernel that does not know paths, among others.
	ErrPath      = errors.New("conn: the peer takes no connection in another path than 0, or not now")
	ErrForbidden = fmt.Errorf("%w: its peers.allow does not name this host", ErrRejected)
	// ErrLater is part of the error of a rejection that passes by itself.
	ErrLater        = fmt.Errorf("%w for now", ErrRejected)
	ErrCrossed      = fmt.Errorf("%w: its own request is on its way", ErrLater)
	ErrDisconnected = errors.New("conn: disconnected")
	ErrReplaced     = errors.New("conn: the peer connected anew")
	ErrKernel       = fmt.Errorf("%w: it says that it is a Linux kernel, and is not in peers.kernel", ErrIncompatible)
	ErrStale        = errors.New("conn: the peer's daemon may be gone: another one was met since")
	ErrClosed       = errors.New("conn: closed")
	ErrNoBuffer     = errors.New("conn: no send buffer free")
	ErrCompletion   = errors.New("conn: work request failed")
)
