package shm

import "sync/atomic"

// Table is what the daemon publishes about a client's destinations: Params.Slots slots,
// then Params.Cells cells. The client maps it read-only.
type Table struct {
	slots []Slot
	cells []Cell
}

// TableSize is the size of a table in bytes. It is a multiple of the page size.
func TableSize(slots, cells uint32) int {
	return roundUp((int(slots)+int(cells))*EntrySize, headerSize)
}

// NewTable views mem as a table. mem has at least TableSize bytes and is aligned to 8.
// NewTable writes nothing: the daemon starts with zeroed memory.
func NewTable(mem []byte, slots, cells uint32) *Table {
	return &Table{
		slots: array[Slot](mem, 0, slots),
		cells: array[Cell](mem, int(slots)*EntrySize, cells),
	}
}

// Slot is destination slot i.
func (t *Table) Slot(i uint32) *Slot { return &t.slots[i] }

// Cell is barrier cell i.
func (t *Table) Cell(i uint32) *Cell { return &t.cells[i] }

// LoadGen is the SubDest.Gen with which the daemon opened the slot, 0 if it is closed.
func (s *Slot) LoadGen() uint32 { return atomic.LoadUint32(&s.Gen) }

// StoreGen opens or closes the slot. It comes after the other fields were stored.
func (s *Slot) StoreGen(v uint32) { atomic.StoreUint32(&s.Gen, v) }

// LoadCongested is 1 while the destination is congested (ENOBUFS).
func (s *Slot) LoadCongested() uint32 { return atomic.LoadUint32(&s.Congested) }

// StoreCongested publishes congestion.
func (s *Slot) StoreCongested(v uint32) { atomic.StoreUint32(&s.Congested, v) }

// LoadState is the state of the connection to the destination's host.
func (s *Slot) LoadState() uint32 { return atomic.LoadUint32(&s.State) }

// StoreState publishes the connection's state.
func (s *Slot) StoreState(v uint32) { atomic.StoreUint32(&s.State, v) }

// LoadLimits is what the destination does not take.
func (s *Slot) LoadLimits() SlotLimits { return SlotLimits(atomic.LoadUint32(&s.Limits)) }

// StoreLimits publishes what the destination does not take. It has to come before StoreGen.
func (s *Slot) StoreLimits(v SlotLimits) { atomic.StoreUint32(&s.Limits, uint32(v)) }

// LoadUnreachable is why the destination's host is not reached, 0 if it is.
func (s *Slot) LoadUnreachable() uint32 { return atomic.LoadUint32(&s.Unreachable) }

// StoreUnreachable publishes why the host is not reached.
func (s *Slot) StoreUnreachable(v uint32) { atomic.StoreUint32(&s.Unreachable, v) }

// LoadHWM is the barrier id up to which every operation is locally complete.
func (c *Cell) LoadHWM() uint64 { return atomic.LoadUint64(&c.HWM) }

// StoreHWM publishes the high-water mark. The caller has to check WantCell.LoadArmed afterwards. It is a
// Swap for the same reason as Announcement.Store.
func (c *Cell) StoreHWM(v uint64) { atomic.SwapUint64(&c.HWM, v) }
