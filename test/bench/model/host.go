package model

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Descriptors is how many descriptors the memory and bells of one host have.
const Descriptors = 4

// Memory is the rings and bells of one application and its relay, as the process has them
// that starts both.
type Memory struct {
	// Files are the ring to the relay, the ring to the application, the relay's bell and the
	// application's.
	Files []*os.File
}

// NewMemory makes the rings and bells of one host.
func NewMemory() (*Memory, error) {
	m := &Memory{}
	add := func(name string, fd int, err error) error {
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", name, err), m.Close())
		}
		m.Files = append(m.Files, os.NewFile(uintptr(fd), name))
		return nil
	}
	for _, name := range []string{"ring to relay", "ring to application"} {
		fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
		if err := add(name, fd, err); err != nil {
			return nil, err
		}
		if err := m.Files[len(m.Files)-1].Truncate(memoryBytes); err != nil {
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

// Host is a Memory as one of the two sides has it.
type Host struct {
	toRelay, toApp     []byte
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

// Attach maps the rings of a Memory, whose descriptors are fds in the order of Memory.Files.
// The mappings stay until the process ends.
func Attach(fds [Descriptors]int) (*Host, error) {
	h := &Host{relayBell: fds[2], appBell: fds[3]}
	for i, mem := range []*[]byte{&h.toRelay, &h.toApp} {
		var err error
		if *mem, err = unix.Mmap(fds[i], 0, memoryBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
			return nil, fmt.Errorf("map ring %d: %w", i, err)
		}
	}
	return h, nil
}

// relayEnds are the relay's ends of the rings.
func (h *Host) relayEnds() (in *consumer, out *producer) {
	return newConsumer(h.toRelay, h.appBell), newProducer(h.toApp, h.appBell)
}
