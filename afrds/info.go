package afrds

import (
	"context"
	"encoding/json"
	"errors"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
)

// Tables of getsockopt at level SOL_RDS (RDS_INFO_*).
const (
	InfoCounters        = 10000
	InfoConnections     = 10001
	InfoSendMessages    = 10003
	InfoRetransMessages = 10004
	InfoRecvMessages    = 10005
	InfoSockets         = 10006
	InfoTCPSockets      = 10007
	InfoIBConnections   = 10008
	Info6Connections    = 10011
	Info6SendMessages   = 10012
	Info6RetransMsgs    = 10013
	Info6RecvMessages   = 10014
	Info6Sockets        = 10015
	Info6TCPSockets     = 10016
	Info6IBConnections  = 10017

	infoFirst = InfoCounters
	infoLast  = Info6IBConnections
)

// infoTimeout is how long a table may take the daemon.
const infoTimeout = 5 * time.Second

// table is how one of RDS_INFO_* is made.
type table struct {
	size  int      // of an element
	ask   ctl.Kind // of the daemon; "": the table is always empty
	whole bool     // too short a buffer gets nothing, not what fits
	fill  func(s *Socket, r *ctl.Response, b []byte) []byte
}

// tableOf returns the table of opt. The message tables are empty: the daemon
// knows sums, which rdsctl shows, and tells no single messages. RDS/TCP's are
// empty: nothing speaks RDS/TCP.
func tableOf(opt int) (table, bool) {
	switch opt {
	case InfoCounters:
		return table{40, ctl.KindStatus, false, counters}, true
	case InfoConnections:
		return table{42, ctl.KindPeers, false, connections4}, true
	case Info6Connections:
		return table{65, ctl.KindPeers, false, connections6}, true
	case InfoSendMessages, InfoRetransMessages, InfoRecvMessages:
		return table{size: 26}, true
	case Info6SendMessages, Info6RetransMsgs, Info6RecvMessages:
		return table{size: 50}, true
	case InfoSockets:
		return table{28, ctl.KindSockets, true, sockets4}, true
	case Info6Sockets:
		return table{52, ctl.KindSockets, true, sockets6}, true
	case InfoTCPSockets:
		return table{size: 41, whole: true}, true
	case Info6TCPSockets:
		return table{size: 64, whole: true}, true
	case InfoIBConnections:
		return table{68, ctl.KindPeers, false, rdma4}, true
	case Info6IBConnections:
		return table{92, ctl.KindPeers, false, rdma6}, true
	}
	return table{}, false
}

// info is getsockopt of a table (info.c rds_info_getsockopt): the size of an
// element, and how many bytes there are. ENOSPC: buf is too short for n bytes;
// ENOPROTOOPT: no such table; EACCES, ETIMEDOUT, ECONNREFUSED: the daemon does
// not tell.
func (s *Socket) info(opt int, buf []byte) (ret, n int, err error) {
	t, ok := tableOf(opt)
	if !ok {
		return 0, 0, syscall.ENOPROTOOPT
	}
	var all []byte
	if t.ask != "" {
		r, err := s.k.query(t.ask)
		if err != nil {
			return 0, 0, err
		}
		all = t.fill(s, r, nil)
	}
	if len(buf) < len(all) {
		if !t.whole {
			copy(buf, all[:len(buf)/t.size*t.size])
		}
		return 0, len(all), syscall.ENOSPC
	}
	return t.size, copy(buf, all), nil
}

// query asks the daemon's control service one question.
func (k *Kernel) query(kind ctl.Kind) (*ctl.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), infoTimeout)
	defer cancel()
	r, err := ask(ctx, k.path, kind)
	var ce *ctl.Error
	switch {
	case err == nil:
		return r, nil
	case ctx.Err() != nil:
		return nil, syscall.ETIMEDOUT
	case errors.Is(err, ipc.ErrNoDaemon):
		return nil, syscall.ECONNREFUSED
	case errors.As(err, &ce):
		return nil, syscall.EACCES
	}
	return nil, errno(err)
}

func ask(ctx context.Context, path string, kind ctl.Kind) (*ctl.Response, error) {
	c, err := ipc.ResolveDial(ctx, path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if _, _, err := c.Call(&ipc.Hello{Version: ipc.Version, Role: ipc.RoleCtl, Name: "afrds"}, nil); err != nil {
		return nil, err
	}
	req, err := json.Marshal(ctl.Request{Schema: ctl.Schema, Kind: kind})
	if err != nil {
		return nil, err
	}
	answer, err := c.CallJSON(req)
	if err != nil {
		return nil, err
	}
	return ctl.Parse(answer, kind)
}
