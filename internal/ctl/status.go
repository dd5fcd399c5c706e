package ctl

import (
	"time"

	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/internal/wait"
)

// CounterList is every counter and gauge of the statistics mapping. In JSON it is an object
// in the mapping's order.
type CounterList []Counter

// Counter is one counter or gauge.
type Counter struct {
	Name  string
	Value uint64
}

// StallAfter is when an engine counts as stuck: it should be running and has not published
// for this long.
const StallAfter = time.Second

// Fill sets the fields that the statistics mapping knows, so that the daemon's status and
// rdsctl status --offline agree.
func (s *Status) Fill(snap *stats.Snapshot, now time.Time) {
	s.PID = snap.PID
	s.Instance = ID(snap.Instance)
	s.Started = time.Unix(0, snap.Start).UTC()
	s.Uptime = max(0, now.Sub(s.Started))

	get := func(c stats.Counter) uint64 {
		v, _ := snap.Get(c.String())
		return v
	}
	h := &snap.Turns
	s.Engine = EngineInfo{
		State:   snap.State.String(),
		Late:    snap.Late(now),
		Turns:   h.Turns,
		TurnP50: h.Quantile(0.50),
		TurnP99: h.Quantile(0.99),
		TurnMax: h.Max,
		Stalls:  get(stats.EngineStalls),
		Wait: WaitInfo{
			Strategy:   wait.Strategy(get(stats.EngineStrategy)).String(),
			Way:        wait.Strategy(get(stats.EngineWay)).String(),
			Look:       time.Duration(get(stats.EngineLookNs)),
			Block:      time.Duration(get(stats.EngineBlockNs)),
			SlowYields: get(stats.EngineSlowYields),
		},
	}
	if h.Turns > 0 {
		s.Engine.TurnMean = h.Sum / time.Duration(h.Turns)
	}
	s.Counts = Counts{
		Clients:        get(stats.Clients),
		Sockets:        get(stats.Sockets),
		Peers:          get(stats.Peers),
		PeersUp:        get(stats.PeersUp),
		CongestedPorts: get(stats.CongestedPorts),
		Regions:        get(stats.Regions),
		OpsOutstanding: get(stats.OpsOutstanding),
	}
	s.Memory.Registered = get(stats.RegisteredBytes)
	s.Memory.Shared = get(stats.SharedBytes)
	s.Memory.Pool = get(stats.PoolBytes)
	s.Memory.Held = get(stats.HeldBytes)
	s.MessageTime, s.OperationTime = TimesOf(&snap.Messages), TimesOf(&snap.Operations)
	s.Counters = make(CounterList, len(snap.Values))
	for i, v := range snap.Values {
		s.Counters[i] = Counter{v.Name, v.Value}
	}
}
