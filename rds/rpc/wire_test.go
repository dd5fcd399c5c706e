package rpc

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

// asked is q as it travels.
func asked(q *request) []byte { return appendRequest(nil, q, string(q.method)) }

// headed returns h as it travels.
func headed(t testing.TB, h Header) []byte {
	t.Helper()
	b, err := h.encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWire(t *testing.T) {
	q := request{id: 1 << 60, timeout: 2, into: 3, size: 4, method: []byte("put"), body: []byte("body")}
	if got, err := parseRequest(asked(&q)); err != nil || !reflect.DeepEqual(got, q) {
		t.Errorf("%+v, %v", got, err)
	}
	q.body, q.cookie, q.size = []byte{}, 7, 1<<32-1
	if got, err := parseRequest(appendRequest(nil, &q, "put")); err != nil || string(got.method) != "put" || got.cookie != 7 || got.size != q.size {
		t.Errorf("%+v, %v", got, err)
	}
	h := Header{"a": "", "name": "value"}
	q = request{id: 1, size: 4, method: []byte("put"), headed: true, header: h, head: headed(t, h), body: []byte("body")}
	if got, err := parseRequest(asked(&q)); err != nil || !reflect.DeepEqual(got, q) {
		t.Errorf("%+v, %v", got, err)
	}
	a := answer{id: 1, total: 4, header: h, head: append([]byte{2}, q.head...), part: []byte("body")}
	if got, err := parseAnswer(appendAnswer(nil, &a)); err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("%+v, %v", got, err)
	}
	a = answer{id: 1, total: 10, offset: 5, part: []byte("12345")}
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

// TestVersion1: what has no headers is of version 1, byte for byte, so that sides older than
// headers understand it.
func TestVersion1(t *testing.T) {
	for got, want := range map[string]string{
		string(asked(&request{id: 0x0102, timeout: 3, cookie: 4, into: 5, size: 1, method: []byte("put"), body: []byte("b")})): "0101030001000000" +
			"0201000000000000" + "0300000000000000" + "0400000000000000" + "0500000000000000" + "70757462",
		string(appendAnswer(nil, &answer{id: 2, total: 1, status: statusFailed, errno: syscall.ENOENT, part: []byte("b")})): "0102010002000000" +
			"0200000000000000" + "0100000000000000" + "0000000000000000" + "62",
		string(newIDs(kindProbe, 0, []uint64{7})): "0104000000000000" + "0000000000000000" + "0700000000000000",
	} {
		if hex.EncodeToString([]byte(got)) != want {
			t.Errorf("%x, want %s", got, want)
		}
	}
}

// TestMalformed: what no correct peer sends is refused, with a reason.
func TestMalformed(t *testing.T) {
	good := asked(&request{id: 1, size: 4, method: []byte("put"), body: []byte("body")})
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
	two := Header{"a": "1", "b": "22"}
	good = asked(&request{id: 1, size: 4, method: []byte("put"), headed: true, header: two, head: headed(t, two), body: []byte("body")})
	at := requestLen + len("put")
	for why, change := range map[string]func(b []byte) []byte{
		"33 headers":               func(b []byte) []byte { b[3] = 33; return b },
		"header of 2 bytes":        func(b []byte) []byte { return b[:at+2] },
		"header of 0 and":          func(b []byte) []byte { b[at] = 0; return b },
		"header of 1 and 255":      func(b []byte) []byte { b[at+1] = 255; return b },
		"1 different names in 2":   func(b []byte) []byte { b[bytes.LastIndexAny(b[:len(b)-4], "ab")] = b[at+3]; return b },
		"body of 0 bytes, said to": func(b []byte) []byte { return b[:len(b)-4] },
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
	f.Add(asked(&request{id: 1, timeout: 2, into: 3, size: 4, method: []byte("put"), body: []byte("body")}))
	f.Add(asked(&request{id: 1, cookie: 3, size: 1 << 20, method: []byte("put")}))
	f.Add(appendAnswer(nil, &answer{id: 1, total: 10, offset: 5, part: []byte("12345")}))
	f.Add(appendAnswer(nil, &answer{id: 1, total: 10, flags: flagWritten}))
	f.Add(appendAnswer(nil, &answer{id: 1, total: 2, status: statusFailed, errno: 5, part: []byte("no")}))
	h := Header{"name": "value"}
	f.Add(asked(&request{id: 1, size: 4, method: []byte("put"), headed: true, header: h, head: headed(f, h), body: []byte("body")}))
	f.Add(appendAnswer(nil, &answer{id: 1, total: 10, flags: flagWritten, head: append([]byte{1}, headed(f, h)...)}))
	f.Add(newIDs(kindCancel, 7, nil))
	f.Add(newIDs(kindProbe, 0, []uint64{1, 2, 3}))
	f.Fuzz(func(t *testing.T, b []byte) {
		ver, kind, id, ok := parseCommon(b)
		if !ok || ver > versionHeader {
			return
		}
		var again []byte
		switch kind {
		case kindRequest:
			q, err := parseRequest(b)
			if err != nil {
				return
			}
			again = asked(&q)
		case kindAnswer:
			a, err := parseAnswer(b)
			if err != nil {
				return
			}
			_ = a.err()
			again = appendAnswer(nil, &a)
			again[0] = ver // 2 does for an answer without headers, too
		case kindProbe, kindUnknown, kindKnown:
			ids, err := parseIDs(b)
			if err != nil {
				return
			}
			again = newIDs(kind, id, ids)
			again[0] = ver
			copy(again[2:8], b[2:8]) // ignored
		default:
			return
		}
		if !bytes.Equal(again, b) {
			t.Errorf("%x\nencodes to\n%x", b, again)
		}
	})
}
