package stats

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"
)

func newLists(t *testing.T) (*Lists, *ListReader) {
	t.Helper()
	l, err := NewLists(make([]uint64, ListSize/8), Info{PID: 4711, Instance: 0xabc, Start: 5})
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewListReader(l.mem)
	if err != nil {
		t.Fatal(err)
	}
	return l, r
}

// The layout is part of the format: a change of a row needs a new ListVersion.
func TestListLayout(t *testing.T) {
	if s, p := unsafe.Sizeof(Socket{}), unsafe.Sizeof(Peer{}); ListVersion != 3 || s != 568 || p != 888 || s%8 != 0 || p%8 != 0 {
		t.Errorf("version %d: rows of %d and %d bytes", ListVersion, s, p)
	}
	if ListSize < listWords*8 || ListSize%4096 != 0 {
		t.Errorf("%d bytes for %d words", ListSize, listWords)
	}
}

func TestListRows(t *testing.T) {
	l, r := newLists(t)
	s := Socket{Used: 1, Port: 4000, RecvBytes: 1 << 40}
	SetText(s.Name[:], "store")
	l.PutSocket(0, &s)
	l.PutSocket(MaxSockets-1, &s)
	p := Peer{Used: 1, Lane: 3, Lost: 7}
	SetText(p.LastError[:], string(make([]byte, 500)))
	SetText(p.State[:], "a state that is too long to fit")
	l.PutPeer(MaxPeers-1, &p)
	l.Seen(9, 70_000, 1)
	if got := (ListInfo{PID: 4711, Instance: 0xabc, At: 9, Sockets: 70_000, Peers: 1}); r.Info() != got {
		t.Errorf("%+v, want %+v", r.Info(), got)
	}
	socks, torn := r.Sockets()
	if len(socks) != 2 || torn != 0 || socks[0] != s || socks[1] != s || Text(socks[0].Name[:]) != "store" {
		t.Errorf("%d torn, %+v", torn, socks)
	}
	peers, torn := r.Peers()
	if len(peers) != 1 || torn != 0 || peers[0] != p || Text(peers[0].State[:]) != "a state that is " {
		t.Errorf("%d torn, %+v", torn, peers)
	}
	seq := l.mem[offSockets]
	l.PutSocket(0, &s)
	if l.mem[offSockets] != seq {
		t.Error("a row was written that had not changed")
	}
	l.PutSocket(0, &Socket{})
	if socks, _ = r.Sockets(); len(socks) != 1 {
		t.Errorf("freed: %+v", socks)
	}
	// As if the writer had stopped within a row.
	l.mem[offPeers+(MaxPeers-1)*peerWords]++
	if peers, torn = r.Peers(); len(peers) != 0 || torn != 1 {
		t.Errorf("torn: %d, %+v", torn, peers)
	}
	if n := testing.AllocsPerRun(100, func() { s.Ops++; l.PutSocket(1, &s); p.Rx++; l.PutPeer(1, &p); l.Seen(1, 2, 3) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A reader gets whole rows while they are being written.
func TestListConcurrent(t *testing.T) {
	l, r := newLists(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := uint64(1); ; n++ {
			select {
			case <-stop:
				return
			default:
				l.PutSocket(0, &Socket{Used: 1, SendMessages: n, SendBytes: n, RecvBytes: n, RecvLimit: n, Ops: n})
			}
		}
	})
	last := uint64(0)
	for range 300 {
		socks, _ := r.Sockets()
		for _, s := range socks {
			if s.SendBytes != s.SendMessages || s.RecvBytes != s.SendMessages || s.RecvLimit != s.SendMessages || s.Ops != s.SendMessages || s.Ops < last {
				t.Fatalf("of two moments, or of the past: %+v after %d", s, last)
			}
			last = s.Ops
		}
	}
	close(stop)
	wg.Wait()
}

func TestListFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lists")
	f, err := CreateLists(path)
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 || fi.Size() != int64(ListSize) {
		t.Errorf("%v, %v", fi, err)
	}
	if _, err := OpenLists(path); !errors.Is(err, ErrFormat) {
		t.Errorf("not formatted yet: %v", err)
	}
	if _, err := NewLists(f.Mem(), Info{PID: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateLists(path); !errors.Is(err, ErrInUse) {
		t.Errorf("twice: %v", err)
	}
	m, err := OpenLists(path)
	if err != nil || m.Info().PID != 1 || !Live(path) {
		t.Fatalf("%v", err)
	}
	if err := errors.Join(m.Close(), f.Close()); err != nil {
		t.Error(err)
	}
	if _, err := OpenLists(path); !errors.Is(err, os.ErrNotExist) || Live(path) {
		t.Errorf("closed: %v", err)
	}
	for _, content := range []string{"", "garbage", string(make([]byte, ListSize))} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenLists(path); !errors.Is(err, ErrFormat) {
			t.Errorf("%d bytes: %v", len(content), err)
		}
	}
}
