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

// infoTimeout limits how long the daemon may take for a table.
const infoTimeout = 5 * time.Second

// table says how one table of RDS_INFO_* is made.
type table struct {
	size  int      // of an element
	ask   ctl.Kind // of the daemon; "": the table is always empty
	queue string   // with KindQueues
	whole bool     // too short a buffer gets nothing, not what fits
	fill  func(s *Socket, r *ctl.Response, b []byte) []byte
}

// tableOf returns the table of opt. The tables of RDS/TCP are empty: they would show
// sequence numbers and windows of the kernel's own sockets.
func tableOf(opt int) (table, bool) {
	messages := func(queue string, six bool) (table, bool) {
		if six {
			return table{size: 50, ask: ctl.KindQueues, queue: queue, fill: messages6}, true
		}
		return table{size: 26, ask: ctl.KindQueues, queue: queue, fill: messages4}, true
	}
	switch opt {
	case InfoCounters:
		return table{size: 40, ask: ctl.KindStatus, fill: counters}, true
	case InfoConnections:
		return table{size: 42, ask: ctl.KindPeers, fill: connections4}, true
	case Info6Connections:
		return table{size: 65, ask: ctl.KindPeers, fill: connections6}, true
	case InfoSendMessages, Info6SendMessages:
		return messages(ctl.QueueSend, opt == Info6SendMessages)
	case InfoRetransMessages, Info6RetransMsgs:
		return messages(ctl.QueueRetrans, opt == Info6RetransMsgs)
	case InfoRecvMessages, Info6RecvMessages:
		return messages(ctl.QueueRecv, opt == Info6RecvMessages)
	case InfoSockets:
		return table{size: 28, ask: ctl.KindSockets, whole: true, fill: sockets4}, true
	case Info6Sockets:
		return table{size: 52, ask: ctl.KindSockets, whole: true, fill: sockets6}, true
	case InfoTCPSockets:
		return table{size: 41, whole: true}, true
	case Info6TCPSockets:
		return table{size: 64, whole: true}, true
	case InfoIBConnections:
		return table{size: 68, ask: ctl.KindPeers, fill: rdma4}, true
	case Info6IBConnections:
		return table{size: 92, ask: ctl.KindPeers, fill: rdma6}, true
	}
	return table{}, false
}

// info is getsockopt of a table (info.c rds_info_getsockopt). It returns the size of
// an element and the number of bytes. ENOSPC: buf is too short for n bytes.
// ENOPROTOOPT: there is no such table. EACCES, ETIMEDOUT, ECONNREFUSED: the daemon
// does not answer the question.
func (s *Socket) info(opt int, buf []byte) (ret, n int, err error) {
	t, ok := tableOf(opt)
	if !ok {
		return 0, 0, syscall.ENOPROTOOPT
	}
	var all []byte
	if t.ask != "" {
		r, err := s.k.query(t.request())
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

func (t *table) request() ctl.Request {
	r := ctl.Request{Schema: ctl.Schema, Kind: t.ask}
	if t.ask == ctl.KindQueues {
		r.Queue, r.Limit = t.queue, ctl.MaxLimit
	}
	return r
}

// query asks the daemon's control service one question.
func (k *Kernel) query(q ctl.Request) (*ctl.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), infoTimeout)
	defer cancel()
	r, err := ask(ctx, k.path, q)
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

func ask(ctx context.Context, path string, q ctl.Request) (*ctl.Response, error) {
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
	req, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	answer, err := c.CallJSON(req)
	if err != nil {
		return nil, err
	}
	return ctl.Parse(answer, q.Kind)
}
