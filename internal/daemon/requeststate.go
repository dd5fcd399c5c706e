package daemon

import (
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/mutant"
)

// encodeRequest writes the request of a session that was broken off, if m is not nil: its frame,
// and the descriptor that came along.
func encodeRequest(w *handover.Writer, f *outFiles, m *ipc.Message) {
	if m == nil || mutant.On(mutant.HandoverRequest) {
		w.Bool(false)
		return
	}
	w.Bool(true)
	w.Blob(ipc.AppendFrame(nil, m.ID, m.Body))
	file := handover.NoFile
	if len(m.FDs) > 0 {
		file = f.add(m.FDs[0])
	}
	w.U32(file)
}

// adoptRequest reads what encodeRequest wrote of a connection of that role. It returns nil if
// there is no request, and after an error of r.
func adoptRequest(r *handover.Reader, f *inFiles, role ipc.Role) *ipc.Message {
	if !r.Bool() {
		return nil
	}
	frame, file := r.Blob(ipc.MaxFrame), r.U32()
	if r.Err() != nil {
		return nil
	}
	id, body, err := ipc.ParseFrame(frame)
	if err != nil {
		r.Fail("a request that was broken off: %v", err)
		return nil
	}
	_, ctl := body.(*ipc.Ctl)
	_, hello := body.(*ipc.Hello)
	_, imports := body.(*ipc.Import)
	if _, is := body.(ipc.Request); !is || id == 0 || ctl || role == ipc.RoleCtl || hello != (role == 0) || imports != (file != handover.NoFile) {
		r.Fail("a request %v with id %d of a connection of role %d was broken off, descriptor %#x", body.Type(), id, role, file)
		return nil
	}
	m := &ipc.Message{ID: id, Body: body}
	if imports {
		if fd := f.take(r, file); fd >= 0 {
			m.FDs = []int{fd}
		}
	}
	return m
}
