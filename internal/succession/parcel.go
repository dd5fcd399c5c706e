package succession

import (
	"fmt"
	"math"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// stateSeals are set on the file of a parcel's bytes: they are checked once and do not
// change after that.
const stateSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_SEAL

// sendParcel sends p. Its descriptors stay the caller's.
func (l *Link) sendParcel(p Parcel) error {
	if len(p.State) > maxState || len(p.Files) > maxFiles {
		return fmt.Errorf("hand-over of %d bytes and %d descriptors, at most %d and %d: %w", len(p.State), len(p.Files), maxState, maxFiles, unix.E2BIG)
	}
	fd, err := stateFile(p.State)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	head := le.AppendUint64(nil, uint64(len(p.State)))
	if err := l.send(kindParcel, le.AppendUint32(head, uint32(len(p.Files))), fd); err != nil {
		return err
	}
	for sent := 0; sent < len(p.Files); {
		part := p.Files[sent:min(sent+batch, len(p.Files))]
		if err := l.send(kindFiles, le.AppendUint32(nil, uint32(sent)), part...); err != nil {
			return err
		}
		sent += len(part)
		got, err := l.recv(kindGot, 0)
		if err != nil {
			return err
		}
		if len(got.body) != 4 || le.Uint32(got.body) != uint32(sent) {
			return fmt.Errorf("%w: got %x after %d descriptors", ErrProtocol, got.body, sent)
		}
	}
	return nil
}

// stateFile makes a sealed memory file of b.
func stateFile(b []byte) (fd int, err error) {
	fd, err = unix.MemfdCreate("rdsd-state", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("hand-over: %w", os.NewSyscallError("memfd_create", err))
	}
	for off := 0; off < len(b) && err == nil; {
		var n int
		n, err = unix.Pwrite(fd, b[off:], int64(off))
		if err == unix.EINTR {
			err = nil
		}
		off += n
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, stateSeals)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("hand-over: %d bytes of state: %w", len(b), err)
	}
	return fd, nil
}

// recvParcel receives a parcel. All its descriptors are the caller's. After an error there
// are none.
func (l *Link) recvParcel() (p Parcel, err error) {
	head, err := l.recv(kindParcel, 1)
	if err != nil {
		return p, err
	}
	defer head.closeFiles()
	if len(head.body) != 12 {
		return p, fmt.Errorf("%w: parcel of %d bytes", ErrProtocol, len(head.body))
	}
	size, files := le.Uint64(head.body), int(le.Uint32(head.body[8:]))
	if size > maxState || files > maxFiles {
		return p, fmt.Errorf("%w: parcel with %d bytes and %d descriptors, at most %d and %d", ErrProtocol, size, files, maxState, maxFiles)
	}
	if p.State, err = readState(head.fds[0], int64(size)); err != nil {
		return Parcel{}, err
	}
	defer func() {
		if err != nil {
			closeAll(p.Files)
			p = Parcel{}
		}
	}()
	p.Files = slices.Grow(p.Files, files)
	for len(p.Files) < files {
		m, err := l.recv(kindFiles, min(batch, files-len(p.Files)))
		if err != nil {
			return p, err
		}
		first := uint32(math.MaxUint32)
		if len(m.body) == 4 {
			first = le.Uint32(m.body)
		}
		at := uint32(len(p.Files))
		p.Files = append(p.Files, m.fds...)
		if first != at {
			return p, fmt.Errorf("%w: descriptors from %d, not %d", ErrProtocol, first, at)
		}
		if err := l.send(kindGot, le.AppendUint32(nil, uint32(len(p.Files)))); err != nil {
			return p, err
		}
	}
	return p, nil
}

// readState reads the bytes of a parcel, which nobody can change any more.
func readState(fd int, size int64) ([]byte, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&stateSeals != stateSeals {
		return nil, fmt.Errorf("%w: the state is not in a sealed memory file", ErrProtocol)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if st.Size != size {
		return nil, fmt.Errorf("%w: state of %d bytes, announced %d", ErrProtocol, st.Size, size)
	}
	b := make([]byte, size)
	for off := 0; off < len(b); {
		n, err := unix.Pread(fd, b[off:], int64(off))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return nil, fmt.Errorf("read the state: %w", os.NewSyscallError("pread", err))
		}
		off += n
	}
	return b, nil
}
