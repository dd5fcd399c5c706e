package daemon

import (
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
)

// handOverRequest has *m, the request of a session that was broken off, go over, if it is not nil: its
// frame, and the descriptor that came along. role is that of the connection. *m is nil after an error.
func handOverRequest(s *handover.State, f *handover.Files, role ipc.Role, m **ipc.Message) {
	broken := *m != nil
	if s.Bool(&broken); !broken {
		return
	}
	var frame []byte
	file := handover.NoFile
	if !s.Reads() {
		frame = ipc.AppendFrame(nil, (*m).ID, (*m).Body)
		if len((*m).FDs) > 0 {
			file = f.Add((*m).FDs[0])
		}
	}
	s.Blob(&frame, ipc.MaxFrame)
	if s.U32(&file); s.Reads() && s.Err() == nil {
		*m = brokenOff(s, f, role, frame, file)
	}
}

// brokenOff is the request in a frame. It returns nil after an error of s.
func brokenOff(s *handover.State, f *handover.Files, role ipc.Role, frame []byte, file uint32) *ipc.Message {
	id, body, err := ipc.ParseFrame(frame)
	if err != nil {
		s.Fail("a request that was broken off: %v", err)
		return nil
	}
	_, ctl := body.(*ipc.Ctl)
	_, hello := body.(*ipc.Hello)
	_, imports := body.(*ipc.Import)
	if _, is := body.(ipc.Request); !is || id == 0 || ctl || role == ipc.RoleCtl || hello != (role == 0) || imports != (file != handover.NoFile) {
		s.Fail("a request %v with id %d of a connection of role %d was broken off, descriptor %#x", body.Type(), id, role, file)
		return nil
	}
	m := &ipc.Message{ID: id, Body: body}
	if imports {
		if fd := f.Take(s, file); fd >= 0 {
			m.FDs = []int{fd}
		}
	}
	return m
}
