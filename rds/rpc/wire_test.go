package rpc

import (
	"bytes"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

func TestWire(t *testing.T) {
	q := request{id: 1 << 60, timeout: 2, into: 3, size: 4, method: []byte("put"), body: []byte("body")}
	if got, err := parseRequest(appendRequest(nil, &q)); err != nil || !reflect.DeepEqual(got, q) {
		t.Errorf("%+v, %v", got, err)
	}
	q.body, q.cookie, q.size = []byte{}, 7, 1<<32-1
	if got, err := parseRequest(appendMethod(nil, &q, "put")); err != nil || string(got.method) != "put" || got.cookie != 7 || got.size != q.size {
		t.Errorf("%+v, %v", got, err)
	}
	a := answer{id: 1, total: 10, offset: 5, part: []byte("12345")}
	if got, err := parseAnswer(appendAnswer(nil, &a)); err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("%+v, %v", got, err)
	}
	a = answer{id: 1, total: 4, status: statusFailed, errno: syscall.ENOENT, part: []byte("text")}
	if got, err := parseAnswer(appendAnswer(nil, &a)); err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := parseIDs(newIDs(kindProbe, 0, []uint64{1, 2})); err != nil || !reflect.DeepEqual(got, []uint64{1, 2}) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestMalformed: what no correct peer sends is refused, with a reason.
func TestMalformed(t *testing.T) {
	good := appendRequest(nil, &request{id: 1, size: 4, method: []byte("put"), body: []byte("body")})
	for why, change := range map[string]func(b []byte) []byte{
		"request of 39 bytes":               func(b []byte) []byte { return b[:39] },
		"reserved byte":                     func(b []byte) []byte { b[3] = 1; return b },
		"method of 8 bytes in 7":            func(b []byte) []byte { b[2] = 8; return b },
		"body of 4 bytes, said to have 5":   func(b []byte) []byte { b[4] = 5; return b },
		"4 bytes besides a body in memory":  func(b []byte) []byte { b[24] = 1; return b },
		"body of 3 bytes, said to have 4":   func(b []byte) []byte { return b[:len(b)-1] },
		"body of 4 bytes, said to have 260": func(b []byte) []byte { b[5] = 1; return b },
	} {
		if _, err := parseRequest(change(bytes.Clone(good))); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %s", err, why)
		}
	}
	for why, a := range map[string]answer{
		"status 7":                             {status: statuses},
		"flags 0x2":                            {flags: 2},
		"an answer in memory with 1 bytes":     {flags: flagWritten, total: 1, part: []byte("x")},
		"1 bytes at 1 of 1":                    {total: 1, offset: 1, part: []byte("x")},
		"0 bytes at 0 of 1":                    {total: 1},
		"1 bytes at 18446744073709551615 of 1": {total: 1, offset: 1<<64 - 1, part: []byte("x")},
		"text of an error: 1 of 2 bytes":       {status: statusFailed, total: 2, part: []byte("x")},
		"text of an error: 1025 of 1025 bytes": {status: statusBusy, total: 1025, part: make([]byte, 1025)},
	} {
		if _, err := parseAnswer(appendAnswer(nil, &a)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %s", err, why)
		}
	}
	if _, err := parseIDs(make([]byte, commonLen+7)); err == nil {
		t.Error("half an id was taken")
	}
	if _, err := parseIDs(make([]byte, commonLen+8*(maxIDs+1))); err == nil {
		t.Error("too many ids were taken")
	}
}

// FuzzWire: parsing ends, and what parses encodes to what it was.
func FuzzWire(f *testing.F) {
	f.Add(appendRequest(nil, &request{id: 1, timeout: 2, into: 3, size: 4, method: []byte("put"), body: []byte("body")}))
	f.Add(appendRequest(nil, &request{id: 1, cookie: 3, size: 1 << 20, method: []byte("put")}))
	f.Add(appendAnswer(nil, &answer{id: 1, total: 10, offset: 5, part: []byte("12345")}))
	f.Add(appendAnswer(nil, &answer{id: 1, total: 10, flags: flagWritten}))
	f.Add(appendAnswer(nil, &answer{id: 1, total: 2, status: statusFailed, errno: 5, part: []byte("no")}))
	f.Add(newIDs(kindCancel, 7, nil))
	f.Add(newIDs(kindProbe, 0, []uint64{1, 2, 3}))
	f.Fuzz(func(t *testing.T, b []byte) {
		ver, kind, id, ok := parseCommon(b)
		if !ok || ver != version {
			return
		}
		var again []byte
		switch kind {
		case kindRequest:
			q, err := parseRequest(b)
			if err != nil {
				return
			}
			again = appendRequest(nil, &q)
		case kindAnswer:
			a, err := parseAnswer(b)
			if err != nil {
				return
			}
			_ = a.err()
			again = appendAnswer(nil, &a)
		case kindProbe, kindUnknown:
			ids, err := parseIDs(b)
			if err != nil {
				return
			}
			again = newIDs(kind, id, ids)
			copy(again[2:8], b[2:8]) // ignored
		default:
			return
		}
		if !bytes.Equal(again, b) {
			t.Errorf("%x\nencodes to\n%x", b, again)
		}
	})
}
