//go:build ibv && linux

package ibv

/*
#cgo LDFLAGS: -libverbs -lrdmacm
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"net/netip"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

// Built reports whether RDMA devices can be used by this program.
const Built = true

const (
	batch      = C.IBVX_BATCH
	extraSlots = 16 // send slots of the adapter for requests of this package
	maxSGE     = 32
	vendorSiw  = 0x626d74
	vendorRxe  = 0xffffff
)

// Device is one RDMA device. It is opened separately, so it shares no events with other
// Devices of the same adapter. It implements verbs.Device.
type Device struct {
	name   string
	attr   verbs.DeviceAttr
	limits C.struct_ibvx_limits
	port   C.int
	iwarp  bool
	siw    bool // chooses the addresses of regions itself, see mr.go

	ctx     *C.struct_ibv_context
	channel *C.struct_ibv_comp_channel
	cm      *C.struct_rdma_event_channel
	b       *C.struct_ibvx_batch
	sends   []C.struct_ibvx_send
	recvs   []C.struct_ibvx_recv
	wcs     []C.struct_ibvx_wc
	sges    []verbs.SGE
	inline  []byte // memory of C

	ep, wake int
	woken    bool // wake is readable

	closed bool
	err    error // set when the adapter has failed for good
	last   uint32
	qps    map[uint32]*qp
	cqs    map[*cq]struct{}
	srqs   map[*srq]struct{}
	pds    map[*pd]struct{}
	mrs    map[uint32]*mr // by lkey
	ids    map[uint64]*cmID
	token  uint64
	fired  int // number of queues with an event that was not taken

	failing  []*qp
	settling bool

	events []verbs.CMEvent
	asyncs []verbs.AsyncEvent
	asked  bool // PollAsync has been called
	timers []timer
	clock  timerFD

	mu    sync.Mutex
	calls []func()       // guarded by mu: results of helper goroutines
	help  sync.WaitGroup // helpers

	listenMu sync.Mutex // any goroutine may call a Listener's Close
}

// Open opens the RDMA device that has an address. Its error matches one of this package's
// errors and names the cause and the cure.
func Open(opt Options) (_ *Device, err error) {
	d := &Device{ep: -1, wake: -1, qps: map[uint32]*qp{}, cqs: map[*cq]struct{}{}, srqs: map[*srq]struct{}{}, pds: map[*pd]struct{}{},
		mrs: map[uint32]*mr{}, ids: map[uint64]*cmID{}}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	C.ibv_fork_init() // a fork must not move pages that the adapter uses; an error means too late or not needed
	if d.cm, err = C.rdma_create_event_channel(); d.cm == nil {
		return nil, cmError(err)
	}
	if e := C.ibvx_nonblock(d.cm.fd); e != 0 {
		return nil, errno(e, "rdma_cm")
	}
	if err := d.find(opt); err != nil {
		return nil, err
	}
	name := C.CString(d.name)
	defer C.free(unsafe.Pointer(name))
	if e := C.ibvx_open(name, &d.ctx); e != 0 {
		return nil, openError(d.name, unix.Errno(e))
	}
	if e := C.ibvx_limits(d.ctx, d.port, &d.limits); e != 0 {
		return nil, errno(e, "querying "+d.name)
	}
	if d.limits.port_active == 0 {
		return nil, fmt.Errorf("ibv: port %d of %s is not active: is the link up? %w", d.port, d.name, unix.ENETDOWN)
	}
	d.describe()
	if d.b = C.ibvx_new_batch(maxSGE); d.b == nil {
		return nil, errno(C.int(unix.ENOMEM), "work requests")
	}
	d.sends = unsafe.Slice(&d.b.send[0], batch)
	d.recvs = unsafe.Slice(&d.b.recv[0], batch)
	d.wcs = unsafe.Slice(&d.b.wc[0], batch)
	d.sges = unsafe.Slice((*verbs.SGE)(unsafe.Pointer(d.b.sge)), batch*maxSGE)
	if n := batch * max(d.attr.MaxInline, 1); n > 0 {
		d.inline = unsafe.Slice((*byte)(C.malloc(C.size_t(n))), n)
	}
	var e C.int
	if d.channel = C.ibvx_channel(d.ctx, &e); e != 0 {
		return nil, errno(e, "completion channel")
	}
	if e := C.ibvx_nonblock(d.ctx.async_fd); e != 0 {
		return nil, errno(e, "asynchronous events")
	}
	if err := d.openFDs(); err != nil {
		return nil, err
	}
	return d, nil
}

// find sets the name and port of the device that has opt.Addr.
func (d *Device) find(opt Options) error {
	if !opt.Addr.IsValid() || opt.Addr.IsUnspecified() {
		return invalid("no address to find a device by: %v", opt.Addr)
	}
	id, err := d.newID(idProbe)
	if err != nil {
		return err
	}
	defer id.destroy()
	sa := sockaddr(netip.AddrPortFrom(opt.Addr, 0))
	if e := C.ibvx_bind(id.c, unsafe.Pointer(&sa)); e != 0 {
		return fmt.Errorf("ibv: address %v: %w (%w)", opt.Addr, noDevice(opt.Addr, unix.Errno(e)), unix.Errno(e))
	}
	d.name, d.port = C.GoString(C.ibvx_id_device(id.c)), C.int(id.c.port_num)
	switch {
	case d.name == "":
		return fmt.Errorf("ibv: address %v: %w", opt.Addr, noDevice(opt.Addr, unix.ENODEV))
	case opt.Device != "" && opt.Device != d.name:
		return fmt.Errorf("ibv: address %v belongs to %s, not to %s: %w", opt.Addr, d.name, opt.Device, ErrNoDevice)
	}
	return nil
}

// describe sets the attributes from what the device reports.
func (d *Device) describe() {
	l := &d.limits
	d.iwarp = l.transport == C.IBV_TRANSPORT_IWARP
	d.siw = d.iwarp && l.vendor == vendorSiw
	sges := min(int(l.max_sge), maxSGE)
	a := verbs.DeviceAttr{
		Name: d.name, MaxMsg: uint32(min(uint64(l.max_msg), 1<<31-1)),
		MaxSendWR: min(int(l.max_qp_wr)-extraSlots, 1<<16), MaxRecvWR: min(int(l.max_qp_wr), int(l.max_srq_wr), 1<<16),
		MaxSGE: sges, MaxReadSGE: sges, MaxInline: int(l.max_inline),
		MaxReadDepth: min(int(l.max_rd_atomic), int(l.max_init_rd_atomic), 128), MaxPrivate: 56, PageAlignedMR: true,
		Caps: verbs.CapOrderedCQ,
	}
	if l.max_sge_rd > 0 {
		a.MaxReadSGE = min(a.MaxReadSGE, int(l.max_sge_rd))
	}
	if d.iwarp {
		a.MaxReadSGE = min(a.MaxReadSGE, 1)
		a.MaxPrivate = 250
	} else {
		a.Caps |= verbs.CapPlacedCQ | verbs.CapImm | verbs.CapRNR | verbs.CapRNRRetry | verbs.CapRemoteAck
		if l.atomic != C.IBV_ATOMIC_NONE {
			a.Caps |= verbs.CapAtomics
		}
	}
	d.attr = a
}

// Driver is the kind of device: "rxe", "siw", or "" for an adapter.
func (d *Device) Driver() string {
	switch {
	case d.siw:
		return "siw"
	case d.limits.vendor == vendorRxe:
		return "rxe"
	}
	return ""
}

func (d *Device) openFDs() (err error) {
	if d.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("ibv: epoll: %w", err)
	}
	if d.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("ibv: eventfd: %w", err)
	}
	for _, fd := range []int{int(d.cm.fd), int(d.ctx.async_fd), int(d.channel.fd), d.wake} {
		if err := unix.EpollCtl(d.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			return fmt.Errorf("ibv: epoll: %w", err)
		}
	}
	return d.openTimer()
}

// Attr implements verbs.Device.
func (d *Device) Attr() verbs.DeviceAttr { return d.attr }

// FD implements verbs.Device.
func (d *Device) FD() int { return d.ep }

// Flush implements verbs.Device. It has nothing to do, because posts go out at once.
func (d *Device) Flush() {}

// AllocPD implements verbs.Device.
func (d *Device) AllocPD() (verbs.PD, error) {
	if err := d.alive(); err != nil {
		return nil, err
	}
	c, err := C.ibv_alloc_pd(d.ctx)
	if c == nil {
		return nil, errnoOf(err, "protection domain")
	}
	p := &pd{dev: d, c: c}
	d.pds[p] = struct{}{}
	return p, nil
}

func (d *Device) alive() error {
	if d.closed {
		return errClosed
	}
	return d.err
}

// Close implements verbs.Device.
func (d *Device) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	for _, q := range d.qps {
		q.release()
	}
	for _, id := range d.ids {
		if id.busy {
			id.late = nil // it ends with the device
		} else {
			id.destroy()
		}
	}
	for s := range d.srqs {
		C.ibv_destroy_srq(s.c)
	}
	for c := range d.cqs {
		C.ibv_destroy_cq(c.c)
	}
	for _, m := range d.mrs {
		m.drop()
	}
	for p := range d.pds {
		C.ibv_dealloc_pd(p.c)
	}
	if d.channel != nil {
		C.ibv_destroy_comp_channel(d.channel)
	}
	if d.ctx != nil {
		C.ibv_close_device(d.ctx)
	}
	if len(d.ids) == 0 {
		d.closeCM()
	} else { // a connect over iWARP may last until TCP gives up
		go func() {
			d.help.Wait()
			for _, id := range d.ids {
				id.destroy()
			}
			d.closeCM()
		}()
	}
	C.ibvx_free_batch(d.b)
	C.free(unsafe.Pointer(unsafe.SliceData(d.inline)))
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, fd := range []int{d.ep, d.wake} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	d.closeTimer()
	d.wake = -1
	return nil
}

func (d *Device) closeCM() {
	if d.cm != nil {
		C.rdma_destroy_event_channel(d.cm)
	}
}
