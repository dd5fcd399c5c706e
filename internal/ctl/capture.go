package ctl

import (
	"net/netip"
	"time"
)

// Limits of a capture.
const (
	DefaultCaptureTime   = 10 * time.Second
	MaxCaptureTime       = time.Hour
	DefaultCaptureBuffer = 8 << 20
	MaxCaptureBuffer     = 64 << 20
	MinCaptureBuffer     = 1 << 20
	MinSnap              = 64 // bytes: the headers of MPA, DDP and RDS
	DefaultCaptureMax    = 1 << 30
	MinCaptureMax        = 4096 // bytes: what a file begins and ends with, and a few packets
	CaptureAnswer        = 4 << 20
)

// CaptureSpec says what a capture records. A field that is zero selects all.
type CaptureSpec struct {
	Peer     netip.Addr    `json:"peer,omitzero"`         // the peer's address
	Port     uint16        `json:"port,omitzero"`         // RDS port of a socket, at either end: only SENDs with a message from or to it
	Snap     int           `json:"snap_bytes,omitzero"`   // of each frame; 0 means all
	Buffer   int           `json:"buffer_bytes,omitzero"` // memory in the daemon; 0 means DefaultCaptureBuffer
	Duration time.Duration `json:"duration_ns,omitzero"`  // 0 means DefaultCaptureTime
	Max      int64         `json:"max_bytes,omitzero"`    // the file never exceeds them; 0 means DefaultCaptureMax
}

func (s *CaptureSpec) check() *Error {
	if s.Duration == 0 {
		s.Duration = DefaultCaptureTime
	}
	if s.Buffer == 0 {
		s.Buffer = DefaultCaptureBuffer
	}
	if s.Max == 0 {
		s.Max = DefaultCaptureMax
	}
	switch {
	case s.Duration < 0 || s.Duration > MaxCaptureTime:
		return errorf(CodeBadRequest, "capture: duration %v is not between 0 and %v", s.Duration, MaxCaptureTime)
	case s.Buffer < MinCaptureBuffer || s.Buffer > MaxCaptureBuffer:
		return errorf(CodeBadRequest, "capture: a buffer of %d bytes is not between %d and %d", s.Buffer, MinCaptureBuffer, MaxCaptureBuffer)
	case s.Max < MinCaptureMax:
		return errorf(CodeBadRequest, "capture: a file of at most %d bytes is too small; the least is %d", s.Max, MinCaptureMax)
	case s.Snap != 0 && s.Snap < MinSnap:
		return errorf(CodeBadRequest, "capture: snap length %d is below %d bytes, which the headers need", s.Snap, MinSnap)
	}
	s.Peer = s.Peer.Unmap()
	return nil
}

// CaptureState says how far a capture is.
type CaptureState struct {
	Frames  uint64 `json:"frames"`         // read so far
	Dropped uint64 `json:"dropped_frames"` // no room in memory
	Over    bool   `json:"over"`           // its time is over, or the file is full; the file is complete
	// Unseen lists the connections that no capture can see, because an RDMA adapter carries
	// them. They are those at the beginning.
	Unseen []netip.Addr `json:"unseen_peers,omitempty"`
}

// Capturer records the daemon's connections. There is at most one capture for each
// connection of rdsctl.
type Capturer interface {
	// BeginCapture begins a capture.
	BeginCapture(spec CaptureSpec) (CaptureState, error)
	// ReadCapture returns the next at most CaptureAnswer bytes of the file in pcapng. Its
	// error is ErrNotFound if there is no capture.
	ReadCapture() ([]byte, CaptureState, error)
	// EndCapture ends the capture. ReadCapture still has the rest of the file.
	EndCapture()
}

func capture(r *Request, who Caller, b Backend, resp *Response) (err error) {
	if !who.Admin {
		return errorf(CodePermission, "capture: only root and the daemon's own user may have it, because it shows what all users send")
	}
	var s CaptureState
	switch r.Do {
	case DoBegin:
		spec := CaptureSpec{}
		if r.Capture != nil {
			spec = *r.Capture
		}
		if e := spec.check(); e != nil {
			return e
		}
		s, err = b.BeginCapture(spec)
	case DoRead:
		resp.Capture, s, err = b.ReadCapture()
	case DoEnd:
		b.EndCapture()
	default:
		return errorf(CodeBadRequest, "capture: do %q is none of begin, read, end", r.Do)
	}
	resp.CaptureState = &s
	return err
}
