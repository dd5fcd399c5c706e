package ctl

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/rdsd/rdsd/internal/stats"
)

// TestRows: what a row keeps comes back from it, every field of the row.
func TestRows(t *testing.T) {
	var s stats.Socket
	fill(t, reflect.ValueOf(&s).Elem())
	i := socketOf(&s)
	row := i.Row()
	row.Messages, row.Operations = i.MessageTime.Stats(), i.OperationTime.Stats()
	if row != s {
		t.Errorf("%+v\nbecame %+v\nand that %+v", s, i, row)
	}
	var p stats.Peer
	fill(t, reflect.ValueOf(&p).Elem())
	k := peerOf(&p)
	peer := k.Row()
	peer.Messages, peer.Operations = k.MessageTime.Stats(), k.OperationTime.Stats()
	if peer != p {
		t.Errorf("%+v\nbecame %+v\nand that %+v", p, k, peer)
	}
	none := TimesOf(new(stats.Times))
	if i := (PeerInfo{Local: netip.IPv6Loopback(), Remote: netip.IPv6Loopback(), MessageTime: none, OperationTime: none}); !reflect.DeepEqual(peerOf(new(i.Row())), i) {
		t.Errorf("of a peer that was never up: %+v", peerOf(new(i.Row())))
	}
}

// fill gives each field a value of its own.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		switch {
		case name == "_":
		case f.Kind() == reflect.Array && f.Len() == 16 && (name == "Addr" || name == "Local" || name == "Remote"):
			f.Set(reflect.ValueOf(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}).As16()))
		case f.Kind() == reflect.Struct:
			fill(t, f)
		case f.Kind() == reflect.Array && f.Index(0).Kind() == reflect.Uint64:
			for k := range f.Len() {
				f.Index(k).SetUint(uint64(k + 1))
			}
		case f.Kind() == reflect.Array:
			stats.SetText(f.Slice(0, f.Len()).Bytes(), name)
		case f.Kind() == reflect.Uint8 && name != "Lane": // a flag
			f.SetUint(1)
		case f.CanUint():
			f.SetUint(uint64(i + 100))
		case f.CanInt():
			f.SetInt(int64(i + 100))
		default:
			t.Fatalf("%s is of kind %v", name, f.Kind())
		}
	}
}
