package soft

import "golang.org/x/sys/unix"

// CutDeaf breaks the device's connections. Nothing that the peer has said and
// the device has not read is heard any more, also if it is still on its way:
// a socket whose peer has closed takes the connection's place.
func (d *Device) CutDeaf() error {
	for _, q := range d.qps {
		if q == nil || q.fd < 0 {
			continue
		}
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		_ = unix.Close(ends[1])
		err = unix.Dup3(ends[0], q.fd, unix.O_CLOEXEC) // the connection is reset, and epoll forgets it
		_ = unix.Close(ends[0])
		if err != nil {
			return err
		}
		if err := d.watch(unix.EPOLL_CTL_ADD, q.fd, q.slot, q.events); err != nil {
			return err
		}
	}
	return nil
}

// left returns how many places are free.
func (p *places) left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free
}
