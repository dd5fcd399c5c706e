package e2e

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// roleSpeaker is a program that the starter takes for a new daemon. It speaks the protocol of a
// hand-over up to the step that follows, and does something wrong there.
const roleSpeaker = "speaker "

// The packets of a hand-over, as internal/succession has them: kind (2 bytes), 2 bytes that are
// 0, the length of the body (4 bytes), the body.
const (
	sayHello = 1 + iota
	hearWelcome
	hearParcel
	hearFiles
	sayGot
	sayReady
	sayAdopted
	hearGo
	sayGiveUp
)

// speaker is the end of a hand-over that the starter passes to a successor.
type speaker struct{ fd int }

func (s speaker) say(kind uint16, body []byte, fds ...int) {
	b := binary.LittleEndian.AppendUint16(nil, kind)
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_ = unix.Sendmsg(s.fd, append(b, body...), oob, nil, 0)
}

func (s speaker) hello(oldest, newest uint16) {
	b := binary.LittleEndian.AppendUint16([]byte("rdsdsucc"), oldest)
	s.say(sayHello, append(binary.LittleEndian.AppendUint16(b, newest), "fake"...))
}

// hear returns the next packet. Its descriptors stay open until the end of the program.
func (s speaker) hear() (kind uint16, body []byte) {
	b, oob := make([]byte, 8192), make([]byte, unix.CmsgSpace(253*4))
	n, _, _, _, err := unix.Recvmsg(s.fd, b, oob, 0)
	if err != nil || n < 8 {
		os.Exit(4)
	}
	return binary.LittleEndian.Uint16(b), b[8:n]
}

// parcel takes a parcel, and says to have got the descriptors that lie asks for.
func (s speaker) parcel(lie uint32) {
	_, head := s.hear()
	files := binary.LittleEndian.Uint32(head[8:])
	for got := uint32(0); got < files; {
		s.hear()
		got += min(253, files-got)
		s.say(sayGot, binary.LittleEndian.AppendUint32(nil, got+lie))
	}
}

// speakerSteps are what such a program does, and what rdsctl has to say of it.
var speakerSteps = []struct {
	name string
	says []string
	do   func(s speaker)
}{
	{"exits at once", []string{"hello", "the process ended (exit status 5"}, func(speaker) {}},
	{"says nothing", []string{"hand-over: ", "i/o timeout"}, func(speaker) { hang() }},
	{"other versions", []string{"takes over versions 700 to 701 of the state, this one hands over", "no common version: restart the daemon instead"},
		func(s speaker) { s.hello(700, 701); hang() }},
	{"versions upside down", []string{"no common version"}, func(s speaker) { s.hello(2, 1); hang() }},
	{"no magic", []string{"hello", "protocol error"}, func(s speaker) { s.say(sayHello, make([]byte, 40)); hang() }},
	{"descriptors with its hello", []string{"protocol error", "descriptors"}, func(s speaker) { s.say(sayHello, []byte("rdsdsucc\x01\x00\x01\x00"), 0, 1, 2); hang() }},
	{"no packet", []string{"malformed packet"}, func(s speaker) { _ = unix.Sendmsg(s.fd, []byte{1, 2, 3}, nil, nil, 0); hang() }},
	{"takes no listening sockets", []string{"hand-over: ", "i/o timeout"}, func(s speaker) { s.hello(1, 1); hang() }},
	{"got too many", []string{"listening sockets", "protocol error"}, func(s speaker) { s.hello(1, 1); s.hear(); s.parcel(1000); hang() }},
	{"ends with listening sockets", []string{"the new daemon's start", "the process ended (exit status 5"}, func(s speaker) { s.hello(1, 1); s.hear(); s.parcel(0) }},
	{"never ready", []string{"hand-over: ", "i/o timeout"}, func(s speaker) { s.hello(1, 1); s.hear(); s.parcel(0); hang() }},
	{"adopted before the state", []string{"the new daemon's start", "protocol error"}, func(s speaker) { s.opened(sayAdopted); hang() }},
	{"adopted before the descriptors", []string{"protocol error"}, func(s speaker) { s.opened(sayReady); s.hear(); s.say(sayAdopted, nil); hang() }},
	{"got too few", []string{"state", "protocol error"}, func(s speaker) { s.opened(sayReady); s.parcel(^uint32(0)); hang() }},
	{"ends with the state", []string{"adoption", "the process ended (exit status 5"}, func(s speaker) { s.opened(sayReady); s.parcel(0) }},
	{"never adopts", []string{"hand-over: ", "i/o timeout"}, func(s speaker) { s.opened(sayReady); s.parcel(0); hang() }},
	{"gives up with garbage", []string{"adoption: refused"}, func(s speaker) {
		s.opened(sayReady)
		s.parcel(0)
		s.say(sayGiveUp, []byte("\x00\x1b[31m\xff\xfe"))
		hang()
	}},
	{"says what the old daemon says", []string{"adoption", "protocol error"}, func(s speaker) { s.opened(sayReady); s.parcel(0); s.say(hearGo, nil); hang() }},
}

// opened takes the listening sockets and says so, or something else.
func (s speaker) opened(as uint16) {
	s.hello(1, 1)
	s.hear()
	s.parcel(0)
	s.say(as, nil)
}

func hang() {
	for {
		_ = unix.Pause()
	}
}

// takesAndEnds is a program that takes over and ends, so that nobody serves.
const takesAndEnds = "takes and ends"

// speakerMain is the main function of such a program.
func speakerMain(step string) int {
	if step == takesAndEnds {
		s := speaker{3}
		s.opened(sayReady)
		s.parcel(0)
		s.say(sayAdopted, nil)
		s.hear()
		return 5
	}
	for _, s := range speakerSteps {
		if s.name == step {
			s.do(speaker{3})
			return 5
		}
	}
	fmt.Fprintf(os.Stderr, "no step %q\n", step)
	return 2
}
