package cmsg

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzOptions: the structures of socket options and ioctls, read from whatever
// an application passes: EINVAL, or what encodes to the same again.
func FuzzOptions(f *testing.F) {
	f.Add(getMR.Append(nil))
	f.Add(mustAppend(GetMRForDestArgs{Dest: netip.MustParseAddrPort("10.0.0.1:7")}))
	f.Add(FreeMRArgs{}.Append(nil))
	f.Add(RxTraceOption{}.Append(nil))
	f.Add(make([]byte, 160))
	f.Fuzz(func(t *testing.T, b []byte) {
		var get, get2 GetMRArgs
		var dest, dest2 GetMRForDestArgs
		var free, free2 FreeMRArgs
		var trace, trace2 RxTraceOption
		same := func(what string, err error, again func() (bool, error)) {
			if err != nil {
				if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EFAULT) {
					t.Errorf("%s: %v", what, err)
				}
				return
			}
			if ok, err := again(); !ok || err != nil {
				t.Errorf("%s: read from %x, came back differently: %v", what, b, err)
			}
		}
		same("GET_MR", get.Parse(b), func() (bool, error) { err := get2.Parse(get.Append(nil)); return get2 == get, err })
		same("GET_MR_FOR_DEST", dest.Parse(b), func() (bool, error) {
			out, err := dest.Append(nil)
			if err != nil {
				return false, err
			}
			err = dest2.Parse(out)
			return dest2 == dest, err
		})
		same("FREE_MR", free.Parse(b), func() (bool, error) { err := free2.Parse(free.Append(nil)); return free2 == free, err })
		same("RX_TRACE", trace.Parse(b), func() (bool, error) { err := trace2.Parse(trace.Append(nil)); return trace2 == trace, err })
		for _, n := range []int{0, 1, len(b) / 16, 1 << 30, -1} {
			if v, err := ParseIOVecs(nil, b, n); err == nil {
				var out []byte
				for _, x := range v {
					out = x.Append(out)
				}
				if len(v) != n || !bytes.Equal(out, b[:len(out)]) {
					t.Errorf("%d vectors of %d", len(v), n)
				}
			}
		}
	})
}
