package proto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rdsd/rdsd/abi"
)

// Version begins the long form of the options. Versions are not negotiated: options of another
// version cannot be read.
const Version = "2.0.7"

// Sizes in bytes on the control connection.
const (
	VersionSize = 16 // the version, padded with zeros
	LegacySize  = 59 // options without version, tos and async
	LongSize    = VersionSize + LegacySize + 2
	GoSize      = 1 // the go-ahead is one byte of any value
)

// Limits on options. Where the protocol allows more, its limit is in brackets.
const (
	MaxDepth     = 1<<16 - 1      // a header's index is 16 bits
	MaxTasks     = 1024           // [65535] each task talks to every task of the peer
	MaxMessage   = abi.MaxMessage // [4 GiB] RDS_MAX_MSG_SIZE
	MaxVector    = 512
	MaxRDMA      = abi.MaxRDMA // [4 GiB] bytes of one operation, all pieces together
	MaxAlignment = 4096
	// MaxSlots bounds the requests that a task may have outstanding, to all tasks together.
	MaxSlots = 1 << 20
)

// The RDMA modes in RWMode.
const (
	ModeBoth  = 0 // read and write alternately
	ModeRead  = 1
	ModeWrite = 2
)

// Options are what the active side sends to the passive side. The addresses are as the active
// side sees them: it sends to SendAddr.
type Options struct {
	Depth                 uint32 // outstanding requests per pair of tasks
	ReqSize               uint32 // bytes of a request
	AckSize               uint32 // bytes of an ack
	RDMASize              uint32 // bytes of one piece of an operation, 0: no RDMA
	SendAddr, ReceiveAddr [4]byte
	Port                  uint16 // of the control connection; tasks are bound to the ports above it
	Tasks                 uint16
	Seconds               uint32 // duration of the test, 0: until it is interrupted

	SummaryOnly, RealTime, Trace, Verify, ShowParams, ShowPerf bool
	CongMonitor, UseOnce, UseGetMR, Fence, CacheMRs, KeyMeter  bool
	SuppressWarnings                                           uint8 // rds-stress sends 255
	Simplex                                                    bool  // only the active side sends requests
	RWMode                                                     uint8
	Vector                                                     uint32 // pieces of one operation
	Alignment                                                  uint32 // offset in bytes of RDMA buffers from the start of a page
	ConnectRetries                                             uint32

	// Only in the long form.
	TOS   uint8
	Async bool
}

// Long reports whether o needs the long form.
func (o *Options) Long() bool { return o.TOS != 0 || o.Async }

// Default returns rds-stress's defaults.
func Default() Options {
	return Options{
		Depth: 1, ReqSize: 1024, AckSize: HeaderSize, Port: 4000, Tasks: 1,
		CongMonitor: true, Fence: true, SuppressWarnings: 255, Vector: 1,
	}
}

// ErrOptions means that no test can run with the options.
var ErrOptions = errors.New("unusable options")

// ErrVersion means that the peer is an rds-stress of another version.
var ErrVersion = errors.New("another version of rds-stress")

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrOptions, fmt.Sprintf(format, args...))
}

// Check returns an ErrOptions that names the wrong option, or nil.
func (o *Options) Check() error {
	switch {
	case o.Depth < 1 || o.Depth > MaxDepth:
		return bad("a pipeline depth of %d, want 1 to %d", o.Depth, MaxDepth)
	case o.Tasks < 1 || o.Tasks > MaxTasks:
		return bad("%d tasks, want 1 to %d", o.Tasks, MaxTasks)
	case uint64(o.Depth)*uint64(o.Tasks) > MaxSlots:
		return bad("%d tasks with %d requests each outstanding to each of %[1]d others; tasks times depth is at most %d", o.Tasks, o.Depth, MaxSlots)
	case o.Port == 0 || int(o.Port)+int(o.Tasks) > 1<<16-1:
		return bad("%d tasks have no ports above %d", o.Tasks, o.Port)
	case o.ReqSize < HeaderSize || o.ReqSize > MaxMessage:
		return bad("requests of %d bytes, want %d to %d", o.ReqSize, HeaderSize, MaxMessage)
	case o.AckSize < HeaderSize || o.AckSize > MaxMessage:
		return bad("acks of %d bytes, want %d to %d", o.AckSize, HeaderSize, MaxMessage)
	case o.RWMode > ModeWrite:
		return bad("RDMA mode %d, want 0 (both), 1 (read) or 2 (write)", o.RWMode)
	case o.Alignment > MaxAlignment:
		return bad("an alignment of %d, want 0 to %d", o.Alignment, MaxAlignment)
	}
	if o.RDMASize == 0 {
		return nil
	}
	switch {
	case o.Vector < 1 || o.Vector > MaxVector:
		return bad("%d pieces to an operation, want 1 to %d", o.Vector, MaxVector)
	case uint64(o.RDMASize)*uint64(o.Vector) > MaxRDMA:
		return bad("operations of %d pieces of %d bytes, want at most %d bytes", o.Vector, o.RDMASize, MaxRDMA)
	case o.CacheMRs && o.UseOnce:
		return bad("keys cannot be kept (rdma-cache-mrs) and used once (rdma-use-once)")
	}
	return nil
}

