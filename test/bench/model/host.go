package model

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Descriptors is how many descriptors the memory and bells of one host have.
const Descriptors = 5

// Memory is the rings, the region and the bells of one application and its relay, as the process
// has them that starts both.
type Memory struct {
	// Files are the ring to the relay, the ring to the application, the region, the relay's bell
	// and the application's.
	Files []*os.File
}

// NewMemory makes the rings and bells of one host, and a region of so many bytes.
func NewMemory(region int) (*Memory, error) {
	m := &Memory{}
	add := func(name string, fd int, err error) error {
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", name, err), m.Close())
		}
		m.Files = append(m.Files, os.NewFile(uintptr(fd), name))
		return nil
	}
	for i, name := range memories {
		fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
		if err := add(name, fd, err); err != nil {
			return nil, err
		}
		if err := m.Files[i].Truncate(int64(memorySize(i, region))); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	for _, name := range []string{"relay's bell", "application's bell"} {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err := add(name, fd, err); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Close closes the files. Processes that have attached keep theirs.
func (m *Memory) Close() error {
	var errs []error
	for _, f := range m.Files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// memories are the memory files, in the order of Memory.Files.
var memories = [...]string{"ring to relay", "ring to application", "region"}

func memorySize(i, region int) int {
	if i == len(memories)-1 {
		return region
	}
	return memoryBytes
}

// Host is a Memory as one of the two sides has it.
type Host struct {
	toRelay, toApp     []byte
	region             []byte // what the other host's application writes to, and this one's from
	relayBell, appBell int
}

// Inherited are the numbers of the descriptors of the i-th Memory whose Files a process was
// started with.
func Inherited(i int) (fds [Descriptors]int) {
	const first = 3
	for k := range fds {
		fds[k] = first + i*Descriptors + k
	}
	return fds
}

// Attach maps the memory of a Memory with such a region, whose descriptors are fds in the order
// of Memory.Files. The mappings stay until the process ends.
func Attach(fds [Descriptors]int, region int) (*Host, error) {
	h := &Host{relayBell: fds[3], appBell: fds[4]}
	for i, mem := range []*[]byte{&h.toRelay, &h.toApp, &h.region} {
		var err error
		if *mem, err = unix.Mmap(fds[i], 0, memorySize(i, region), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
			return nil, fmt.Errorf("map %s: %w", memories[i], err)
		}
	}
	return h, nil
}

// relayEnds are the relay's ends of the rings.
func (h *Host) relayEnds() (in *consumer, out *producer) {
	return newConsumer(h.toRelay, h.appBell), newProducer(h.toApp, h.appBell)
}
