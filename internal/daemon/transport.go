package daemon

import (
	"fmt"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/verbs/ibv"
	"github.com/rdsd/rdsd/verbs/soft"
)

// Sizes over an adapter: what is registered there is pinned memory, and its
// completion queues have limits.
const (
	verbsRecvBufs = 2048
	verbsSendBufs = 1024
	verbsMaxPeers = 512
	verbsCQE      = 16384
)

// Where Linux's RDS is in the port space of RDMA connections (net/rds/rds.h).
const (
	kernelPort4 = 18634
	kernelPort6 = 16385
)

// openDevice opens the transport's device and sets what follows from it in c.
func (d *Daemon) openDevice(cfg *config.Config, opt soft.Options, c *EngineConfig) error {
	if cfg.Transport == config.TransportVerbs {
		dev, err := ibv.Open(ibv.Options{Addr: cfg.Listen[0]})
		if err != nil {
			return fmt.Errorf("transport verbs: %w", err)
		}
		d.dev = dev
		if c.Port == kernelPort4 {
			c.Port6 = kernelPort6
		}
		c.ArmCQ = true
		c.RecvBufs, c.SendBufs, c.MaxPeers, c.CQE = verbsRecvBufs, verbsSendBufs, verbsMaxPeers, verbsCQE
		return nil
	}
	dev, err := soft.New(opt)
	if err != nil {
		return fmt.Errorf("soft device: %w", err)
	}
	d.dev, d.soft = dev, dev
	c.TurnedAway = func() uint64 {
		s := dev.Stats()
		return s.HandshakeGarbage + s.HandshakeTimeout + s.HandshakeRefused + s.HandshakeMarkers + s.HandshakePlain + s.HandshakeTLS + s.HandshakeLimited
	}
	return nil
}

// transports says what carries the connections to peers, and why.
func (d *Daemon) transports() []ctl.Choice {
	if d.soft == nil {
		return []ctl.Choice{{Name: "verbs", Used: true, Why: "RDMA device " + d.dev.Attr().Name + ": transport is set to verbs"}}
	}
	return []ctl.Choice{{Name: "soft", Used: true, Why: "iWARP over TCP in user space: works on every host"}}
}
