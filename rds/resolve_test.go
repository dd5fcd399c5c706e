package rds

import (
	"errors"
	"strings"
	"testing"
)

func TestResolve(t *testing.T) {
	for _, tc := range []struct {
		network, in, want, err string
	}{
		{"ip", "10.0.0.1:4000", "10.0.0.1:4000", ""},
		{"ip", "[fd00::1]:0", "[fd00::1]:0", ""},
		{"ip4", "localhost:7", "127.0.0.1:7", ""},
		{"ip", "10.0.0.1", "", "want HOST:PORT"},
		{"ip", "10.0.0.1:65536", "", "is not a number from 0 to 65535"},
		{"ip", "10.0.0.1:http", "", "is not a number from 0 to 65535"},
		{"tcp", "10.0.0.1:1", "", "is none of ip, ip4, ip6"},
		{"ip", "10.0.0.300:1", "", `resolve "10.0.0.300" is not a host's name`},
	} {
		got, err := Resolve(t.Context(), tc.network, tc.in)
		if tc.err == "" {
			if err != nil || got.String() != tc.want {
				t.Errorf("%s %s: %v, %v", tc.network, tc.in, got, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s %s: error %v, want %s", tc.network, tc.in, err, tc.err)
		}
	}
	if _, err := Resolve(t.Context(), "ip", "x"); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}
