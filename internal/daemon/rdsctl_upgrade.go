package daemon

import "github.com/rdsd/rdsd/internal/ctl"

// BeginUpgrade begins an upgrade (ctl).
func (b backend) BeginUpgrade(binary string) (ctl.Upgrade, error) { return b.d.BeginUpgrade(binary) }

// Upgrade describes the last upgrade (ctl).
func (b backend) Upgrade() ctl.Upgrade { return b.d.upgradeState() }
