package rdstest

import (
	"context"
	"encoding/json"
	"net/netip"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
)

// Reset breaks the daemon's connections to peer, as rdsctl peer reset does. It
// returns when they are broken, with how many there were: 0 if they are not up again
// since the last reset. Messages on their way are sent again, and operations may end
// as DROPPED; nothing is lost.
func (d *Daemon) Reset(ctx context.Context, peer netip.Addr) (broken int, err error) {
	c, err := ipc.ResolveDial(ctx, d.Socket())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, _, err := c.Call(&ipc.Hello{Version: ipc.Version, Role: ipc.RoleCtl, Name: "test"}, nil); err != nil {
		return 0, err
	}
	req, err := json.Marshal(ctl.Request{Schema: ctl.Schema, Kind: ctl.KindPeerReset, Addr: peer})
	if err != nil {
		return 0, err
	}
	raw, err := c.CallJSON(req)
	if err != nil {
		return 0, err
	}
	answer, err := ctl.Parse(raw, ctl.KindPeerReset)
	if err != nil {
		return 0, err
	}
	return answer.PeerReset.Reset, nil
}