// Append adds o in the form it needs to b.
func (o *Options) Append(b []byte) []byte {
	be := binary.BigEndian
	if o.Long() {
		var v [VersionSize]byte
		copy(v[:], Version)
		b = append(b, v[:]...)
	}
	for _, v := range []uint32{o.Depth, o.ReqSize, o.AckSize, o.RDMASize} {
		b = be.AppendUint32(b, v)
	}
	b = append(b, o.SendAddr[:]...)
	b = append(b, o.ReceiveAddr[:]...)
	b = be.AppendUint16(b, o.Port)
	b = be.AppendUint16(b, o.Tasks)
	b = be.AppendUint32(b, o.Seconds)
	for _, f := range o.flags() {
		b = append(b, octet(*f))
	}
	b = append(b, o.SuppressWarnings, octet(o.Simplex), o.RWMode)
	for _, v := range []uint32{o.Vector, o.Alignment, o.ConnectRetries} {
		b = be.AppendUint32(b, v)
	}
	if o.Long() {
		b = append(b, o.TOS, octet(o.Async))
	}
	return b
}

// flags are the octets at 32 to 43.
func (o *Options) flags() []*bool {
	return []*bool{
		&o.SummaryOnly, &o.RealTime, &o.Trace, &o.Verify, &o.ShowParams, &o.ShowPerf,
		&o.CongMonitor, &o.UseOnce, &o.UseGetMR, &o.Fence, &o.CacheMRs, &o.KeyMeter,
	}
}

func octet(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// ReadOptions reads one side's options from r, no byte more, and checks them.
// Errors: ErrVersion, ErrOptions, those of r.
func ReadOptions(r io.Reader) (*Options, error) {
	var raw [LongSize]byte
	if _, err := io.ReadFull(r, raw[:VersionSize]); err != nil {
		return nil, fmt.Errorf("the peer's options: %w", err)
	}
	long, err := isLong(raw[:VersionSize])
	if err != nil {
		return nil, err
	}
	size := LegacySize
	if long {
		size = LongSize
	}
	if _, err := io.ReadFull(r, raw[VersionSize:size]); err != nil {
		return nil, fmt.Errorf("the peer's options end early: %w", err)
	}
	o := &Options{}
	if long {
		o.parse(raw[VersionSize:])
		o.TOS, o.Async = raw[LongSize-2], raw[LongSize-1] != 0
	} else {
		o.parse(raw[:])
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	return o, nil
}

// isLong tells by the first VersionSize bytes whether the options are of the
// long form. In the short form they begin with the depth, a small number: what
// looks like a version is one.
func isLong(b []byte) (bool, error) {
	v, pad, _ := bytes.Cut(b, []byte{0})
	text := string(v)
	if text == Version {
		return true, nil
	}
	if text != "" && strings.Trim(text, "0123456789.") == "" && len(bytes.Trim(pad, "\x00")) == 0 {
		return false, fmt.Errorf("%w: the peer's is %s, this one speaks %s; to test with an older one, give neither -Q nor --async", ErrVersion, text, Version)
	}
	return false, nil
}

// parse reads the short form from b.
func (o *Options) parse(b []byte) {
	be := binary.BigEndian
	o.Depth, o.ReqSize, o.AckSize, o.RDMASize = be.Uint32(b), be.Uint32(b[4:]), be.Uint32(b[8:]), be.Uint32(b[12:])
	copy(o.SendAddr[:], b[16:])
	copy(o.ReceiveAddr[:], b[20:])
	o.Port, o.Tasks, o.Seconds = be.Uint16(b[24:]), be.Uint16(b[26:]), be.Uint32(b[28:])
	for i, f := range o.flags() {
		*f = b[32+i] != 0
	}
	o.SuppressWarnings, o.Simplex, o.RWMode = b[44], b[45] != 0, b[46]
	o.Vector, o.Alignment, o.ConnectRetries = be.Uint32(b[47:]), be.Uint32(b[51:]), be.Uint32(b[55:])
}
