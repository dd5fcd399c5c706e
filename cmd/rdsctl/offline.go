package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/stats"
)

// offlineList reads the lists beside the first statistics mapping that has lists. The exit
// status says whether the lists' daemon lives.
func (a *app) offlineList(path string, read func(*stats.ListReader) *ctl.Response) (*ctl.Response, int, error) {
	var tried []string
	for _, p := range a.statsPaths(path) {
		p = config.ListsPath(p)
		m, err := stats.OpenLists(p)
		if errors.Is(err, fs.ErrNotExist) {
			tried = append(tried, p)
			continue
		}
		if errors.Is(err, fs.ErrPermission) {
			return nil, 0, &ctl.Error{Code: ctl.CodePermission, Message: p + ": only root and the daemon's own user may read the lists of all users"}
		}
		if err != nil {
			return nil, 0, err
		}
		defer m.Close()
		r := read(m.ListReader)
		code := exitOK
		if !stats.Live(p) {
			code = exitNoDaemon
		}
		return r, code, nil
	}
	return nil, 0, fmt.Errorf("%w: no lists at %s; name its statistics mapping with --stats, or the daemon's socket with --socket",
		ipc.ErrNoDaemon, strings.Join(tried, ", "))
}

// showOffline is run with -offline.
func (p *plan[T]) showOffline(a *app, o *options) int {
	r, code, err := a.offlineList(o.stats, p.offline)
	if err != nil {
		return a.fail(o, p.kind, err)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return a.fail(o, p.kind, err)
	}
	if code == exitNoDaemon {
		fmt.Fprintln(a.stderr, "the daemon is gone; this is what was last published")
	}
	return max(code, p.show(a, o, raw, r))
}
