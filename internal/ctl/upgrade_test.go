package ctl

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

func (f *fake) Upgrade() Upgrade {
	if f.empty {
		return Upgrade{Generation: 1}
	}
	return Upgrade{Generation: 3, PID: 4711, Version: "v0.2.0", Attempt: 5, Program: "/opt/rdsd", At: t0, Took: 900 * time.Millisecond,
		Pause: 41 * time.Millisecond, From: "v0.1.0", State: 1, Error: "process 12 (db): no answer"}
}

func (f *fake) BeginUpgrade(binary string) (Upgrade, error) {
	u := f.Upgrade()
	u.Running, u.Attempt, u.Program = true, u.Attempt+1, binary
	return u, f.err
}

func TestGoldenUpgrade(t *testing.T) {
	for name, do := range map[string]string{"upgrade": `"look"`, "upgrade-begun": `"begin","program":"/opt/new"`} {
		got := serve(t, `{"schema":"rdsd.v2","kind":"upgrade","do":`+do+`}`, Caller{Admin: true}, &fake{})
		golden(t, name, got)
		r, err := Parse(got, KindUpgrade)
		if err != nil || r.Upgrade.Running != (name == "upgrade-begun") || r.Upgrade.Generation != 3 {
			t.Errorf("%s: %v, %s", name, err, got)
		}
	}
}

func TestUpgradeErrors(t *testing.T) {
	busy := fmt.Errorf("an upgrade is in progress: %w", syscall.EBUSY)
	unable := fmt.Errorf("process 1 of a container: %w", syscall.ENOTSUP)
	for _, tc := range []struct {
		req   string
		admin bool
		err   error
		code  Code
		text  string
		is    error
	}{
		{`"do":"begin"`, false, nil, CodePermission, "upgrade: only root and the daemon's own user may do that", ErrPermission},
		{`"do":"look"`, false, nil, CodePermission, "upgrade: only root", ErrPermission},
		{`"do":"begin"`, true, busy, CodeBusy, "an upgrade is in progress", syscall.EBUSY},
		{`"do":"begin"`, true, unable, CodeUnsupported, "process 1 of a container", ErrUnsupported},
		{`"do":"begin","program":"rdsd"`, true, nil, CodeBadRequest, `upgrade: "rdsd" is not an absolute path`, nil},
		{`"do":"begin","program":"../rdsd"`, true, nil, CodeBadRequest, `upgrade: "../rdsd" is not`, nil},
		{`"do":"end"`, true, nil, CodeBadRequest, `upgrade: do "end" is none of begin, look`, nil},
		{`"do":"begin"`, true, errors.New("boom"), CodeFailed, "boom", nil},
	} {
		out := Serve(t.Context(), []byte(`{"schema":"rdsd.v2","kind":"upgrade",`+tc.req+`}`), Caller{UID: 1000, Admin: tc.admin}, &fake{err: tc.err})
		r, err := Parse(out, KindUpgrade)
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Code != tc.code || !strings.HasPrefix(e.Message, tc.text) || r.Upgrade != nil {
			t.Errorf("%s: %s", tc.req, out)
		}
		if tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%s: %v is not %v", tc.req, err, tc.is)
		}
	}
}

// The reason for a failure can name a process of another user.
func TestUpgradeErrorHidden(t *testing.T) {
	for _, admin := range []bool{true, false} {
		r, err := Parse(serve(t, `{"schema":"rdsd.v2","kind":"status"}`, Caller{UID: 1000, Admin: admin}, &fake{}), KindStatus)
		if err != nil {
			t.Fatal(err)
		}
		if why := r.Status.Upgrade.Error; why == "" || strings.Contains(why, "db") != admin {
			t.Errorf("administrator %v sees %q", admin, why)
		}
	}
}
